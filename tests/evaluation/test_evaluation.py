"""The whole evaluation: every score against every signal, untrained scores beside it, warnings, and the tables."""

import csv
import json
import re
import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import kstest

from tests.evaluation.toy_scores import roc_auc, toy_observables, toy_scores
from unmask import load_sample
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.evaluation.measurement import AUC, EPS_B, REJECTIONS, eps_s
from unmask.evaluation.metrics import measure
from unmask.evaluation.roc import RankedScores
from unmask.events.columns import Names
from unmask.report.tables import leaderboard, result_files
from unmask.scores.combination import MIN_P, PRODUCT, RANDOM, untrained_scores
from unmask.scores.score_table import COLUMNS, Scores

UNTRAINED = [*(observable.label for observable in COLUMNS.values()), PRODUCT, MIN_P, RANDOM]


def two_signals(n: int = 3000, shift: float = 1.5, seed: int = 0) -> Scores:
    """Half background, a quarter each of a clear signal, twice as clear as ``shift``, and of one less so."""
    rng = np.random.default_rng(seed)
    label = (np.arange(n) % 2).astype(np.int8)
    process = np.where(label == 0, "SM", np.where(np.arange(n) % 4 == 1, "clear", "faint"))
    score = rng.normal(shift * (label + (process == "clear")), 1)
    return toy_scores(score, label, process_names=Names.of(process), observables=toy_observables(label))


def test_each_score_against_each_signal_and_all_of_them() -> None:
    scores = two_signals()
    found = evaluate({"detector": scores}, n_replicas=50)
    assert (found.n_background, found.signals) == (1500, {"clear": 750, "faint": 750})
    assert [(row.signal, row.name) for row in found.rows] == [
        (signal, name) for signal in ("all signal", "clear", "faint") for name in ("detector", *UNTRAINED)
    ]
    process = scores.process_names.array()
    for row in found.rows:
        if row.name == "detector":
            chosen = (process == "SM") | ((process == row.signal) | (row.signal == "all signal"))
            ranked = RankedScores.of(scores.score[chosen], scores.label[chosen] == 1)
            assert row.metrics == measure(ranked, n_replicas=50)
    aucs = {row.signal: row.metrics.auc.value for row in found.rows if row.name == "detector"}
    assert aucs["clear"] > aucs["all signal"] > aucs["faint"]
    over = found.improvement_over_signals["detector"]
    each = [found.rows_of(signal)[0].metrics.total_improvement for signal in ("clear", "faint")]
    assert (over.minimum, over.maximum) == (each[1].value, each[0].value)  # type: ignore[union-attr]
    assert over.median == pytest.approx((over.minimum + over.maximum) / 2)
    assert over.n_signals == 2


def test_scores_must_be_given_by_name() -> None:
    with pytest.raises(UsageError, match=r"scores is of type Scores; expected scores by name: {'detector': scores}"):
        evaluate(two_signals(40))  # type: ignore[arg-type]


def test_detectors_are_compared_in_pairs_whatever_their_order() -> None:
    good, bad = two_signals(shift=1.5), two_signals(shift=0.5)
    order = np.random.default_rng(1).permutation(len(bad))
    found = evaluate({"good": good, "bad": bad[order]}, n_replicas=20)
    process = good.process_names.array()
    for signal in ("all signal", "clear", "faint"):
        pair, *others = [pair for pair in found.comparisons if pair.signal == signal]
        assert (pair.name, pair.other) == ("good", "bad")
        chosen = (process == "SM") | (process == signal) | (signal == "all signal")
        is_signal = good.label[chosen] == 1
        aucs = [roc_auc(scores.score[chosen], is_signal).value for scores in (good, bad)]
        assert pair.difference.value == pytest.approx(aucs[0] - aucs[1])
        assert pair.difference.low > 0
        against = {(each.name, each.other) for each in others}
        assert against == {(name, other) for name in ("good", "bad") for other in UNTRAINED if other != RANDOM}


