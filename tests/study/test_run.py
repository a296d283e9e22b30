"""A whole study on files of one's own, through the Python interface."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unmask
from unmask import EventSet, load_sample, read_events, write_events
from unmask.detectors import Detector, load_detector
from unmask.errors import BadDataError, UsageError
from unmask.evaluation import evaluate as evaluation
from unmask.evaluation.metrics import Metrics
from unmask.evaluation.metrics import measure as measure_all
from unmask.evaluation.roc import RankedScores
from unmask.events.fingerprints import fingerprints
from unmask.events.splits import SPLITS
from unmask.report import runs
from unmask.report.style import Style
from unmask.scores.calibration import Calibration
from unmask.scores.explanations import read_explanations
from unmask.scores.flagged import FLAGGED_TABLE
from unmask.scores.score_table import read_scores
from unmask.study import run as runner
from unmask.study.data import StudyFiles, write_background, write_signal
from unmask.study.published import DEFAULT, choose_detectors, load_study
from unmask.study.results import SUMMARY
from unmask.study.run import StudyRun
from unmask.study.stages import Stage, StudyReporter, plan
from unmask.tables import open_table
from unmask.workflow import sources
from unmask.workflow.sources import Sources

TINY = {"hidden": 16, "n_layers": 1, "n_heads": 2, "tokenizer": {"n_bins": 2}, "training": {"max_epochs": 2}}


@dataclass
class Listener(StudyReporter):
    """Remembers what was done and said."""

    done: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def stage_started(self, stage: Stage) -> None:
        self.done.append(stage.name)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files without labels: background, two signals whose processes have the same name, a third, and data."""
    folder = tmp_path_factory.mktemp("files")
    gluino, four_top = load_sample("gluino"), load_sample("four-top")
    background = gluino[gluino.label == 0]
    background = background[np.random.default_rng(1).permutation(len(background))[:4000]].with_label(-1)
    signals = gluino[gluino.label == 1].with_label(-1)
    write_events(folder / "background.parquet", background[:3000])
    n = len(background) - 3000
    numbers = {"run": np.full(n, 315257), "luminosity_block": np.arange(n)}
    write_events(folder / "data.parquet", replace(background[3000:], weight=np.ones(n), further=numbers))
    write_events(folder / "light.parquet", signals[:300])
    write_events(folder / "heavy.parquet", signals[300:600])
    write_events(folder / "tops.parquet", four_top[four_top.label == 1][:300].with_label(-1))
    return folder


def study_files(
    background: Sequence[Path],
    signal: Sequence[Path] = (),
    data: Sequence[Path] = (),
    signal_processes: Sequence[str] = (),
) -> StudyFiles:
    return StudyFiles(Sources(background, signal_process=signal_processes), Sources(signal), Sources(data))


def new_run(
    out: Path,
    files: StudyFiles,
    *,
    only: Sequence[str] = ("masked-token",),
    changes: dict[str, object] = TINY,
    seed: int = 1,
    style: Style = "plain",
) -> tuple[StudyRun, Listener]:
    study, listener = load_study(DEFAULT), Listener()
    chosen = choose_detectors(study, only, changes, seed=seed, device="cpu")
    return StudyRun(out, study, chosen, files, seed, "cpu", listener, style), listener


@pytest.fixture(scope="module")
def many_signals(files: Path) -> StudyFiles:
    return study_files(
        background=(files / "background.parquet",),
        signal=(files / "light.parquet", files / "heavy.parquet"),
        data=(files / "data.parquet",),
    )


@pytest.fixture(scope="module")
def out(many_signals: StudyFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("studies") / "mine"
    run, listener = new_run(out, many_signals)
    run.run()
    assert listener.done == [stage.name for stage in run.stages]
    return out


def times(out: Path) -> dict[str, int]:
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "study.json"]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_scores_are_of_test_events_that_were_not_trained_on(out: Path, files: Path) -> None:
    scores = read_scores(out / "scores" / "masked-token.parquet")
    background = read_events(out / "events" / "test.parquet")
    assert len(scores) == len(background) + 600
    assert scores.was_trained_on is not None
    assert not scores.was_trained_on.any()
    splits = [read_events(out / "events" / f"{name}.parquet") for name in ("train", "validation", "test")]
    assert [len(split) for split in splits] == [pytest.approx(3000 * share, abs=12) for share in (0.8, 0.1, 0.1)]
    assert sum(map(len, splits)) == 3000
    assert all((split.label == 0).all() for split in splits)


