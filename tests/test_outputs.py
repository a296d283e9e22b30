"""What a command may write over."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.running import failing, running
from unmask import ContrastDetector, EventSet, write_events
from unmask.artifacts import Artifact, save_artifact
from unmask.detectors.untrained import UntrainedDetector
from unmask.errors import UsageError
from unmask.fitted import KINDS
from unmask.outputs import check_output
from unmask.scores.score_table import Scores, write_scores
from unmask.workflow.fit import can_go_on


def test_existing_outputs_are_replaced_only_if_asked_and_alike(
    tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    """One rule for all commands: --overwrite, the same kind, and never an input."""
    events = tmp_path / "events.parquet"
    write_events(events, make_events(40))
    calibration, notes, foreign = tmp_path / "calibration", tmp_path / "notes.txt", tmp_path / "foreign.parquet"
    save_artifact(calibration, Artifact("calibration", {}))
    notes.write_text("mine\n")
    pq.write_table(pa.table({"mine": [1]}), foreign)
    table = {"endings": (".parquet",)}
    for out, kinds, inputs, more, message in (
        (events, ["events"], [], table, "exists; give --overwrite to replace it"),
        (events, ["scores"], [], table | {"overwrite": True}, "holds events; only scores would be replaced"),
        (events, ["events"], [events], table | {"overwrite": True}, "would replace"),
        (foreign, ["events"], [], table | {"overwrite": True}, "is not something that unmask wrote"),
        (notes, ["events"], [], table, "the name of the file to write must end in .parquet"),
        (notes, ["contrast"], [], {"overwrite": True}, "is not something that unmask wrote"),
        (calibration, ["events"], [], table, "is a folder"),
        (calibration, ["contrast", "ddd"], [], {"overwrite": True}, "holds calibration; only contrast or ddd"),
        (calibration, ["calibration"], [], {}, "exists; give --overwrite"),
        (calibration, ["calibration"], [calibration / "manifest.json"], {"overwrite": True}, "which is read"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            check_output(out, kinds, inputs, **more)
    check_output(events, ["events"], [notes], endings=(".parquet",), overwrite=True)
    check_output(calibration, ["calibration"], [events], overwrite=True)
    check_output(tmp_path / "new", ["calibration"], [events])
    with pytest.raises(UsageError, match="holds calibration; only contrast or ddd"):  # from Python too
        save_artifact(calibration, Artifact("ddd", {}), replaces=["contrast", "ddd"])
    (calibration / "notes.txt").write_text("mine\n")
    with pytest.raises(UsageError, match="or holds more"):
        check_output(calibration, ["calibration"], overwrite=True)


def test_only_a_training_of_the_same_kind_goes_on_unasked(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (tmp_path / "model.run").mkdir()
    for kind, new, expected in (
        ("contrast", ContrastDetector(), True),
        ("ddd", ContrastDetector(), False),
        ("untrained", UntrainedDetector(), False),  # leaves no run of its own
        ("lookup-table", ContrastDetector(), False),
    ):
        save_artifact(model, Artifact(kind, {}), replaces=KINDS)
        assert can_go_on(model, new) == expected
    (tmp_path / "model.run").rmdir()
    save_artifact(model, Artifact("contrast", {}), replaces=KINDS)
    assert not can_go_on(model, ContrastDetector())


def test_commands_check_their_output_before_any_work(tmp_path: Path, make_events: Callable[..., EventSet]) -> None:
    """No input is read: those here hold something else than the commands need."""
    (tmp_path / "in.csv").write_text("nothing of use\n")
    for name in ("out.parquet", "out.csv", "out.html", "out/table.md", "events/train.parquet", "scan/best.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine\n")
    read = tmp_path / "in.csv"
    for command, out in (
        (("data", "convert", read), "out.parquet"),
        (("data", "split", read), "events"),
        (("tokenizer", "fit", read), "out"),
        (("tokenizer", "encode", tmp_path / "no-tokenizer", read), "out.parquet"),
        (("train", read), "out"),
        (("tune", "detector", read), "scan"),
        (("score", "sample:gluino-model", read), "out.parquet"),
        (("evaluate", read), "out"),
        (("calibrate", read), "out"),
        (("flag", tmp_path / "no-calibration", read), "out.parquet"),
        (("combine", read), "out.parquet"),
        (("report", read), "out.html"),
    ):
        for more in ((), () if command[0] == "tune" else ("--overwrite",)):
            code, message = failing(*command, "--out", tmp_path / out, *more)
            assert code == 2, (command, message)
            assert "is not something that unmask wrote" in message, (command, message)
    assert {path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path != read} == {"mine\n"}
    report = tmp_path / "report.html"
    running("report", scored(tmp_path, make_events), "--out", report)
    assert "give --overwrite" in failing("report", tmp_path / "scores.parquet", "--out", report)[1]
    running("report", tmp_path / "scores.parquet", "--out", report, "--overwrite")
    assert "which is read" in failing("evaluate", tmp_path / "scores.parquet", "-o", tmp_path, "--overwrite")[1]


def scored(folder: Path, make_events: Callable[..., EventSet]) -> Path:
    events = make_events(60)
    write_scores(folder / "scores.parquet", [Scores.of(events, events.met_mev.astype(float))])
    return folder / "scores.parquet"