def verdicts(found: Evaluation, signal: str = "all signal") -> dict[str, str]:
    pairs = found.verdicts(signal)
    assert {pair.other for pair in pairs} == {PRODUCT}
    return {pair.name: pair.difference.verdict for pair in pairs}


def test_detectors_are_better_or_worse_than_the_best_untrained_score_or_neither() -> None:
    good, bad = two_signals(shift=3), two_signals(shift=0.3)
    fisher = dict(untrained_scores(good.observables, good.label == 0, good.weight, good.event_key))[PRODUCT]
    equal = replace(good, score=fisher + np.random.default_rng(1).normal(0, 0.01, len(good)))
    found = evaluate({"bad": bad, "equal": equal, "good": good}, n_replicas=20)
    assert verdicts(found) == {"bad": "worse", "equal": "no significant difference", "good": "better"}
    table, *each = found.verdict_tables()
    assert table.title == f"Verdict: ΔAUC to the best untrained score ({PRODUCT})"
    first, second, third = table.terminal().splitlines()[3:]
    assert re.fullmatch(r"bad +-0\.\d+ \[-0\.\d+, -0\.\d+\] +worse", first)
    assert re.fullmatch(r"equal +[+-]0\.000\d+ \[-0\.\d+, \+0\.\d+\] +no significant difference", second)
    assert re.fullmatch(r"good +\+0\.1\d+ \[\+0\.\d+, \+0\.\d+\] +better", third)
    assert [one.title for one in each] == [
        f"Verdict, {signal}: ΔAUC to the best untrained score ({PRODUCT})" for signal in ("clear", "faint")
    ]
    assert {"name": "bad", "other": PRODUCT, "signal": "all signal", "verdict": "worse"} in found.to_json()["verdicts"]


def test_verdicts_on_one_of_several_signals_are_shown_where_a_detector_is_not_better() -> None:
    assert len(evaluate({"good": two_signals(shift=3)}, n_replicas=20).verdict_tables()) == 1
    scores = two_signals(shift=3)
    is_faint = scores.process_names.array() == "faint"
    found = evaluate({"mixed": replace(scores, score=scores.score - 2.2 * is_faint)}, n_replicas=20)
    assert verdicts(found, "faint") == {"mixed": "worse"}
    assert [table.title.partition(":")[0] for table in found.verdict_tables()] == ["Verdict", "Verdict, faint"]


def test_events_that_are_there_twice_are_noticed() -> None:
    scores = two_signals(shift=3)
    twice = scores[np.concatenate([np.arange(len(scores)), np.arange(5)])]
    (note,) = evaluate({"good": twice}, n_replicas=20).notes
    assert "5 of the 3,005 events of good are there more than once" in note
    assert "too narrow" in note


def test_untrained_scores_by_hand() -> None:
    observables = {
        "n_jets": np.array([3, 3, 3, 5]),
        "sum_pt_mev": np.array([1e5, 4e5, 2e5, 9e5]),
        "n_objects": np.array([4, 5, 6, 9]),
        "ht_mev": np.array([1e5, 3e5, 2e5, 9e5]),
        "met_mev": np.array([3e4, 2e4, 1e4, 5e3]),
        "n_b_jets": np.array([2, 2, 2, 2]),
    }
    is_background = np.array([True, True, True, False])
    found = dict(untrained_scores(observables, is_background, np.ones(4), np.arange(4)))
    assert list(found) == UNTRAINED
    np.testing.assert_array_equal(found["HT"], observables["ht_mev"])
    # (1 + n at or above) / (1 + 3) of each event: objects, HT, MET, b-jets
    p = np.array([[4, 3, 2, 1], [4, 2, 3, 1], [2, 3, 4, 4], [4, 4, 4, 4]]) / 4
    np.testing.assert_allclose(found[PRODUCT], -np.log(p).sum(axis=0))
    np.testing.assert_allclose(found[MIN_P], (-np.log(p)).max(axis=0))