def test_one_model_stands_against_each_signal(out: Path) -> None:
    metrics = json.loads((out / "results" / "metrics.json").read_text())
    assert metrics["signals"] == {"light": 300, "heavy": 300}  # both files say gluino_1000_1: told apart by file
    assert {row["signal"] for row in metrics["rows"] if row["name"] == "masked-token"} == {
        "all signal",
        "light",
        "heavy",
    }
    summary = (out / "results" / "summary.md").read_text()
    assert "One background model against each signal" in summary
    assert re.search(r"\| masked-token +\| light +\| 300 ", summary)
    assert "observables, product" in summary
    latex = (out / "results" / "summary.tex").read_text()
    assert r"masked-token & $0." in latex
    for title in ("Test results", "One background model", "Verdict", "Cost of the trainings"):
        assert rf"{{l}}{{{title}" in latex
    shown = (out / "results" / SUMMARY).read_text().splitlines()
    assert shown[0] == "Test results, 95% CL"
    assert "Verdict: ΔAUC to the best untrained score (observables, product)" in shown
    assert max(map(len, shown)) <= 80


def test_the_tables_say_what_the_training_cost(out: Path) -> None:
    costs = (out / "results" / "summary.md").read_text().split("## Cost of the trainings")[1]
    (model,) = (path for path in (out / "models").iterdir() if path.suffix != ".run")
    (line,) = [line for line in costs.splitlines() if line.startswith(f"| {model.name} ")]
    parameters, epochs, seconds = (int(cell.replace(",", "")) for cell in line.strip("| ").split("|")[1:])
    detector = load_detector(model)
    assert (parameters, epochs) == (detector.n_parameters, 2)
    assert seconds == pytest.approx(sum(record.seconds for record in detector.history_), abs=0.51)


def test_curves_are_those_of_the_model_whatever_was_logged(out: Path, many_signals: StudyFiles, tmp_path: Path) -> None:
    out = shutil.copytree(out, tmp_path / out.name)
    run, _ = new_run(out, many_signals)
    (figures,) = (stage for stage in run.stages if stage.name == "figures masked-token")
    drawn, log = out / "figures" / "masked-token" / "training.svg", out / "models" / "masked-token.run" / "log.jsonl"
    before = drawn.read_text()
    log.write_text(log.read_text().splitlines()[0] + "\n")
    figures.make()
    assert drawn.read_text() == before
    log.unlink()
    figures.make()
    assert drawn.read_text() == before


def test_everything_is_there_to_be_looked_at(out: Path) -> None:
    figures = {path.name for path in (out / "figures" / "masked-token").iterdir()}
    assert {f"{name}.pdf" for name in ("training", "token-occurrence", "type-losses", "code-usage")} <= figures
    assert {"roc.png", "significance-improvement.svg"} <= {
        path.name for path in (out / "results" / "figures").iterdir()
    }
    report = (out / "report.html").read_text()
    explained = read_explanations(out / "scores" / "masked-token.explained.json")
    assert len(explained.events) == 50
    assert all(str(event.event_id) in report for event in explained.events)
    assert "masked-token: token occurrence" in report
    assert "One background model against each signal" in report
    assert 'id="study-1-training"' in report
    assert '<th scope="row">settings training seed</th><td>1</td>' in report
    assert '<th scope="row">tokenizer settings n_bins' in report


def test_data_are_searched_with_a_threshold_from_validation_events(out: Path) -> None:
    calibration = Calibration.load(out / "calibrations" / "masked-token")
    assert calibration.target == 0.1  # 300 validation events are too few for 1 %
    data = read_scores(out / "scores" / "masked-token-data.parquet")
    assert (data.label == -1).all()
    with open_table(out / "flagged" / "masked-token.parquet", FLAGGED_TABLE) as (table, _):
        flagged = table.read()
    assert len(flagged) == np.count_nonzero(data.score >= calibration.threshold) > 0
    assert max(flagged["p_value"].to_pylist()) <= 0.1
    assert all(flagged["reason"].to_pylist())
    listed = (out / "flagged" / "masked-token.run-lumi-event.txt").read_text().splitlines()
    blocks, ids = (flagged[name].to_pylist() for name in ("luminosity_block", "event_id"))
    assert listed == [f"315257:{block}:{one}" for block, one in zip(blocks, ids, strict=True)]
    assert "masked-token-data" in (out / "report.html").read_text()


