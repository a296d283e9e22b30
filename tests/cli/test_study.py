"""`unmask study run` as a user runs it, from files to a report."""

import gzip
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.running import failing, running, unmask
from tests.io.event_files import darkmachines_line, example_events

TINY = (
    "--set", "hidden=16", "--set", "n_layers=1", "--set", "n_heads=2", "--set", "tokenizer.n_bins=2",
    "--device", "cpu",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data: the gluino study in small."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "channel_2b").mkdir()
    for seed, (process, n_events) in enumerate({"ttbar": 1200, "ww": 200, "gluino_1000_1": 200}.items()):
        lines = [darkmachines_line(replace(event, process=process)) for event in example_events(n_events, seed)]
        with gzip.open(folder / "channel_2b" / f"{process}.csv.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("study", ["gluino", "four-top"])
def test_a_published_study_without_files_takes_the_bundled_sample(study: str, tmp_path: Path) -> None:
    _, notes = running("study", "run", study, "--out", tmp_path / "study", "--only", "default", "--dry-run")
    assert "bundled sample" in notes
    assert max(map(len, notes.splitlines())) <= 80


def test_a_published_study_from_files_to_tables(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("study")
    more = ("--benchmark-dir", data, "--only", "lut-456", "--epochs", "1", *TINY)
    command = ("study", "run", "gluino", "--out", out, *more)
    plan, _ = running(*command, "--dry-run")
    assert "to do (new)" in plan
    assert not out.exists()
    shown, progress = running(*command)
    line = r"^\[1/1\] lut-456 +epoch 1/1  loss \d+\.\d{4}  val \d+\.\d{4}  [\d,]+ ev/s  \d+ s$"
    assert re.search(line, progress, re.MULTILINE)
    assert "1,120 training, 140 validation, 140 test background events" in progress
    assert "200 signal events: gluino_1000_1 200" in progress
    assert max(len(line) for line in [*shown.splitlines(), *progress.splitlines()]) <= 80
    assert re.search(r"^lut-456 +0\.\d+ \[0\.\d+, 0\.\d+\] ", shown, re.MULTILINE)
    assert "Verdict: ΔAUC to the best untrained score" in shown
    threshold = r"^Threshold \(lut-456\): score ≥ \S+; validation ε_B = [\d.]+% \[[\d.]+%, [\d.]+%\]$"
    assert re.search(threshold, shown, re.MULTILINE)
    assert shown.splitlines()[-1] == "Report: study/report.html"
    summary = (out / "results" / "summary.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in summary.splitlines() if line.startswith("|")]
    assert next(row for row in rows if row[0] == "lut-456")[2::2] == ["0.8832", "0.211", "0.001"]
    for text in (summary, (out / "report.html").read_text()):
        assert "0.8832" in text
        assert "compare methods" in text
    again, progress = running(*command)
    assert "all is done; nothing has changed" in progress
    assert running(*command, "--dry-run")[0].count(" done ") == 9
    assert shown == again


def test_the_sample_is_there_without_data(tmp_path: Path) -> None:
    plan, progress = running("study", "run", "four-top", "--only", "lut-456", "--dry-run", "--out", tmp_path / "x")
    assert "bundled sample; full data: --benchmark-dir DIR" in progress
    assert "detector lut-456" in plan


def test_a_killed_training_goes_on(data: Path, tmp_path: Path) -> None:
    files = ("--background", data / "channel_2b" / "ttbar.csv.gz", "--signal", data / "channel_2b" / "ww.csv.gz")
    out = tmp_path / "study"
    more = ("--only", "masked-token", "--epochs", "60", "--set", "training.min_improvement=0")
    command = ("study", "run", *files, *more, "--out", out, *TINY)
    start = [sys.executable, "-c", "from unmask.cli import main; main()", *map(str, command)]
    log = out / "models" / "masked-token.run" / "log.jsonl"
    process = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        deadline = time.monotonic() + 90
        while not log.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.communicate()[1]
    finally:
        process.kill()
        process.communicate()
    n_epochs = len(log.read_text().splitlines())
    assert 0 < n_epochs < 60
    assert not (out / "models" / "masked-token").exists()
    assert "goes on (new)" in running(*command, "--dry-run")[0]
    _, progress = running(*command)
    resumed = re.search(r"continuing after epoch (\d+)", progress)
    assert resumed
    assert int(resumed[1]) - n_epochs in (0, 1)  # an epoch is saved before it is logged
    assert "training, " not in progress  # the background had been split
    assert (out / "report.html").exists()


def test_processes_with_different_configurations_share_a_folder(data: Path, tmp_path: Path) -> None:
    tomls = [tmp_path / f"{name}.toml" for name in ("met", "ht")]
    for toml in tomls:
        toml.write_text(f"[detector]\nkind = 'untrained'\nscore = '{toml.stem}'\n")
    background, out = data / "channel_2b" / "ttbar.csv.gz", tmp_path / "study"
    command = ("study", "run", "--background", background, "--out", out, "--device", "cpu", "--only")
    with ThreadPoolExecutor() as pool:  # of threads that wait for processes
        results = [*pool.map(lambda toml: unmask(*command, toml), tomls)]
    for result in results:
        assert result.returncode == 0, result.stderr
    assert sum(result.stderr.count("test background events") for result in results) == 1, results
    both = ",".join(map(str, tomls))
    plan = running(*command, both, "--dry-run")[0].splitlines()
    assert [line.split("│")[1].strip() for line in plan if "to do" in line] == ["report"]
    running(*command, both)
    report = (out / "report.html").read_text()
    assert "Scores of met" in report
    assert "Scores of ht" in report


def test_figures_in_the_style_of_an_experiment(data: Path, tmp_path: Path) -> None:
    files = ("--background", data / "channel_2b" / "ttbar.csv.gz", "--signal", data / "channel_2b" / "ww.csv.gz")
    toml, out = tmp_path / "ht.toml", tmp_path / "study"
    toml.write_text("[detector]\nkind = 'untrained'\nscore = 'ht'\n")
    command = ("study", "run", *files, "--only", toml, "--out", out, "--device", "cpu")
    running(*command, "--style", "cms")
    for path in (out / "results" / "figures" / "roc.svg", out / "report.html"):
        assert "<text" not in path.read_text()  # its font as outlines
    plan, _ = running(*command, "--dry-run")
    changed = [line.split("│")[1].strip() for line in plan.splitlines() if "a setting has changed" in line]
    assert changed == ["figures ht", "results", "report"]


def test_what_another_version_made_is_said(data: Path, tmp_path: Path) -> None:
    toml, out = tmp_path / "ht.toml", tmp_path / "study"
    toml.write_text("[detector]\nkind = 'untrained'\nscore = 'ht'\n")
    command = ("study", "run", "--background", data / "channel_2b" / "ttbar.csv.gz", "--only", toml, "--out", out)
    running(*command)
    record = out / "stages" / "detector-ht.json"
    record.write_text(record.read_text().replace(f'"unmask": "{version("unmask")}"', '"unmask": "0.0.7"'))
    plan, _ = running(*command, "--dry-run")
    assert plan.count("done (by unmask 0.0.7)") == 1
    assert "to do" not in plan


def test_under_torchrun_it_is_refused(tmp_path: Path) -> None:
    result = unmask("study", "run", "gluino", "--out", tmp_path / "out", environment={"WORLD_SIZE": "2"})
    assert (result.returncode, "torchrun is for unmask train" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("gluinos",), 2, "did you mean 'gluino'"),
        ((), 2, "give --background FILE"),
        (("gluino", "--background", "b.csv"), 2, "leave out --background"),
        (("--background", "b.csv", "--benchmark-dir", "d"), 2, "holds published studies"),
        (("gluino", "--leave-out", "stop"), 2, "give --prior"),
        (("--background", "b.csv"), 3, "b.csv: no such file"),
        (("gluino", "--only", "lut-465"), 2, "Did you mean 'lut-456'"),
        (("gluino", "--only", "lut-456", "--set", "drpout=1"), 2, "did you mean 'dropout'"),
        (("gluino", "--benchmark-dir", "nowhere"), 3, "channel_2b: no such folder"),
        (("--background", "sample:gluino", "--only", "masked-token"), 2, "labeled signal"),
    ],
)
def test_mistakes_are_named_and_nothing_is_trained(
    arguments: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert (found := failing("study", "run", *arguments, "--out", out, *TINY))[0] == code, found
    assert message in found[1]
    assert not (out / "models").exists()
    assert not (out / "events").exists()


def test_an_empty_folder_and_a_missing_signal_are_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "four_top").mkdir()
    command = ("study", "run", "--out", tmp_path / "out", *TINY, "--only", "lut-456")
    assert "four_top: holds no *.csv.gz files" in failing(*command, "four-top", "--benchmark-dir", tmp_path)[1]
    (tmp_path / "channel_2b").mkdir()
    (tmp_path / "channel_2b" / "ttbar.csv.gz").write_bytes((data / "channel_2b" / "ttbar.csv.gz").read_bytes())
    code, message = failing(*command, "gluino", "--benchmark-dir", tmp_path)
    assert code == 2
    assert "signal process 'gluino_1000_1'" in message


def test_a_prior_has_a_row_of_its_own_and_one_per_family_left_out(data: Path, tmp_path: Path) -> None:
    for seed, name in enumerate(("stop_600", "zprime"), start=11):
        lines = [darkmachines_line(replace(event, process=name)) for event in example_events(150, seed)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    out, folder = tmp_path / "study", data / "channel_2b"
    files = ("--background", folder / "ttbar.csv.gz", "--signal", folder / "gluino_1000_1.csv.gz")
    prior = ("--prior", f"stop:{tmp_path / 'stop_600.csv'}", "--prior", tmp_path / "zprime.csv")
    toml = tmp_path / "met.toml"
    toml.write_text("[detector]\nkind = 'untrained'\nscore = 'met'\n")
    command = ("study", "run", *files, "--only", toml, *prior, "--epochs", "1", "--out", out, "--device", "cpu")
    _, progress = running(*command, "--leave-out", "stop")
    assert "prior: 300 theory events of 2 families (stop, zprime)" in progress
    assert re.search(r"^\[3/3\] default-prior-without-stop +epoch 1/1", progress, re.MULTILINE)
    summary = (out / "results" / "summary.md").read_text()
    assert "default-prior-without-stop is semi-supervised: trained with theories, without the family stop" in summary
    assert "all is done" in running(*command, "--leave-out", "stop")[1]
    code, message = failing(
        "score", out / "models" / "default-prior", tmp_path / "zprime.csv", "--out", tmp_path / "x.parquet"
    )
    assert code == 3
    assert "150 of 150 events are among the theories that the detector was trained on" in message
    model, left_out = out / "models" / "default-prior-without-stop", tmp_path / "stop_600.csv"
    running("score", model, left_out, "--out", tmp_path / "stop.parquet")
    code, message = failing(*command[:-4], "--leave-out", "stau", "--out", tmp_path / "other")
    assert "no family 'stau'; it has stop, zprime" in message
    with_background = ("--prior", "sample:gluino", "--out", tmp_path / "third")
    code, message = failing("study", "run", *files, "--only", toml, *with_background)
    assert code == 2
    assert "given as signal, but" in message
