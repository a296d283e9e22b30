"""`unmask evaluate` as a user runs them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failing, running, unmask
from tests.evaluation.toy_scores import toy_observables, toy_scores
from unmask.events.columns import Names
from unmask.scores.score_table import Scores, write_scores


def make(shift: float) -> Scores:
    label = (np.arange(2000) % 2).astype(np.int8)
    score = np.random.default_rng(1).normal(shift * label, 1)
    return toy_scores(score, label, observables=toy_observables(label))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scores")
    write_scores(out / "good.parquet", [make(2)])
    write_scores(out / "bad.parquet", [make(0.2)[np.arange(2000)[::-1]]])
    return out


def test_the_table_is_readable_and_what_must_be_known_is_said(folder: Path) -> None:
    result = unmask(
        "evaluate", folder / "good.parquet", folder / "bad.parquet", "--name", "clear", "--name", "faint",
        environment={"COLUMNS": "80"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "all signal against background (95% CL)"
    for name in ("clear", "faint", "HT", "MET", "random", "observables, product", "number of b-jets"):
        cell = r" +0\.\d+ \[0\.\d+, 0\.\d+\]"
        assert [line for line in lines if re.fullmatch(f"{name}{cell}{cell}", line)], name
    verdicts = lines.index("Verdict: ΔAUC to the best untrained score (observables, product)")
    assert re.fullmatch(r"clear +\+0\..* better", lines[verdicts + 3])
    assert re.fullmatch(r"faint +-0\..* worse", lines[verdicts + 4])
    assert re.fullmatch(r"clear +faint +\+0\..* < 1e-16", lines[-2])


def test_results_are_written_for_people_and_programs(folder: Path, tmp_path: Path) -> None:
    result = unmask("evaluate", folder / "good.parquet", folder / "bad.parquet", "--json", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["rows"][0]["name"] == "good"
    assert printed["comparisons"][0]["difference"]["low"] > 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == printed
    assert re.search(r"\| good +\| 0\.9", (tmp_path / "out" / "table.md").read_text())
    assert r"\begin{tabular}" in (tmp_path / "out" / "table.tex").read_text()
    assert (tmp_path / "out" / "leaderboard.csv").read_text().splitlines()[1].startswith("signal,good,,0.9")
    names = ("roc", "significance-improvement", "scores-1-good", "scores-2-bad")
    drawn = {f"{name}.{suffix}" for name in names for suffix in ("png", "pdf", "svg")}
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == drawn


def test_what_is_being_done_is_said_off_a_terminal_too(folder: Path, tmp_path: Path) -> None:
    files = folder / "good.parquet", folder / "bad.parquet"
    notes = running("evaluate", *files, "--out", tmp_path / "out", "--formats", "svg")[1].splitlines()
    done = [line for line in notes if line.endswith(" ...")]
    assert done == ["reading 2 scores files ...", "measuring scores of 2,000 events ...", "drawing figures ..."]


def test_figures_have_the_wanted_style_and_formats(folder: Path, tmp_path: Path) -> None:
    for style in ("plain", "atlas"):
        running(
            "evaluate", folder / "good.parquet", "--out", tmp_path / style, "--style", style, "--formats", "svg, png"
        )
    drawn = {path.name for path in (tmp_path / "atlas" / "figures").iterdir()}
    assert drawn == {f"{name}.{suffix}" for name in ("roc", "significance-improvement", "scores-1-good")
                     for suffix in ("svg", "png")}  # fmt: skip
    one, other = ((tmp_path / style / "figures" / "roc.svg").read_text() for style in ("plain", "atlas"))
    assert one != other


def test_negative_weights_give_all_tables_and_figures(tmp_path: Path) -> None:
    scores = make(2)
    write_scores(tmp_path / "negative.parquet", [replace(scores, weight=np.where(scores.row % 9 == 0, -1.0, 1.0))])
    result, notes = running("evaluate", tmp_path / "negative.parquet", "--out", tmp_path / "out")
    assert "weighted events count as fewer of equal weight" in notes
    assert (tmp_path / "out" / "figures" / "roc.svg").exists()
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["rows"][0]["metrics"]["overlap_area"]
    assert re.search(r"negative +0\.\d+ \[0\.\d+, 0\.\d+\] ", result)


def test_process_names_are_shown_as_they_are(tmp_path: Path) -> None:
    scores = make(2)
    words = ["[red]a[/b]" if i % 4 == 1 else "" if i % 8 == 3 else "tttt" if i % 8 == 7 else "b" for i in range(2000)]
    write_scores(tmp_path / "odd.parquet", [replace(scores, process_names=Names.of(words))])
    result, _ = running("evaluate", tmp_path / "odd.parquet")
    assert "[red]a[/b] against background" in result
    running("report", tmp_path / "odd.parquet", "--out", tmp_path / "odd.html")
    page = (tmp_path / "odd.html").read_text(encoding="utf-8")
    assert all(f">{name} against background" in page for name in ("[red]a[/b]", "tttt", ""))


def test_leaderboard(folder: Path, tmp_path: Path) -> None:
    running("evaluate", folder / "good.parquet", "--channel", "2b", "--out", tmp_path)
    header, row, *_ = (tmp_path / "leaderboard.csv").read_text().splitlines()
    assert header == "Signal,Model,Chan,AUC,1e-2,1e-3,1e-4"
    assert row.startswith("signal,good,2b,0.9")
    assert failing("evaluate", folder / "good.parquet", "--channel", "9z", "--out", tmp_path)[0] == 2


def test_bad_input_is_one_message(folder: Path, tmp_path: Path) -> None:
    scores = make(1)
    bad = {
        "nan": replace(scores, score=np.where(np.arange(2000) == 5, np.nan, scores.score)),
        "unknown": replace(scores, label=np.full(2000, -1, np.int8)),
        "one-class": replace(scores, label=np.zeros(2000, np.int8)),
        "other": replace(scores, row=scores.row + 1),
        "content": replace(scores, observables=toy_observables(scores.label, seed=1)),
        "label-5": replace(scores, label=np.where(scores.row == 3, 5, scores.label).astype(np.int8)),
    }
    for name, content in bad.items():
        write_scores(tmp_path / f"{name}.parquet", [content])
    good = folder / "good.parquet"
    for arguments, code, message in (
        ((tmp_path / "nan.parquet",), 3, "nan: 1 of 2,000 scores are NaN or infinite"),
        ((tmp_path / "unknown.parquet",), 3, "unknown: 2,000 of 2,000 events have no label"),
        ((tmp_path / "one-class.parquet",), 2, "one-class: signal and background events are both needed"),
        ((good, tmp_path / "other.parquet"), 3, "other and good hold scores of different events"),
        ((good, tmp_path / "content.parquet"), 3, "content and good hold scores of different events"),
        (
            (tmp_path / "label-5.parquet",),
            3,
            "label-5.parquet: label 5, first of 1 that are not accepted; accepted: -1",
        ),
        ((good, good), 2, "two detectors are called 'good'"),
        ((good, "--name", "a", "--name", "b"), 2, "1 scores files and 2 names"),
        ((good, "--style", "cms"), 2, "give --out"),
        ((good, "--formats", "png,jpg", "--out", tmp_path / "x"), 2, "--formats png,jpg: a figure is written as png"),
        ((tmp_path / "missing.parquet",), 3, "no such file"),
    ):
        found = failing("evaluate", *arguments)
        assert found[0] == code
        assert message in found[1]
        assert not (tmp_path / "x").exists()