def test_the_report_begins_with_the_search_of_data(out: Path) -> None:
    result = json.loads((out / "search" / "masked-token" / "search.json").read_text())
    observed = [region["observed"] for region in result["regions"]]
    assert sum(observed) == len(read_scores(out / "scores" / "masked-token-data.parquet"))
    assert set(result["limits"]) == {"light", "heavy"}
    report = (out / "report.html").read_text()
    assert report.index(result["summary"]) < report.index('id="summary"')


def test_files_are_read_once_and_events_scored_once_per_detector(
    files: Path, tmp_path: Path, fisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(module: object, name: str, label: Callable[..., str]) -> None:
        original = getattr(module, name)

        def wrapper(*args: Any, **options: Any) -> Any:
            calls.append(label(*args, **options))
            return original(*args, **options)

        monkeypatch.setattr(module, name, wrapper)

    for module, names in ((sources, ["stream_events"]), (runner, ["read_events", "stream_events", "read_scores"])):
        for name in names:
            counted(module, name, lambda path, **_: f"read {path.parent.name}/{path.name}")
    counted(runs, "read_scores", lambda path: f"read {path.parent.name}/{path.name}")
    counted(runner, "evaluate", lambda _: "evaluate")
    counted(Detector, "scores", lambda self, events, **_: f"score {len(events)}")
    network = tmp_path / "network.toml"
    network.write_text('[detector]\nkind = "contrast"\nsize = "tiny"\ntraining.max_epochs = 1\n')
    inputs = study_files((files / "background.parquet",), (files / "light.parquet",), (files / "data.parquet",))
    run, _ = new_run(tmp_path / "out", inputs, only=[fisher, str(network)], changes={})
    planned = plan(run.stages, run.ledger)
    run.run()

    n_events = {name: len(read_events(tmp_path / "out" / "events" / f"{name}.parquet")) for name in SPLITS}
    once = [f"read {files.name}/{name}.parquet" for name in ("background", "light", "data")]
    once += [f"read events/{name}.parquet" for name in ("train", "validation", "test", "signal")]
    for name in ("fisher", "network"):
        once += [f"read scores/{name}.parquet", f"read scores/{name}-data.parquet"]
        once += [f"read validation-scores/{name}.parquet"]
    scored = [f"score {n}" for n in (n_events["validation"], n_events["test"], 300, 1000)]
    # Data may be too many for the memory: each detector streams them from the study's own file.
    expected = Counter([*once, *2 * ["read events/data.parquet"], *2 * scored, "evaluate"])
    del (counts := Counter(calls))["score 1"]  # a model tries one event when it is loaded
    assert counts == expected
    # The plan names the same.
    assert [path.name for stage, _ in planned for path in stage.reads] == [f"{name}.parquet" for name in
        ("background", "light", "data")]  # fmt: skip
    assert sum(len(stage.scores) for stage, _ in planned) == len(2 * scored)


def test_a_second_call_does_nothing(out: Path, many_signals: StudyFiles) -> None:
    before = times(out)
    run, listener = new_run(out, many_signals)
    assert run.run() == []
    assert listener.done == []
    assert times(out) == before


def test_only_what_is_missing_or_changed_is_done_again(
    out: Path, many_signals: StudyFiles, files: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(out, tmp_path / out.name)

    def to_do(run: StudyRun) -> list[str]:
        return [stage.name for stage, why in plan(run.stages, run.ledger) if why]

    assert to_do(new_run(out, many_signals)[0]) == []
    (out / "scores" / "masked-token.parquet").unlink()
    assert to_do(new_run(out, many_signals)[0]) == [
        "scores masked-token",
        "statistics masked-token",
        "results",
        "report",
    ]
    # Another signal: nothing is trained again.
    more = replace(many_signals, signal=Sources([*many_signals.signal.files, files / "tops.parquet"]))
    of_signal = [
        "signal",
        "scores masked-token",
        "statistics masked-token",
        "figures masked-token",
        "results",
        "report",
    ]
    assert to_do(new_run(out, more)[0]) == of_signal
    # Another setting of the detector: the tokenizer stays.
    run, listener = new_run(out, more, changes=TINY | {"dropout": 0.1})
    run.run()
    names = ("detector", "scores", "calibration", "search", "statistics", "figures")
    assert listener.done == ["signal", *(f"{name} masked-token" for name in names), "results", "report"]
    assert set(json.loads((out / "results" / "metrics.json").read_text())["signals"]) == {"light", "heavy", "tttt"}
    assert to_do(run) == []


def test_a_changed_style_draws_again_and_does_no_more(out: Path, many_signals: StudyFiles, tmp_path: Path) -> None:
    out = shutil.copytree(out, tmp_path / out.name)
    drawn = [out / "figures" / "masked-token" / f"{name}.svg" for name in ("training", "type-losses", "code-usage")]
    before = [path.read_text() for path in drawn]
    run, _ = new_run(out, many_signals, style="atlas")
    again = [stage for stage, why in plan(run.stages, run.ledger) if why]
    assert [stage.name for stage in again] == ["statistics masked-token", "figures masked-token", "results", "report"]
    again[1].make()
    # The styles of the experiments have text as outlines, the plain one as text.
    assert all("<text" in svg for svg in before)
    assert not any("<text" in path.read_text() for path in drawn)


def test_tables_and_report_are_of_one_evaluation(
    out: Path, many_signals: StudyFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(out, tmp_path / out.name)
    measured: list[Metrics] = []

    def measure(ranked: RankedScores, **_: float) -> Metrics:
        measured.append(measure_all(ranked, n_replicas=20))
        return measured[-1]

    monkeypatch.setattr(evaluation, "measure", measure)
    for stage in new_run(out, many_signals)[0].stages[-2:]:
        stage.make()
    assert len(measured) == len(json.loads((out / "results" / "metrics.json").read_text())["rows"])


def test_what_another_version_made_is_made_again(
    out: Path, many_signals: StudyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_do() -> list[str]:
        run = new_run(out, many_signals)[0]
        return [stage.name for stage, why in plan(run.stages, run.ledger) if why]

    monkeypatch.setattr(unmask, "__version__", "99.0")
    assert to_do() == [
        "statistics masked-token",
        "figures masked-token",
        "results",
        "report",
    ]  # nothing is trained again for a new package
    monkeypatch.undo()
    monkeypatch.setitem(runner.VERSIONS, "calibration", 4)
    stages = ["calibration masked-token", "search masked-token", "statistics masked-token", "results", "report"]
    assert to_do() == stages
    monkeypatch.setitem(runner.VERSIONS, "detector ddd", 2)
    stages = ["calibration masked-token", "search masked-token", "statistics masked-token", "results", "report"]
    assert to_do() == stages
    monkeypatch.setitem(runner.VERSIONS, "detector masked-token", 2)
    assert to_do()[:2] == ["detector masked-token", "scores masked-token"]


@pytest.fixture
def fisher(tmp_path: Path) -> str:
    """A configuration that needs no training to speak of."""
    toml = tmp_path / "fisher.toml"
    toml.write_text('[detector]\nkind = "untrained"\n')
    return str(toml)


@pytest.mark.parametrize("of", ["background", "signal"])
def test_with_negative_weights_what_can_be_measured_is_measured(
    files: Path, tmp_path: Path, fisher: str, of: str
) -> None:
    for name in ("background", "light"):
        events = read_events(files / f"{name}.parquet")
        is_negative = (np.arange(len(events)) % 10 == 0) & (name != "light" or of == "signal")
        write_events(tmp_path / f"{name}.parquet", replace(events, weight=np.where(is_negative, -1.0, 1.0)))
    inputs = study_files(
        (tmp_path / "background.parquet",), (tmp_path / "light.parquet",), data=(files / "data.parquet",)
    )
    run, listener = new_run(tmp_path / "out", inputs, only=[fisher], changes={})
    run.run()
    assert any("events have negative weights" in note for note in listener.notes)
    metrics = json.loads((tmp_path / "out" / "results" / "metrics.json").read_text())
    row = next(row for row in metrics["rows"] if row["name"] == "fisher")
    assert row["metrics"]["auc"]["value"] > 0.7
    assert row["metrics"]["overlap_area"]["value"] > 0
    assert (tmp_path / "out" / "results" / "figures" / "roc.svg").exists()
    assert 0 < Calibration.load(tmp_path / "out" / "calibrations" / "fisher").measured.value <= 0.1
    assert (tmp_path / "out" / "flagged" / "fisher.parquet").exists()


def test_weights_that_leave_nothing_are_an_error_before_anything_is_trained(files: Path, tmp_path: Path) -> None:
    background, light = (read_events(files / f"{name}.parquet") for name in ("background", "light"))
    write_events(tmp_path / "nothing.parquet", replace(background, weight=-background.weight))
    run, _ = new_run(tmp_path / "a", study_files((tmp_path / "nothing.parquet",)))
    with pytest.raises(BadDataError, match="weights of the train background events do not add up to a positive number"):
        run.run()
    write_events(
        tmp_path / "few.parquet", replace(background, weight=np.where(np.arange(3000) % 5 < 2, -1.0, 1.0))
    )  # 2 in 5 against 3 in 5: 300 events say as much as 12
    run, _ = new_run(tmp_path / "c", study_files((tmp_path / "few.parquet",)))
    with pytest.raises(BadDataError, match=r"validation events count as \d+\.\d of equal weight, and 110 are needed"):
        run.run()
    write_events(tmp_path / "less.parquet", replace(light, weight=-light.weight))
    run, _ = new_run(tmp_path / "b", study_files((files / "background.parquet",), (tmp_path / "less.parquet",)))
    with pytest.raises(BadDataError, match="weights of the gluino_1000_1 events do not add up"):
        run.run()
    assert not [*tmp_path.glob("*/models")]


def test_repeated_events_end_no_study(files: Path, tmp_path: Path, fisher: str) -> None:
    """Each event counts once; equal ones never stand in two splits; where they are kept, they stay together."""
    background, light, heavy, data = (
        read_events(files / f"{name}.parquet") for name in ("background", "light", "heavy", "data")
    )
    repeated = {
        "background": EventSet.concatenate([background, background[::7]]),
        "both": EventSet.concatenate([heavy, light[:40], heavy[:20]]),
        "data": EventSet.concatenate([data, data[:5]]),
    }
    paths = {name: tmp_path / f"{name}.parquet" for name in repeated}
    for name, events in repeated.items():
        write_events(paths[name], events)
    inputs = study_files((paths["background"],), (files / "light.parquet", paths["both"]), (paths["data"],))
    run, listener = new_run(tmp_path / "out", inputs, only=[fisher], changes={})
    run.run()
    told = " repeat earlier ones, object by object: left out (--keep-duplicates keeps them)"
    assert [note.removesuffix(told) for note in listener.notes if note.endswith(told)] == [
        "429 of 3,429 events",
        f"{paths['both']}: 60 of 360 events",
        "5 of 1,005 events",
    ]
    n_events = [len(read_events(tmp_path / "out" / "events" / f"{name}.parquet")) for name in ("signal", "data")]
    assert n_events == [600, 1000]
    assert json.loads((tmp_path / "out" / "results" / "metrics.json").read_text())["signals"] == {
        "light": 300,
        "both": 300,
    }
    scores = read_scores(tmp_path / "out" / "scores" / "fisher.parquet")
    assert not scores.n_trained_on
    write_background(replace(inputs, keep_duplicates=True), tmp_path, [], 1, listener)
    splits = [read_events(tmp_path / f"{name}.parquet") for name in SPLITS]
    assert sum(map(len, splits)) == 3429
    assert sum(len(np.unique(fingerprints(split))) for split in splits) == 3000
    assert "they stay in the split of the first" in listener.notes[-2]


def test_training_events_among_the_signal_are_left_out(files: Path, tmp_path: Path) -> None:
    train, light = read_events(files / "background.parquet"), read_events(files / "light.parquet")
    write_events(tmp_path / "mixed.parquet", EventSet.concatenate([light, train[:2]]))
    listener = Listener()
    inputs = study_files((), (tmp_path / "mixed.parquet",))
    write_signal(inputs, tmp_path / "signal.parquet", [], train, listener)
    assert f"{tmp_path / 'mixed.parquet'}: 2 training events among the signal are left out" in listener.notes
    assert len(read_events(tmp_path / "signal.parquet")) == 300


def test_by_default_ours_is_compared_with_the_published_method() -> None:
    chosen = choose_detectors(load_study(DEFAULT))
    assert {name: settings.detector["kind"] for name, settings in chosen.items()} == {
        "default": "contrast",
        "masked-token": "masked-token",
    }


def test_without_signal_there_are_scores_thresholds_and_a_report(files: Path, tmp_path: Path, fisher: str) -> None:
    run, listener = new_run(tmp_path / "out", study_files((files / "background.parquet",)), only=[fisher], changes={})
    run.run()
    assert listener.done == [
        "background",
        "detector fisher",
        "scores fisher",
        "calibration fisher",
        "figures fisher",
        "report",
    ]
    assert not (tmp_path / "out" / "results").exists()
    assert "Scores of fisher" in (tmp_path / "out" / "report.html").read_text()
    assert any("does not explain its scores" in note for note in listener.notes)


def test_data_unlike_the_training_background_are_noted(files: Path, tmp_path: Path, fisher: str) -> None:
    sources = study_files((files / "background.parquet",), data=(files / "tops.parquet",))
    run, listener = new_run(tmp_path / "out", sources, only=[fisher], changes={})
    run.run()
    assert [note for note in listener.notes if note.startswith("fisher: warning: these events do not look like")]


def test_signal_among_the_files_of_a_study_and_beside_them(files: Path, tmp_path: Path) -> None:
    sample = load_sample("gluino")[:8000]
    write_events(tmp_path / "mixed.parquet", sample.with_label(-1))
    mixed = study_files((tmp_path / "mixed.parquet",), (files / "tops.parquet",), signal_processes=["gluino_1000_1"])
    among = [tmp_path / "among.parquet"]
    write_background(mixed, tmp_path, among, 1, Listener())
    train = read_events(tmp_path / "train.parquet")
    write_signal(mixed, tmp_path / "signal.parquet", among, train, Listener())
    signal = read_events(tmp_path / "signal.parquet")
    n_gluino = int((sample.label == 1).sum())
    assert signal.process_names.counts() == {"gluino_1000_1": n_gluino, "tttt": 300}
    assert (signal.label == 1).all()
    background = read_events([tmp_path / f"{name}.parquet" for name in ("train", "validation", "test")])
    assert len(background) == len(sample) - n_gluino
    assert "gluino_1000_1" not in background.process_names.counts()


def test_files_that_contradict_each_other_are_refused(files: Path, tmp_path: Path) -> None:
    background, light = files / "background.parquet", files / "light.parquet"
    with pytest.raises(UsageError, match=r"background\.parquet is given twice"):
        study_files((background,), (background,)).check()
    with pytest.raises(BadDataError, match=r"none\.csv: no such file"):
        study_files((background,), (files / "none.csv",)).check()
    labeled = tmp_path / "labeled.parquet"
    write_events(labeled, read_events(light).with_label(1))
    with pytest.raises(UsageError, match="given as background, but 300 of 300 events are labeled signal"):
        new_run(tmp_path / "a", study_files((background, labeled)))[0].run()
    write_events(labeled, read_events(light).with_label(0))
    with pytest.raises(UsageError, match="given as signal, but 300 of 300 events are labeled background"):
        new_run(tmp_path / "b", study_files((background,), (labeled,)))[0].run()
    # The same events under another name.
    write_events(labeled, read_events(background).with_label(-1))
    with pytest.raises(BadDataError, match="signal events are among the training events too"):
        new_run(tmp_path / "c", study_files((background,), (labeled,)))[0].run()
    with pytest.raises(BadDataError, match="300 background events are too few"):
        new_run(tmp_path / "d", study_files((light,)))[0].run()
    for name in "abcd":
        assert not list((tmp_path / name).rglob("train.parquet")) or name in "bc"
        assert not (tmp_path / name / "report.html").exists()


def test_a_folder_of_something_else_is_left_alone(
    files: Path, tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    inputs = study_files((files / "background.parquet",))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    for taken in (tmp_path / "thesis", tmp_path / "thesis" / "thesis.tex"):
        with pytest.raises(UsageError, match="not the folder of a study"):
            new_run(taken, inputs)[0].check()
    (tmp_path / "other" / "stages").mkdir(parents=True)
    (tmp_path / "other" / "study.json").write_text('{"study": "gluino"}')
    with pytest.raises(UsageError, match="holds a study of gluino"):
        new_run(tmp_path / "other", inputs)[0].check()
