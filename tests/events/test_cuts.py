"""Cuts: what they mean, and that nothing but a condition is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UsageError
from unmask.events.cuts import Cut
from unmask.events.event_set import EventSet


@pytest.fixture(scope="module")
def events(make_events: Callable[..., EventSet]) -> EventSet:
    made = make_events(300)
    rng = np.random.default_rng(3)
    further = {"run": np.arange(300), "HLT_IsoMu24": rng.integers(-1, 2, 300), "Jet_mass[1]": rng.normal(0, 20, 300)}
    further["MET.sum"] = np.where(rng.random(300) < 0.2, np.nan, rng.uniform(0, 9, 300))
    return replace(made, further=further, event_id=2**60 + np.arange(300))


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ("met>=100 and n_jets == 2 and ht < 5e2", "(met >= 100) & (n_jets == 2) & (ht < 500)"),
        ("n_leptons > 2 or not n_photons >= 1", "(leptons > 2) | ~(photons >= 1)"),
        (" 50 < met <= 0.5*ht + 20 - n_jets/2", "(50 < met) & (met <= 0.5 * ht + 20 - n_jets / 2)"),
        ("(met > 200 or ht > 300)\nand n_b_jets != 0", "((met > 200) | (ht > 300)) & (n_b_jets != 0)"),
        ("leading_lepton_pt > 150", "leading > 150"),
        ("abs(met_phi) < 1 and -met < -80", "(abs(met_phi) < 1) & (met > 80)"),
        ("HLT_IsoMu24", "flag == 1"),
        ("not HLT_IsoMu24", "flag != 1"),
        ("abs(Jet_mass[1]) > 10 and MET.sum > 2", "(abs(mass) > 10) & (total > 2)"),
        ("process == 'ttW' and weight > 1", "(process == 'ttW') & (weight > 1)"),
        (f"event_id == {2**60 + 7}", "run == 7"),
        ("run - 3 >= 4 >= 2", "run >= 7"),
        ("label == 0", "label == 0"),
    ],
)
def test_a_cut_keeps_what_it_says(events: EventSet, cut: str, expected: str) -> None:
    further, tag = events.further, events.tag
    is_lepton = (tag >= 3) & (tag <= 6)
    names = {
        "met": events.met_mev / 1e3,
        "ht": events.ht_mev / 1e3,
        "n_jets": events.n_jets,
        "n_b_jets": events.n_b_jets,
        "leptons": is_lepton.sum(axis=1),
        "photons": (tag == 7).sum(axis=1),
        "leading": np.where(is_lepton, events.pt_mev, 0).max(axis=1) / 1e3,
        "flag": further["HLT_IsoMu24"],
        "mass": further["Jet_mass[1]"],
        "total": further["MET.sum"],
        "abs": np.abs,
    } | {name: getattr(events, name) for name in ("met_phi", "weight", "process", "label")}
    is_kept = eval(expected, names | {"run": further["run"]})
    assert is_kept.any()
    assert events.cut(cut).row.tolist() == events.row[is_kept].tolist()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ("n_lepton >= 2", "character 1: unknown name n_lepton; did you mean 'n_leptons'"),
        ("met > 50 and HLT_IsoMu27", "character 14: unknown name HLT_IsoMu27; did you mean 'HLT_IsoMu24'"),
        ("met = 50", "character 5: not understood; expected and, or, not"),
        ("met > 50 && ht > 2", "character 11: not understood"),
        ("met > 50 & (ht > 2)", "character 7: 50 & (ht > 2) cannot stand here"),
        ("met > 50 and ht", "character 14: ht is not a condition; expected a comparison, such as ht > 2"),
        ("met > 50 and ht + 3", "character 14: ht + 3 cannot stand here"),
        ("met > 'x'", "character 1: compares text with numbers"),
        ("abs(process) > 2", "process cannot stand here"),
        ("sqrt(met) > 2", "character 1: sqrt(met) cannot stand here"),
        ("met ** 2 > 2", "character 1: met ** 2 cannot stand here"),
        ("met is 2", "character 1: met is 2 cannot stand here"),
        ("met >", "character 6: not understood"),
        ("", "not understood"),
        ("met > 9" + "9" * 30, "cannot stand here"),
        ("met > 9" + "9" * 5000, "not understood"),
        ("-" * 3000 + "met > 2", "nested too deeply"),
        ("met > " + "+".join("1" * 5000), "nested too deeply"),
        ("met > 2\0", "not understood"),
        ("__import__('os').abort()", "cannot stand here"),
        ("(lambda: 1) > 0", "cannot stand here"),
        ("[met for met in 'a'][0] > 1", "unknown name"),
    ],
)
def test_anything_else_is_refused(events: EventSet, cut: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        events[:5].cut(cut)
    assert message in str(error.value)


_WORDS = [
    "met",
    "ht",
    "n_jets",
    "and",
    "or",
    "not",
    ">",
    "<=",
    "==",
    "+",
    "-",
    "*",
    "/",
    "(",
    ")",
    "abs",
    "2",
    "0.5",
    "x",
]


@given(st.lists(st.sampled_from(_WORDS), max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_a_cut_or_a_clear_error(events: EventSet, text: str) -> None:
    try:
        kept = events[:20].cut(text)
    except UsageError as error:
        assert str(error).startswith(f"cut {text!r}, character ")  # noqa: PT017
    else:
        is_kept = np.isin(events.row[:20], kept.row)
        assert is_kept.tolist() == Cut(text).passes(events[:20]).tolist()
