"""Look-up table: hand-computed tokens, edges, switches and words."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tokenizers.contract import make_events
from unmask.errors import ArtifactError, BadDataError, UsageError
from unmask.events.event_set import EventSet
from unmask.tokenizers.lookup_table import LookupTableTokenizer

PI = np.float32(np.pi)
EDGES = {"pt_mev": [4e4, 8e4, 16e4], "abs_eta": [0.5, 1.0, 2.0], "met_mev": [5e4, 1e5, 2e5]}
TRAIN = make_events(400)


def one_event(*objects: tuple[int, float, float, float], met_mev: float = 6e4, met_phi: float = 0.0) -> EventSet:
    """An event with the given objects (tag, pT, eta, phi)."""
    event = make_events(1, n_objects=0)
    columns = {name: getattr(event, name).copy() for name in ("tag", "pt_mev", "eta", "phi")}
    for slot, values in enumerate(objects):
        for column, value in zip(columns.values(), values, strict=True):
            column[0, slot] = value
    met = {"met_mev": np.array([met_mev], np.float32), "met_phi": np.array([met_phi], np.float32)}
    return replace(event, **columns, **met)


def explicit(n_bins: int = 4, **options: object) -> LookupTableTokenizer:
    return LookupTableTokenizer(n_bins, **{"edges": EDGES, **options}).fit(EventSet.empty())


def tokens_of(tokenizer: LookupTableTokenizer, event: EventSet) -> list[int]:
    return tokenizer.encode(event).tokens[0].tolist()


@pytest.mark.parametrize(
    ("tag", "pt_mev", "eta", "phi", "token"),
    [
        (1, np.nextafter(np.float32(4e4), np.float32(0)), 0.0, -PI, 1),  # just below an edge; all first bins
        (1, 4e4, 0.0, -PI, 17),  # the lower edge is included: 16 (2-1) + 1
        (1, 4e4, -0.5, 0.0, 23),  # 16 (2-1) + 4 (2-1) + 3
        (2, 8e4, 1.0, -PI / 2, 106),  # 64 + 16 (3-1) + 4 (3-1) + 2
        (3, 16e4, np.nextafter(np.float32(0.5), np.float32(0)), PI / 2, 180),  # 64*2 + 16 (4-1) + 0 + 4
        (4, 1e6, -3.0, PI, 253),  # 64*3 + 16*3 + 4*3 + 1: +pi is -pi
        (5, 4e4, 2.0, np.nextafter(PI, np.float32(0)), 288),  # 64*4 + 16 + 4*3 + 4
        (6, 8e4, 0.7, np.nextafter(-PI, np.float32(0)), 357),  # 64*5 + 16*2 + 4 + 1
        (7, 5e6, 9.0, 3.0, 448),  # the last of 7 N^3
    ],
)
def test_hand_computed_particle_tokens(tag: int, pt_mev: float, eta: float, phi: float, token: int) -> None:
    assert tokens_of(explicit(), one_event((tag, pt_mev, eta, phi)))[:2] == [token, 0]


@pytest.mark.parametrize(
    ("met_mev", "met_phi", "tokens"),
    [
        (0.0, 0.0, [449, 455]),  # 448 + 1, 448 + 4 + 3
        (5e4, -PI, [450, 453]),
        (99_999.0, PI, [450, 453]),
        (1e5, -PI / 2, [451, 454]),
        (9e6, PI / 2, [452, 456]),
    ],
)
def test_hand_computed_met_tokens(met_mev: float, met_phi: float, tokens: list[int]) -> None:
    assert tokens_of(explicit(), one_event(met_mev=met_mev, met_phi=met_phi)) == [0] * 18 + tokens


@pytest.mark.parametrize("n_bins", [2, 3, 5, 6, 7, 20, 30])
def test_phi_is_wrapped_and_its_ends_are_one_direction(n_bins: int) -> None:
    tokenizer = LookupTableTokenizer(n_bins, features=("phi",), met=False, met_phi=False).fit(EventSet.empty())

    def bin_of(phi: float) -> int:
        return tokens_of(tokenizer, one_event((1, 5e4, 0.0, phi)))[0]

    middle_bin = n_bins // 2 + 1  # for an even number of bins, 0 is its lower edge
    expected = {
        -PI: 1,
        PI: 1,
        -3.1: 1,
        3.1: n_bins,
        PI + 1e-4: 1,
        -PI - 1e-4: n_bins,
        0.0: middle_bin,
    }
    assert {phi: bin_of(phi) for phi in expected} == expected
    for phi in (-3.1, -0.6, 0.1, 3.1):
        assert bin_of(phi) == bin_of(phi + 2 * np.pi) == bin_of(phi - 4 * np.pi)


@pytest.mark.parametrize("n_bins", [2, 3, 4, 5, 6, 9, 20, 21, 22, 40])
def test_formula_in_plain_python(n_bins: int) -> None:
    tokenizer = LookupTableTokenizer(n_bins).fit(TRAIN)
    events = make_events(60, seed=5)
    edges = {name: values.tolist() for name, values in tokenizer.edges_.items()}
    phi_edges = [float(np.float32(np.pi * (2 * k / n_bins - 1))) for k in range(1, n_bins)]
    expected = np.zeros((60, 20), int)
    for i in range(60):
        for slot in range(events.n_objects[i]):
            b_pt = bisect_right(edges["pt_mev"], float(events.pt_mev[i, slot])) + 1
            b_eta = bisect_right(edges["abs_eta"], abs(float(events.eta[i, slot]))) + 1
            b_phi = bisect_right(phi_edges, float(events.phi[i, slot])) + 1
            offset = n_bins**3 * (int(events.tag[i, slot]) - 1)
            expected[i, slot] = offset + n_bins**2 * (b_pt - 1) + n_bins * (b_eta - 1) + b_phi
        expected[i, 18] = 7 * n_bins**3 + bisect_right(edges["met_mev"], float(events.met_mev[i])) + 1
        expected[i, 19] = 7 * n_bins**3 + n_bins + bisect_right(phi_edges, float(events.met_phi[i])) + 1
    np.testing.assert_array_equal(tokenizer.encode(events).tokens, expected)


@pytest.mark.parametrize("study", ["four-top", "gluino"])
@pytest.mark.parametrize(("n_bins", "n_codes"), [(4, 456), (5, 885), (6, 1524)])
def test_published_vocabularies(study: str, n_bins: int, n_codes: int) -> None:
    tokenizer = explicit(n_bins, edges=f"published:{study}")
    assert (tokenizer.n_codes, tokenizer.sequence_length) == (n_codes, 20)
    # Medians are edges of N = 4 and N = 6 alike, which the pT and |eta| rows as printed are not.
    if n_bins == 6:
        four = explicit(4, edges=f"published:{study}")
        for name, edges in tokenizer.edges_.items():
            assert edges[2] == four.edges_[name][1]


def test_published_edges_are_natural_logarithms_of_mev() -> None:
    tokenizer = explicit(4, edges="published:gluino")
    assert tokenizer.describe(1).startswith("jet, pT below 35.2 GeV, |eta| below 0.49")
    assert tokenizer.describe(449) == "MET below 68.9 GeV"


def test_quantile_bins_are_equally_filled() -> None:
    events = make_events(400, n_objects=10)
    for n_bins in (4, 5, 8):
        tokens = LookupTableTokenizer(n_bins, features=("pt",), met_phi=False).fit(events).encode(events).tokens
        np.testing.assert_array_equal(np.bincount(tokens[:, :10].ravel())[1:], 4000 // n_bins)
        np.testing.assert_array_equal(np.bincount(tokens[:, 18])[n_bins + 1 :], 400 // n_bins)


def test_weights_do_not_move_the_edges() -> None:
    reweighted = replace(TRAIN, weight=np.geomspace(1e-3, 1e3, len(TRAIN)))
    plain, weighted = (LookupTableTokenizer().fit(events).edges_ for events in (TRAIN, reweighted))
    for name in plain:
        np.testing.assert_array_equal(plain[name], weighted[name])


def test_equal_width_bins_span_the_bulk_of_the_background() -> None:
    events = EventSet.concatenate([TRAIN, one_event((1, 9e6, 9.0, 0.0), met_mev=0.0)])
    tokenizer = LookupTableTokenizer(5, edges="equal-width").fit(events)
    log_pt = np.log(events.pt_mev[events.is_object].astype(float))
    low, high = np.quantile(log_pt, [0.001, 0.999])
    np.testing.assert_allclose(np.log(tokenizer.edges_["pt_mev"]), low + (high - low) * np.arange(1, 5) / 5, rtol=1e-6)
    for name in ("abs_eta", "met_mev"):
        edges = tokenizer.edges_[name] if name == "abs_eta" else np.log(tokenizer.edges_[name])
        np.testing.assert_allclose(np.diff(edges), np.diff(edges)[0], rtol=1e-4)
    assert tokenizer.edges_["abs_eta"][-1] < 9 * 4 / 5


def test_too_few_events_for_the_bins() -> None:
    for edges in ("quantile", "equal-width"):
        with pytest.raises(UsageError, match="5 bins of met_mev need at least 5 values; the training events have 3"):
            LookupTableTokenizer(5, edges=edges).fit(make_events(3, n_objects=18))
        with pytest.raises(UsageError, match=r"4 bins of pt_mev need .* have 0"):
            LookupTableTokenizer(edges=edges).fit(EventSet.empty())


@pytest.mark.parametrize("edges", ["quantile", "equal-width"])
@pytest.mark.parametrize("n_bins", [2, 4])
def test_constant_columns(edges: str, n_bins: int) -> None:
    flat = replace(TRAIN, met_mev=np.full(len(TRAIN), 7e4, np.float32))
    tokenizer = LookupTableTokenizer(n_bins, edges=edges)
    with pytest.raises(BadDataError, match=f"met_mev cannot be cut into {n_bins} bins.*70000"):
        tokenizer.fit(flat)
    LookupTableTokenizer(n_bins, edges=edges, met=False).fit(flat)


def test_coarsely_rounded_columns() -> None:
    met_mev = np.where(np.arange(len(TRAIN)) % 2, 0, TRAIN.met_mev).astype(np.float32)
    with pytest.raises(BadDataError, match="too many values are equal: smallest 0, edges 0, "):
        LookupTableTokenizer().fit(replace(TRAIN, met_mev=met_mev))


@pytest.mark.parametrize(
    ("features", "n_object_codes"),
    [
        (("type", "charge", "pt", "eta", "phi"), 7 * 64),
        (("type", "charge", "pt", "eta"), 7 * 16),
        (("type", "pt", "eta", "phi"), 5 * 64),
        (("charge", "pt", "eta", "phi"), 3 * 64),
        (("phi", "pt"), 16),
        (("type",), 5),
        (("charge",), 3),
    ],
)
def test_what_is_switched_off_leaves_the_vocabulary(features: tuple[str, ...], n_object_codes: int) -> None:
    for met, met_phi in ((True, True), (True, False), (False, True), (False, False)):
        tokenizer = explicit(features=features, met=met, met_phi=met_phi)
        assert tokenizer.n_codes == n_object_codes + 4 * (met + met_phi)
        assert tokenizer.sequence_length == 18 + met + met_phi
        tokens = tokenizer.encode(make_events(2000, n_objects=18)).tokens
        np.testing.assert_array_equal(np.unique(tokens), np.arange(1, tokenizer.n_codes + 1))


def test_types_and_charges_that_share_a_token() -> None:
    each_tag = one_event(*((tag, 5e4, 0.0, 0.0) for tag in range(1, 8)))

    def groups(*features: str) -> list[int]:
        return tokens_of(explicit(features=features, met=False, met_phi=False), each_tag)[:7]

    assert groups("type", "charge") == [1, 2, 3, 4, 5, 6, 7]
    assert groups("type") == [1, 2, 3, 3, 4, 4, 5]
    assert groups("charge") == [2, 2, 1, 3, 1, 3, 2]
    assert groups("pt") == [2] * 7


def test_signed_eta_tells_the_sides_apart() -> None:
    signed = explicit(signed_eta=True, edges={**EDGES, "eta": [-1, 0, 1]}, features=("eta",))
    assert [tokens_of(signed, one_event((1, 5e4, eta, 0.0)))[0] for eta in (-2, -1, -0.5, 0, 2)] == [1, 2, 2, 3, 4]
    assert signed.describe(1) == "object, eta below -1.00"


def test_descriptions() -> None:
    tokenizer = explicit()
    assert tokenizer.describe(0) == "padding"
    assert tokenizer.describe(1) == "jet, pT below 40.0 GeV, |eta| below 0.50, phi -3.14 to -1.57"
    assert tokenizer.describe(106) == "b-jet, pT 80.0 to 160 GeV, |eta| 1.00 to 2.00, phi -1.57 to 0.00"
    assert tokenizer.describe(448) == "photon, pT above 160 GeV, |eta| above 2.00, phi 1.57 to 3.14"
    assert tokenizer.describe(450) == "MET 50.0 to 100 GeV"
    assert tokenizer.describe(456) == "MET phi 1.57 to 3.14"
    assert explicit(features=("type", "pt"), met=False).describe(12) == "electron or positron, pT above 160 GeV"
    assert explicit(features=("charge",)).describe(3) == "object of charge +1"
    assert explicit(features=("type",), met=False).describe(6) == "MET phi -3.14 to -1.57"


def test_each_token_reads_differently() -> None:
    tokenizer = explicit(5, edges="published:four-top")
    assert len({tokenizer.describe(token) for token in range(tokenizer.n_codes + 1)}) == 886


def test_bins_table() -> None:
    table = explicit(features=("pt", "phi"), met_phi=False).bins_table()
    rows = [(row.variable, row.number, row.low, row.high, row.unit) for row in table]
    assert rows[:4] == [
        ("pT", 1, None, 40.0, "GeV"),
        ("pT", 2, 40.0, 80.0, "GeV"),
        ("pT", 3, 80.0, 160.0, "GeV"),
        ("pT", 4, 160.0, None, "GeV"),
    ]
    assert rows[4] == ("phi", 1, -np.pi, -np.pi / 2, "")
    assert rows[8] == ("MET", 1, None, 50.0, "GeV")
    assert len(rows) == 12


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_bins": 1}, "n_bins is 1; expected 2 or more"),
        ({"n_bins": 4.0}, "n_bins is 4.0"),
        ({"n_bins": 10_000}, "more than a token can count"),
        ({"edges": 5}, "edges is 5; expected text or a table"),
        ({"edges": "quantiles"}, "unknown edges 'quantiles'; did you mean 'quantile'"),
        ({"edges": "published:gluino", "n_bins": 7}, "no published edges .* for 7 bins; choose from 4, 5, 6"),
        ({"edges": "published:gluino", "signed_eta": True}, "edges of eta are not given, only of pt_mev, abs_eta"),
        ({"edges": {"pt_mev": [5e4]}, "n_bins": 2}, "edges of abs_eta are not given"),
        ({"edges": {**EDGES, "pt": [1]}}, "edges of unknown 'pt'; choose from pt_mev, abs_eta, met_mev"),
        ({"edges": EDGES, "n_bins": 5}, "5 bins of pt_mev need 4 inner edges; given: 40000, 80000, 160000"),
        ({"edges": {**EDGES, "met_mev": [1, 3, 3]}}, "edges of met_mev are 1, 3, 3; expected finite and rising"),
        ({"edges": {**EDGES, "abs_eta": [1, 2, float("nan")]}}, "edges of abs_eta are 1, 2, nan"),
        ({"edges": {**EDGES, "abs_eta": [1, 2, 1e99]}}, "edges of abs_eta are 1, 2, inf"),
        ({"edges": {**EDGES, "abs_eta": ["a", "b", "c"]}}, "expected numbers"),
        ({"edges": {**EDGES, "pt_mev": [10.75, 11.33, 12]}}, "begin at 10.75; give them in MeV"),
        ({"features": ("type", "ptt")}, "expected some of type, charge, pt, eta, phi"),
        ({"features": "pt"}, "features is 'pt'; expected some of type, charge, pt, eta, phi"),
        ({"features": ()}, "features is"),
    ],
)
def test_arguments_that_cannot_be_used(options: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        LookupTableTokenizer(**options).check()


def test_a_whole_folder_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    """Hashes in order, content not: edges for fewer bins than the settings say."""
    tokenizer = explicit()
    tokenizer.edges_ = {name: edges[:2] for name, edges in tokenizer.edges_.items()}
    tokenizer.save(tmp_path / "short")
    with pytest.raises(ArtifactError, match=r"whole lookup-table .4 bins of pt_mev need 3 inner edges"):
        LookupTableTokenizer.load(tmp_path / "short")
    tokenizer.edges_ = {}
    tokenizer.save(tmp_path / "none")
    with pytest.raises(ArtifactError, match=r"whole lookup-table .'pt_mev'"):
        LookupTableTokenizer.load(tmp_path / "none")


def test_torch_is_never_imported(tmp_path: Path) -> None:
    explicit().save(tmp_path / "tokenizer")
    program = (
        "import sys; from unmask.tokenizers import load_tokenizer; load_tokenizer(sys.argv[1]).describe(5); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "tokenizer"], check=True)
