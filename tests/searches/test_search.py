"""A search finds what is there, gives limits that pyhf gives, and names what it cannot use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.evaluation.toy_scores import toy_scores
from tests.searches.samples import background, data, signal
from unmask import search, write_report
from unmask.errors import BadDataError, UsageError
from unmask.report.search_figures import search_figures
from unmask.scores.flagged import FLAGGED_TABLE
from unmask.scores.score_table import concatenate_scores
from unmask.searches.reach import distance
from unmask.searches.result import Search
from unmask.tables import open_table

pyhf = pytest.importorskip("pyhf")
EDGES = (0.2, 0.01)


@pytest.fixture(scope="module")
def found() -> Search:
    """A search with one signal, at a strength of 0.6."""
    return search(background(40_000), data(10_000, n_signal=30), {"sig": signal(4000)}, edges=EDGES, lumi=139.0)


def test_a_signal_in_data_is_found(found: Search) -> None:
    control, validation, region = found.regions
    assert abs(validation.pull or 9) < 3
    assert region.expected == pytest.approx(100, rel=0.25)
    assert region.observed is not None
    assert region.observed > region.expected
    assert region.expected_low < region.expected < region.expected_high
    assert control.p_value is None
    assert found.global_p_value == pytest.approx(region.p_value, rel=0.05)  # one region: no other place to look
    summary = f"Data: {region.observed} observed, "
    assert found.summary().startswith(summary)
    assert f"Z = {region.z:.1f}, p = {region.p_value:.2g}; global p = {found.global_p_value:.2g}" in found.summary()
    of_signal = found.signals["sig"]
    assert of_signal.strength is not None
    assert of_signal.strength_error is not None
    assert abs(of_signal.strength - 0.6) < 2 * of_signal.strength_error
    assert of_signal.limit.observed is not None
    assert of_signal.limit.observed > of_signal.limit.expected[2]


def test_errors_add_up(found: Search) -> None:
    region = found.regions[2]
    assert region.expected_error == pytest.approx(np.hypot(region.statistical_error, region.systematic_error))
    n_control, n_simulated = found.regions[0].observed, region.expected / found.background.normalization * 0.5
    assert n_control is not None
    assert region.statistical_error == pytest.approx(region.expected / np.sqrt(n_control))
    assert region.systematic_error == pytest.approx(region.expected / np.sqrt(n_simulated), rel=0.02)


def direct_model(found: Search) -> tuple[Any, list[float]]:
    """The same model, written down anew from the numbers of the result."""
    channels, data = [], []
    template, expected = found.signals["sig"].yields, found.background.yields
    for i in (0, 2):
        one = found.regions[i]
        background = {
            "name": "b",
            "data": [expected.total[i]],
            "modifiers": [
                {"name": "k", "type": "normfactor", "data": None},
                {"name": f"b{i}", "type": "shapesys", "data": [expected.error[i]]},
            ],
        }
        signal = {
            "name": "s",
            "data": [template.total[i]],
            "modifiers": [{"name": "poi", "type": "normfactor", "data": None}],
        }
        if template.total[i] > 0:
            signal["modifiers"].append({"name": f"s{i}", "type": "shapesys", "data": [template.error[i]]})
        channels.append({"name": one.name, "samples": [signal, background]})
        data.append(float(one.observed or 0))
    model = pyhf.Model({"channels": channels}, poi_name="poi")
    return model, [*data, *model.config.auxdata]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_limits_and_significance_are_those_of_pyhf(found: Search) -> None:
    model, values = direct_model(found)
    pyhf.set_backend("numpy", pyhf.optimize.minuit_optimizer(tolerance=1e-5))
    of_signal = found.signals["sig"]
    assert found.method == "asymptotic"
    assert of_signal.limit.observed is not None
    observed = pyhf.infer.hypotest(of_signal.limit.observed, values, model)
    assert float(observed) == pytest.approx(0.05, abs=1e-6)
    for i in (1, 3):
        bands = pyhf.infer.hypotest(of_signal.limit.expected[i], values, model, return_expected_set=True)[1]
        assert float(bands[i]) == pytest.approx(0.05, abs=1e-6)
    p = pyhf.infer.hypotest(0.0, values, model, test_stat="q0")
    assert of_signal.p_value == pytest.approx(float(p), abs=1e-6)


def test_the_p_value_of_a_region_is_near_that_of_pyhf(found: Search) -> None:
    assert found.regions[2].z == pytest.approx(found.signals["sig"].z, abs=0.1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results_are_files(found: Search, tmp_path: Path) -> None:
    found.write(tmp_path)
    written = json.loads((tmp_path / "search.json").read_text())
    assert {"name", "observed", "expected", "expected_error", "p_value", "z"} <= written["regions"][2].keys()
    assert written["global_p_value"] == found.global_p_value
    with open_table(tmp_path / "events.parquet", FLAGGED_TABLE) as (table, _):
        events = table.read()
    assert len(events) == found.regions[2].observed
    assert max(events["p_value"].to_pylist()) <= 0.01
    assert (tmp_path / "events.run-event.txt").read_text().count("\n") == len(events)
    limit = written["regions"][2]["limit"]
    assert limit["visible_cross_section_fb"]["observed"] == pytest.approx(limit["observed"] / 139)
    assert written["limits"]["sig"]["observed"] == found.signals["sig"].limit.observed
    model = pyhf.Workspace(json.loads((tmp_path / "workspace-sig.json").read_text())).model()
    assert model.config.channels == ["control", "signal"]
    assert r"\begin{tabular}" in (tmp_path / "yields.tex").read_text()
    documents = [yaml.safe_load((tmp_path / "hepdata" / f"{name}.yaml").read_text()) for name in ("regions", "limits")]
    regions, limits = ([column["values"] for column in one["dependent_variables"]] for one in documents)
    assert [one["value"] for one in regions[0]] == [one.observed for one in found.regions]
    assert limits[0][0]["value"] == pytest.approx(found.signals["sig"].limit.observed, rel=1e-6)
    files = [
        one["data_file"]
        for one in yaml.safe_load_all((tmp_path / "hepdata" / "submission.yaml").read_text())
        if "data_file" in one
    ]
    assert sorted(files) == ["anomaly_score.yaml", "limits.yaml", "regions.yaml"]


def test_the_spectrum_adds_up_to_the_regions(found: Search) -> None:
    spectrum = found.to_json()["spectrum"]
    edges = np.array(spectrum["edges"])
    first = np.searchsorted(edges, found.regions[2].score_from)
    assert edges[first] == pytest.approx(found.regions[2].score_from)
    assert sum(spectrum["data"][first:]) == found.regions[2].observed
    total = np.sum([*spectrum["background"].values()], axis=0)
    assert total[first:].sum() == pytest.approx(found.regions[2].expected)
    assert total.sum() == pytest.approx(sum(one.expected for one in found.regions))


def test_a_report_begins_with_the_search(found: Search, tmp_path: Path) -> None:
    scores = concatenate_scores([background(300), signal(50)])
    write_report({"default": scores}, tmp_path / "report.html", searches={"default": found.to_json()})
    text = (tmp_path / "report.html").read_text()
    assert found.summary() in text
    assert text.index(found.summary()) < text.index('id="summary"')
    assert text.count("<svg") >= 4
    assert f"<td>{found.signals['sig'].limit.observed:.3g}</td>" in text


def test_blind_results_do_not_depend_on_signal_regions() -> None:
    hidden, seen = data(3000), data(3000, n_signal=40, signal_from=6)
    options: dict[str, Any] = {"edges": EDGES, "blind": True}
    results = [search(background(8000), some, **options) for some in (hidden, seen)]
    one, other = (result.to_json() for result in results)
    assert one == other
    assert results[0].summary().startswith("blind: signal: ")
    assert set(search_figures(one)) == {"spectrum", "regions"}
    assert one["regions"][1]["observed"] is not None
    assert one["regions"][2]["observed"] is None
    assert one["global_p_value"] is None


def test_global_p_values_count_the_places_that_were_looked_at() -> None:
    result = search(background(60_000), data(20_000, n_signal=4), edges=(0.2, 0.05, 0.02, 0.01, 0.005, 0.001))
    smallest = min(one.p_value for one in result.regions[2:] if one.p_value is not None)
    assert result.global_p_value is not None
    assert result.global_p_value > 1.5 * smallest
    assert result.global_p_value < 6 * smallest


def test_few_events_are_fitted_with_toys() -> None:
    result = search(background(3000), data(300, seed=4), {"sig": signal(2000)}, edges=EDGES)
    assert result.method == "toys"
    limit = result.signals["sig"].limit
    per_event = result.signals["sig"].yields.total[2]
    region = result.regions[2].limit
    assert region is not None
    # With one region toys are counting, but for signal in control and signal statistics.
    assert limit.observed is not None
    assert limit.observed * per_event == pytest.approx(region.observed, rel=0.1)
    assert limit.expected[2] * per_event == pytest.approx(region.expected[2], rel=0.1)


def test_reach_is_the_median_of_pyhf_and_improves_with_luminosity(found: Search) -> None:
    of_signal = found.signals["sig"]
    reach = {name: np.array(values) for name, values in of_signal.reach.items()}
    assert (np.diff(reach["excluded"]) < 0).all()
    assert (np.diff(reach["discovered"]) < 0).all()
    assert (reach["excluded"] < reach["evidence"]).all()
    (now,) = np.flatnonzero(reach["luminosity"] == 1)
    assert reach["excluded"][now] == pytest.approx(of_signal.limit.expected[2], rel=0.03)
    # At the strength of 5 standard deviations: the median of that strength, by the model's own formulae.
    s, counted = reach["discovered"][now] * of_signal.yields.total[2], found.background.counted
    assert distance(0.0, counted.expected[2] + s, counted.n_auxiliary[2], counted.tau[2]) == pytest.approx(25)


def test_a_variation_enters_the_error_of_every_region() -> None:
    nominal = background(20_000, further={"w_up": np.ones(20_000), "w_down": np.ones(20_000)})
    weight = np.where(nominal.score > 4.6, 1.3, 1.0)
    varied = background(20_000, further={"w_up": weight, "w_down": 1 / weight})
    both = {"jes": (background(20_000, weight=weight), background(20_000, weight=1 / weight))}
    options: dict[str, Any] = {"edges": EDGES}
    plain = search(nominal, data(9000), **options).regions[2]
    columns = search(varied, data(9000), variations={"jes": ("w_up", "w_down")}, **options).regions[2]
    files = search(nominal, data(9000), variations=both, **options).regions[2]
    added = np.sqrt(columns.systematic_error**2 - plain.systematic_error**2)
    assert added == pytest.approx(np.log(1.3) * plain.expected, rel=0.05)
    assert files.systematic_error == pytest.approx(columns.systematic_error, rel=1e-9)
    assert columns.statistical_error == plain.statistical_error
    assert columns.z is not None
    assert plain.z is not None
    assert columns.z <= plain.z


def test_a_variation_of_a_signal_enters_its_model_and_its_limit() -> None:
    one = signal(2000)
    varied = replace(one, further={"up": one.weight * 1.6, "down": one.weight / 1.6})
    plain, wide = (
        search(background(4000), data(900, seed=5), {"sig": varied}, edges=EDGES, variations=variations).signals["sig"]
        for variations in ({}, {"sig:jes": ("up", "down")})
    )
    signals = [channel["samples"][1] for channel in wide.workspace["channels"]]
    (jes,) = [one for one in signals[1]["modifiers"] if one["name"] == "jes"]
    assert jes["data"]["hi"] == pytest.approx(1.6)
    assert plain.limit.observed is not None
    assert wide.limit.observed is not None
    assert wide.limit.observed > 1.05 * plain.limit.observed


def test_a_variation_beyond_all_measure_is_limited_and_named() -> None:
    huge = {"jes": (background(9000, weight=np.where(background(9000).score > 4.6, 1e4, 1.0)), background(9000))}
    result = search(background(9000), data(3000), edges=EDGES, variations=huge)
    assert any("variation jes makes the yield in signal" in note for note in result.notes)
    assert np.isfinite(result.regions[2].expected_high)
    assert 0 < (result.global_p_value or 0) <= 1


def test_trained_on_and_mislabeled_events_are_left_out_and_counted() -> None:
    seen = np.arange(12_000) % 2 == 0
    some = background(12_000, was_trained_on=seen)
    mixed = concatenate_scores([some, signal(500)])
    result = search(mixed, data(3000), edges=EDGES)
    assert any("6,000 of 12,500 events were in the training" in note for note in result.notes)
    assert any("500 of 12,500 events are labeled signal" in note for note in result.notes)
    assert result.regions[2].expected == pytest.approx(30, rel=0.5)


def test_zero_observed_and_an_empty_region_of_simulation_give_numbers() -> None:
    calibrating = background(20_000, seed=8)
    few = background(2000)
    few = few[few.score < 6]
    result = search(few, data(300, seed=3)[:150], calibrating=calibrating, edges=(0.2, 0.01, 0.0005))
    empty = result.regions[3]
    assert (empty.observed, empty.expected) == (0, 0.0)
    assert empty.p_value == 1.0
    assert empty.z == 0.0
    assert empty.limit is not None
    assert empty.limit.observed == pytest.approx(-np.log(0.05), rel=1e-6)
    assert any("signal-2: no background is simulated" in note for note in result.notes)


def test_an_overwhelming_excess_has_finite_numbers(tmp_path: Path) -> None:
    result = search(background(4000), data(1000, n_signal=2000), {"sig": signal(500)}, edges=EDGES)
    assert 20 < (result.regions[2].z or 0) < 38
    result.write(tmp_path)
    written = (tmp_path / "search.json").read_text()
    assert "NaN" not in written
    assert "Infinity" not in written


def test_negative_weights_give_an_estimate_or_are_named() -> None:
    weight = np.where(np.arange(40_000) % 10 == 0, -1.0, 1.0)
    result = search(background(40_000, weight=weight), data(5000), edges=EDGES)
    assert result.regions[2].expected == pytest.approx(50, rel=0.3)
    negative = np.where(background(40_000).score > 5, -1.0, 1.0)
    with pytest.raises(BadDataError, match="background in region signal add up to -"):
        search(background(40_000, weight=negative), data(5000), calibrating=background(9000), edges=EDGES)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"data": data(500)[:0]}, BadDataError, "no data event is in region control"),
        ({"data": background(500, weight=np.full(500, 2.0))}, BadDataError, "data have weights"),
        ({"data": background(500)}, BadDataError, "500 of 500 data events are background events too"),
        ({"background": background(50)}, BadDataError, "too few for a search"),
        ({"background": signal(50)}, BadDataError, "background: no event can be used"),
        ({"edges": (0.01, 0.2)}, UsageError, "falling p-values"),
        ({"edges": (0.2, 1e-6)}, BadDataError, "no background event is as anomalous as the edge"),
        ({"lumi": 0.0}, UsageError, "luminosity 0"),
        ({"inject": {"sgi": 1.0}}, UsageError, "no signal 'sgi' to inject; did you mean 'sig'"),
        ({"variations": {"jes": ("up", "down")}}, UsageError, "background has no column 'up'"),
        ({"signals": {"sig": signal(100)[:0]}}, BadDataError, "sig: no event can be used"),
        (
            {"signals": {"low": toy_scores([0.1, 0.2], [1, 1])}},
            BadDataError,
            "low: none of its events are in the signal",
        ),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    given: dict[str, Any] = {"background": background(3000), "data": data(500), "signals": {"sig": signal(100)}}
    with pytest.raises(error, match=message):
        search(**given | change)


def test_an_injected_signal_is_added_to_data() -> None:
    result = search(background(40_000), None, {"sig": signal(4000)}, edges=EDGES, inject={"sig": 2.0})
    assert result.is_pseudo
    assert result.summary().startswith("Pseudo-data: ")
    of_signal = result.signals["sig"]
    assert of_signal.strength is not None
    assert of_signal.strength_error is not None
    assert abs(of_signal.strength - 2) < 3 * of_signal.strength_error
