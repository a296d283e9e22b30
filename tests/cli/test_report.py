"""`unmask report` as a user runs it."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.running import unmask
from tests.report.runs import write_run
from unmask.events.event_set import EventSet


def test_report_is_written_and_says_what_could_be_added(make_events: Callable[..., EventSet], tmp_path: Path) -> None:
    write_run(tmp_path / "run" / "plain.parquet", make_events, n_explained=0)
    write_run(tmp_path / "run" / "explained.parquet", make_events)
    result = unmask("report", tmp_path / "run", "--out", tmp_path / "out" / "report.html", "--title", "Two detectors")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["2", "detectors", "->", str(tmp_path / "out" / "report.html")]
    assert "plain.parquet: no explained events; score with --explain" in result.stderr
    assert "explained.parquet: no explained" not in result.stderr
    assert "<title>Two detectors</title>" in (tmp_path / "out" / "report.html").read_text()


def test_what_cannot_be_reported_is_one_message(make_events: Callable[..., EventSet], tmp_path: Path) -> None:
    result = unmask("report", tmp_path / "nothing.parquet", "--out", tmp_path / "report.html")
    assert result.returncode == 3
    assert "nothing.parquet: no such file" in result.stderr
    path = write_run(tmp_path / "one.parquet", make_events)
    (tmp_path / "one.explained.json").write_text("[]")
    result = unmask("report", path, "--out", tmp_path / "report.html")
    assert result.returncode == 3
    assert "one.explained.json: not a file of explanations" in result.stderr
    assert not (tmp_path / "report.html").exists()