def test_the_random_score_is_that_of_the_event_and_the_seed() -> None:
    scores = two_signals()

    def random(scores: Scores, seed: int = 0) -> npt.NDArray[np.float64]:
        known = (scores.observables, scores.label == 0, scores.weight, scores.event_key)
        return dict(untrained_scores(*known, seed=seed))[RANDOM]

    found = random(scores)
    order = np.random.default_rng(3).permutation(len(scores))
    np.testing.assert_array_equal(random(scores[order]), found[order])
    np.testing.assert_array_equal(random(scores[order[:100]]), found[order[:100]])
    other_file = replace(scores, file_names=Names.constant("other.csv", len(scores)))
    for other in (random(scores, seed=1), random(other_file)):
        assert abs(np.corrcoef(found, other)[0, 1]) < 0.1
    assert kstest(found, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.1  # neighbours in the file
    first, second = (evaluate({"detector": each}, n_replicas=20) for each in (scores, scores[order]))
    assert first.rows_of()[-1].metrics.auc.value == pytest.approx(second.rows_of()[-1].metrics.auc.value)


def test_untrained_scores_tell_gluinos_from_background() -> None:
    """Four observables reach an AUC of 0.997 on simulated gluinos: above the published detectors."""
    events = load_sample("gluino")
    found = evaluate({"nothing": Scores.of(events, events.weight * 0 + events.row % 7)}, n_replicas=20)
    fisher = next(row.metrics for row in found.rows if row.name == PRODUCT)
    assert fisher.auc.value == pytest.approx(0.997, abs=0.001)
    assert fisher.signal_efficiency[0.01].value == pytest.approx(0.94, abs=0.02)  # type: ignore[union-attr]


def test_thresholds_on_momenta_have_their_unit() -> None:
    label = np.repeat([0, 1], 500).astype(np.int8)
    scores = toy_scores(np.random.default_rng(1).normal(label), label, observables=toy_observables(label))
    evaluation = evaluate({"a": scores}, n_replicas=20)
    shown = {row.name: str(row.cells()["threshold of largest ε_S - ε_B"]) for row in evaluation.rows_of()}
    (ht,) = (row.metrics.best_threshold for row in evaluation.rows_of() if row.name == "HT")
    assert ht is not None
    assert shown["HT"].startswith(f"{ht.threshold.value / 1e3:.0f} GeV [")
    assert "GeV" not in shown["a"] + shown["random"]


def test_without_the_columns_it_says_that_untrained_scores_are_missing() -> None:
    found = evaluate({"detector": replace(two_signals(), observables={})}, n_replicas=20)
    assert {row.name for row in found.rows} == {"detector"}
    assert found.notes[0].startswith("no untrained scores: no scores file has the column n_objects or ")
    both = evaluate({"from elsewhere": replace(two_signals(), observables={}), "whole": two_signals()}, n_replicas=20)
    assert {row.name for row in both.rows} == {"from elsewhere", "whole", *UNTRAINED}


def test_a_missing_column_leaves_the_other_untrained_scores() -> None:
    scores = two_signals()
    less = replace(
        scores, observables={name: column for name, column in scores.observables.items() if name != "n_b_jets"}
    )
    found = evaluate({"one": less, "two": less}, n_replicas=20)
    assert [row.name for row in found.rows_of()] == ["one", "two", *(n for n in UNTRAINED if n != "number of b-jets")]
    (note,) = [note for note in found.notes if "b-jets" in note]
    assert note == "no number of b-jets among untrained scores: no scores file has the column n_b_jets"
    whole = evaluate({"one": less, "two": scores}, n_replicas=20)
    assert whole.rows == evaluate({"one": scores, "two": scores}, n_replicas=20).rows


def test_a_process_may_be_called_all() -> None:
    scores = two_signals()
    words = np.where(scores.process_names.array() == "clear", "all", scores.process_names.array())
    found = evaluate({"detector": replace(scores, process_names=Names.of(words))}, n_replicas=20)
    plain = evaluate({"detector": scores}, n_replicas=20)
    assert found.selections == ("all signal", "all", "faint")
    assert found.rows_of()[0] == plain.rows_of()[0]
    assert found.rows_of("all")[0].metrics == plain.rows_of("clear")[0].metrics


def test_untrained_scores_are_finite_whatever_the_sign_of_the_weights() -> None:
    """Where negative weights prevail in the tail, the fraction of background there is less than nothing."""
    scores = two_signals()
    tail = scores.observables["ht_mev"] > np.quantile(scores.observables["ht_mev"], 0.9)
    found = evaluate({"detector": replace(scores, weight=np.where(tail, -0.5, 1.0))}, n_replicas=20)
    assert all(0 <= row.metrics.auc.value <= 1 for row in found.rows if row.name in (PRODUCT, MIN_P))


def test_what_must_be_known_is_noted() -> None:
    scores = two_signals(shift=3)
    constant = replace(scores, score=np.full(len(scores), 2.5))
    assert "constant score: flat gives all events the score 2.5" in evaluate({"flat": constant}, n_replicas=20).notes
    seen = replace(scores, was_trained_on=np.arange(len(scores)) < 40)
    (note,) = evaluate({"cheat": seen}, n_replicas=20).notes
    assert note == "cheat was trained on 40 of these 3,000 events: its numbers are too good"
    few = scores[np.flatnonzero((scores.label == 0) | (np.arange(3000) < 8))]
    assert evaluate({"detector": few}, n_replicas=20).notes[:2] == (
        "only 2 events of clear: their intervals and p-values cannot be trusted",
        "only 2 events of faint: their intervals and p-values cannot be trusted",
    )
    negative = replace(scores, weight=np.where(np.arange(3000) % 8 < 2, -0.5, 1.0))
    found = evaluate({"detector": negative}, n_replicas=20)
    (note,) = found.notes
    assert note == ("weighted events count as fewer of equal weight: 1,500 of background as 721, 750 of clear as 75")
    process = scores.process_names.array()
    gone = replace(scores, weight=np.where(process == "faint", -0.5, 1.0))
    found = evaluate({"detector": gone}, n_replicas=20)
    assert "no metrics of faint: its weights do not add up to a positive number" in found.notes
    assert found.selections == ("all signal", "clear")


def _label(scores: Scores, **changes: npt.NDArray[np.generic]) -> dict[str, Scores]:
    return {"detector": replace(scores, **changes)}  # type: ignore[arg-type]


def test_what_cannot_be_evaluated_is_an_error() -> None:
    scores = two_signals(200)
    unknown = np.where(np.arange(200) < 3, -1, scores.label).astype(np.int8)
    for bad, error, message in (
        ({}, UsageError, "no scores"),
        (_label(scores, label=unknown), BadDataError, "detector: 3 of 200 events have no label"),
        (_label(scores, score=np.where(np.arange(200) == 7, np.nan, scores.score)), BadDataError, "1 of 200 scores"),
        (_label(scores, label=np.ones(200, np.int8)), UsageError, "all events are of one class"),
        (_label(scores, weight=np.where(np.arange(200) == 7, np.nan, 1.0)), BadDataError, "detector: 1 of 200 weights"),
        (_label(scores, weight=np.zeros(200)), BadDataError, "detector: the weights of the signal events do not add"),
        (
            {"detector": replace(scores, process_names=Names.constant("all signal", 200))},
            UsageError,
            "detector: a process is called 'all signal'",
        ),
        ({"detector": scores[np.arange(0)]}, BadDataError, "holds no events"),
        ({"a": scores, "b": two_signals(202)}, BadDataError, "b and a hold scores of different events"),
        ({"HT": scores}, UsageError, "'HT' is the name of an untrained score"),
    ):
        with pytest.raises(error, match=message):
            evaluate(bad, n_replicas=10)


def test_it_can_be_written_as_json() -> None:
    found = evaluate({"detector": two_signals()}, n_replicas=20)
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    row = content["rows"][0]
    assert row["metrics"]["auc"] == vars(found.rows[0].metrics.auc)
    assert set(row["metrics"]["signal_efficiency"]) == {"0.01", "0.001", "0.0001"}
    assert row["metrics"]["signal_efficiency"]["0.0001"] is None


def test_one_table_in_four_renderings() -> None:
    found = evaluate({"lut_456 & co": two_signals()}, n_replicas=20)
    metrics = found.rows[0].metrics
    table = found.table(found.main)
    assert table.columns == ("AUC", "ε_S at ε_B = 1%", "1/ε_B at ε_S = 50%", "1/ε_B at ε_S = 30%")
    # a good score has too little background above: a limit
    assert metrics.background_rejection[0.3] is None
    signal, limit = metrics.signal_efficiency[0.01], f"> {metrics.background_rejection_limit[0.3]:.2g}"
    rejection = metrics.background_rejection[0.5]
    assert table.rows[0].cells == (metrics.auc, signal, rejection, limit)
    published = found.table((AUC, eps_s(0.01), EPS_B)).rows[0].cells
    assert published == (metrics.auc, signal, f"< {metrics.background_efficiency_limit:.2g}")
    header, _, first, *others = table.markdown().splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["detector", *table.columns]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == ["lut_456 & co", str(metrics.auc), str(signal), str(rejection), limit]
    assert len(others) == len(UNTRAINED)
    lines = table.latex().splitlines()
    assert lines[1] == r"\multicolumn{5}{l}{all signal against background (95\% CL)} \\"
    rejections = r"1/$\epsilon_B$ at $\epsilon_S$ = 50\% & 1/$\epsilon_B$ at $\epsilon_S$ = 30\%"
    assert rf"detector & AUC & $\epsilon_S$ at $\epsilon_B$ = 1\% & {rejections} \\" in lines
    value, interval = metrics.auc.texts()
    assert any(line.startswith(rf"lut\_456 \& co & ${value}\;{interval}$ & $") for line in lines)
    assert f'<td>{value}<span class="interval">{interval}</span></td>' in table.html()
    assert '<th scope="col">ε<sub>S</sub> at ε<sub>B</sub> = 1%</th>' in table.html()
    terminal = str(found).splitlines()
    assert max(map(len, terminal)) <= 80
    assert terminal[0] == "all signal against background (95% CL)"
    assert terminal[1].split(maxsplit=2) == ["detector", "AUC", "ε_S at ε_B = 1%"]
    assert re.fullmatch(rf"lut_456 & co +{re.escape(str(metrics.auc))} +{re.escape(str(signal))}", terminal[3])
    assert terminal[4].startswith("── untrained ──")


def test_long_names_leave_the_terminal_80_columns() -> None:
    table = evaluate({"a detector " * 9: two_signals()}, n_replicas=20).table((AUC, eps_s(0.01)))
    lines = table.terminal().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("a detector a detector")
    assert "…  0.9" in lines[3]


def test_all_tables_of_an_evaluation() -> None:
    found = evaluate({"good": two_signals(), "bad": two_signals(shift=0.3)}, n_replicas=20)
    text = result_files(found)["table.md"]
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[:4] == [
        "## all signal against background (95% CL)",
        "## clear against background (95% CL)",
        "## faint against background (95% CL)",
        f"## Verdict: ΔAUC to the best untrained score ({PRODUCT})",
    ]
    assert titles[-2:] == [
        "## Total improvement over the signals",
        "## Paired differences of detectors, all signal (95% CL)",
    ]
    (pair,) = found.tables()[-1].rows
    assert pair.name == "good"
    assert pair.cells == ("bad", found.comparisons[0].difference, "< 1e-16")


def test_names_from_files_do_not_break_tables() -> None:
    scores = two_signals()
    words = np.where(scores.process_names.array() == "clear", "a_1 & <b>|$x^2$\\", scores.process_names.array())
    found = evaluate({"one|two": replace(scores, process_names=Names.of(words))}, n_replicas=20)
    files = result_files(found)
    lines = files["table.md"].splitlines()
    assert r"## a_1 & &lt;b>\|$x^2$\ against background (95% CL)" in lines
    bars = [line.replace(r"\|", "").count("|") for line in lines if line.startswith("| one")]
    assert bars[:3] == [6, 6, 6]
    assert "a_1 &amp; &lt;b&gt;" not in found.tables()[1].html()  # titles are not part of the element
    assert (
        r"{a\_1 \& \textless{}b\textgreater{}|\$x\textasciicircum{}2\$\textbackslash{} against background (95\% CL)}"
        in files["table.tex"]
    )
    assert files["table.tex"].count("\none|two & $") >= 3  # against each signal, and all of them


@pytest.mark.parametrize(
    ("n", "points"), [(40_000, (0.01, 0.001)), (3000, (0.01,)), (1200, (0.02,)), (300, (0.1,)), (24, (0.01,))]
)
def test_tables_have_the_tightest_working_points_that_the_background_supports(
    n: int, points: tuple[float, ...]
) -> None:
    found = evaluate({"detector": two_signals(n)}, n_replicas=20)
    assert found.working_points == points
    columns = found.table().columns
    assert [name for name in columns if name.startswith("ε_S at")] == [eps_s(at) for at in points]
    assert found.short == (AUC, eps_s(points[0]))
    assert {*REJECTIONS} <= {*columns}
    assert EPS_B not in columns
    cells = dict(zip(columns, found.table().rows[0].cells, strict=True))
    estimate = found.rows[0].metrics.signal_efficiency[points[0]]
    if n == 24:
        assert cells[eps_s(0.01)] == "too few events"
        return
    assert cells[eps_s(points[0])] == estimate
    sic, most = cells[f"ε_S/√ε_B at ε_B = {100 * points[0]:g}%"], found.rows[0].metrics.max_significance_improvement
    assert sic.value == pytest.approx(estimate.value / points[0] ** 0.5)  # type: ignore[union-attr]
    assert "too few" not in " ".join(str(row.cells[: len(found.main)]) for row in found.table().rows)
    assert str(cells["largest ε_S/√ε_B"]).endswith(f"] at ε_B = {100 * most.background_efficiency:.2g}%")  # type: ignore[union-attr]


def test_leaderboard_rows() -> None:
    found = evaluate({"one": two_signals(), "two": two_signals(shift=0.5)}, n_replicas=20)
    header, *rows = csv.reader(leaderboard(found, "2b").splitlines())
    assert ",".join(header) == "Signal,Model,Chan,AUC,1e-2,1e-3,1e-4"
    assert [row[:3] for row in rows] == [[s, d, "2b"] for s in ("clear", "faint") for d in ("one", "two")]
    first = next(row.metrics for row in found.rows if (row.signal, row.name) == ("clear", "one"))
    assert float(rows[0][3]) == pytest.approx(first.auc.value, abs=1e-6)
    assert float(rows[0][4]) == pytest.approx(first.signal_efficiency[0.01].value, abs=1e-6)  # type: ignore[union-attr]
    assert rows[0][5:] == ["", ""]  # 1500 background events do not support 1e-3
    single = two_signals()[two_signals().process_names.array() != "faint"]
    assert leaderboard(evaluate({"one": single}, n_replicas=20), "1").splitlines()[1].startswith("clear,one,1,0.9")


def test_it_is_fast_enough() -> None:
    """40,000 events and three detectors beside eight untrained scores, against two signals: 30 sets of metrics."""
    scores = two_signals(40_000)
    begin = time.process_time()
    evaluate(dict.fromkeys("abc", scores))
    assert time.process_time() - begin < 10
