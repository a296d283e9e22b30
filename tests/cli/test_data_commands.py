"""`unmask data` as a user runs it."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failing, running, unmask
from unmask import EventSet, load_sample, read_events, write_events
from unmask.events.fingerprints import fingerprints
from unmask.io.parquet import read_provenance

GOOD = "1;ttH;1;62161;-1.374;b,240064,190606,-0.697959,2.90092;j,64597.8,47120.1,-0.832683,0.548982;\n"
SOFT = "2;ttW;1;56530.8;1.58663;j,93977.1,85781.8,0.412317,2.31003;\n"
BAD = "3;ttW;1;56530.8;1.58663;q,93977.1,85781.8,0.412317,2.31003;\n"


@pytest.fixture
def good_csv(tmp_path: Path) -> Path:
    path = tmp_path / "good.csv"
    path.write_text(GOOD + SOFT)
    return path


@pytest.fixture
def bad_csv(tmp_path: Path) -> Path:
    path = tmp_path / "bad.csv"
    path.write_text(GOOD + SOFT + BAD)
    return path


def test_help_and_version_need_no_torch() -> None:
    code = (
        "import sys\nsys.argv = ['unmask', '--help']\nfrom unmask.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert "data" in result.stdout
    assert result.stdout.splitlines()[-1] == "False False"
    assert unmask("--version").stdout.startswith("unmask 0.")


def test_completion_knows_the_commands() -> None:
    environment = {"_UNMASK_COMPLETE": "complete_bash", "COMP_WORDS": "unmask data ", "COMP_CWORD": "2"}
    code = "import sys; sys.argv = ['unmask']; from unmask.cli import app; app(prog_name='unmask')"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )
    assert {"inspect", "convert", "split"} <= set(result.stdout.split())


def test_inspect_counts_what_is_there(good_csv: Path) -> None:
    facts = json.loads(unmask("data", "inspect", "--json", good_csv).stdout)
    assert facts["n_events"] == 2
    assert facts["processes"] == {"ttH": 1, "ttW": 1}
    assert facts["mean_objects_per_event"]["jet"] == 1.0
    assert facts["n_events_with_n_objects"] == {"1": 1, "2": 1}
    assert facts["met_quartiles_gev"][0] == pytest.approx(56.53, rel=2e-3)
    assert facts["met_quartiles_gev"][2] == pytest.approx(62.16, rel=2e-3)
    table = unmask("data", "inspect", good_csv).stdout
    assert "ttH" in table
    assert "events with objects cut" in table


def test_inspect_lists_problems_and_exits_with_3(bad_csv: Path) -> None:
    result = unmask("data", "inspect", bad_csv)
    assert result.returncode == 3
    assert "line 3" in result.stdout
    assert "'q'" in result.stdout
    assert unmask("data", "inspect", "--skip-bad", bad_csv).returncode == 0


def test_convert_refuses_a_bad_file_and_leaves_nothing_behind(bad_csv: Path, tmp_path: Path) -> None:
    result = unmask("data", "convert", bad_csv, "--out", tmp_path / "out.parquet")
    assert result.returncode == 3
    assert "bad.csv, line 3" in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]


def test_convert_skips_and_reports_bad_events(bad_csv: Path, tmp_path: Path) -> None:
    result = unmask("data", "convert", "--skip-bad", bad_csv, "--out", tmp_path / "out.parquet")
    assert result.returncode == 0
    assert "skipped 1 bad events" in result.stderr
    assert len(read_events(tmp_path / "out.parquet")) == 2


def test_convert_keeps_events_labels_and_origin(good_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert unmask("data", "convert", good_csv, "--out", out, "--signal-process", "ttW").returncode == 0
    events = read_events(out)
    assert events.label.tolist() == [0, 1]
    assert events.equals(read_events(good_csv).with_signal(["ttW"]))
    facts = read_provenance(out)
    assert facts["inputs"][0]["file"] == "good.csv"
    assert len(facts["inputs"][0]["sha256"]) == 64


def test_convert_says_that_a_signal_process_is_not_there(good_csv: Path, tmp_path: Path) -> None:
    result = unmask("data", "convert", good_csv, "--out", tmp_path / "out.parquet", "--signal-process", "ttww")
    assert result.returncode == 2
    assert "did you mean 'ttW'" in result.stderr
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_what_is_not_a_file_is_a_clear_error(tmp_path: Path, name: str) -> None:
    result = unmask("data", "inspect", tmp_path / name)
    assert result.returncode == 3
    assert result.stderr.startswith("error:")


def test_a_full_disk_or_a_forbidden_folder_is_a_clear_error(good_csv: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = unmask("data", "convert", good_csv, "--out", tmp_path / "file" / "out.parquet")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


def test_split_is_the_same_whatever_the_chunks_and_keeps_signal_for_the_test(tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "src/unmask/sample/four-top.parquet"
    for folder, chunk in (("a", "700"), ("b", "50000")):
        result = unmask(
            "data",
            "split",
            sample,
            "--out",
            tmp_path / folder,
            "--seed",
            "3",
            "--chunk-events",
            chunk,
            "--fractions",
            "0.8",
            "0.1",
            "0.1",
        )
        assert result.returncode == 0, result.stderr
    for name, n_background in (("train", 10880), ("validation", 1360), ("test", 1360)):
        one, other = (read_events(tmp_path / folder / f"{name}.parquet") for folder in "ab")
        assert one.equals(other)
        background = one[one.label == 0]
        assert len(background) == n_background
        assert set(background.process_names.counts().values()) == {n_background // 4}
        assert (one.label == 1).sum() == (3400 if name == "test" else 0)
        assert read_provenance(tmp_path / "a" / f"{name}.parquet")["split"] == {
            "name": name,
            "seed": 3,
            "fractions": [0.8, 0.1, 0.1],
        }


def test_inspect_draws_a_figure(good_csv: Path, tmp_path: Path) -> None:
    shown = unmask("data", "inspect", good_csv, "--figure", tmp_path / "events.svg")
    assert shown.returncode == 0
    assert "MET quartiles" in shown.stdout
    drawn = (tmp_path / "events.svg").read_text()
    for text in ("number of objects", "MET [GeV]", "HT [GeV]", "unlabeled (2)"):
        assert text in drawn
    assert unmask("data", "inspect", good_csv, "--figure", tmp_path / "events.bmp").returncode == 2


def test_gzip_is_read_as_it_is(good_csv: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(good_csv.read_bytes()))
    assert json.loads(unmask("data", "inspect", "--json", packed).stdout)["n_events"] == 2


def test_the_sample_holds_both_studies() -> None:
    four_top, gluino = load_sample("four-top"), load_sample("gluino")
    assert four_top.process_names.counts()["tttt"] == (four_top.label == 1).sum() == 3400
    assert gluino.process_names.counts()["gluino_1000_1"] == (gluino.label == 1).sum() == 3000
    assert gluino.weight[gluino.process == "ttbar"].sum() == pytest.approx(160160)
    assert np.all(four_top.n_objects <= 18)


def test_an_input_is_never_overwritten(good_csv: Path, tmp_path: Path) -> None:
    unmask("data", "convert", good_csv, "--out", tmp_path / "one.parquet")
    unmask("data", "convert", good_csv, "--out", tmp_path / "two.parquet")
    before = (tmp_path / "two.parquet").read_bytes()
    forgotten = unmask("data", "convert", tmp_path / "one.parquet", "--out", tmp_path / "two.parquet")
    assert forgotten.returncode == 2
    assert "--overwrite" in forgotten.stderr
    same = unmask("data", "convert", tmp_path / "one.parquet", "-o", tmp_path / "one.parquet", "--overwrite")
    assert same.returncode == 2
    assert "one.parquet, which is read; choose another name" in same.stderr
    assert (tmp_path / "two.parquet").read_bytes() == before
    scored = unmask("score", "sample:gluino-model", good_csv, "--out", good_csv)
    assert scored.returncode == 2
    assert good_csv.read_text() == GOOD + SOFT
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "train.parquet").write_bytes(before)
    assert unmask("data", "split", tmp_path / "parts" / "train.parquet", "--out", tmp_path / "parts").returncode == 2


def test_files_of_one_name_are_told_apart_and_none_is_read_twice(good_csv: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "good.csv"
    other.write_text(SOFT)
    running("data", "convert", good_csv, other, "--out", tmp_path / "both.parquet")
    assert read_events(tmp_path / "both.parquet").file.tolist() == [str(good_csv)] * 2 + [str(other)]
    code, message = failing("data", "inspect", good_csv, other.parent / ".." / "good.csv")
    assert code == 2
    assert "is given twice, also as" in message


def test_options_that_would_be_ignored_are_refused(good_csv: Path, tmp_path: Path) -> None:
    for options in (
        ("--select", "jet.min_pt_gev=30"),
        ("--tree", "Events"),
        ("--dataset", "x"),
        ("--label", "signal", "--signal-process", "ttH"),
    ):
        assert unmask("data", "inspect", good_csv, *options).returncode == 2


def test_a_failure_leaves_no_folder_behind(bad_csv: Path, tmp_path: Path) -> None:
    assert unmask("data", "convert", bad_csv, "--out", tmp_path / "new" / "folder" / "out.parquet").returncode == 3
    assert not (tmp_path / "new").exists()


def test_a_given_format_does_not_hide_a_missing_file(tmp_path: Path) -> None:
    result = unmask("data", "inspect", tmp_path / "nothing.csv", "--format", "darkmachines")
    assert result.returncode == 3
    assert "no such file" in result.stderr


def test_split_leaves_out_repeated_events_and_tells(tmp_path: Path) -> None:
    events = load_sample("gluino")[:200].with_label(0)
    write_events(tmp_path / "events.parquet", EventSet.concatenate([events, events[:50]]))
    _, notes = running("data", "split", tmp_path / "events.parquet", "--out", tmp_path / "once")
    assert "50 of 250 events repeat earlier ones, object by object: left out (--keep-duplicates keeps them)" in notes
    assert sum(len(read_events(path)) for path in (tmp_path / "once").iterdir()) == 200
    running("data", "split", tmp_path / "events.parquet", "--out", tmp_path / "all", "--keep-duplicates")
    parts = [read_events(tmp_path / "all" / f"{name}.parquet") for name in ("train", "validation", "test")]
    assert sum(map(len, parts)) == 250
    assert sum(len(np.unique(fingerprints(part))) for part in parts) == 200


def test_convert_writes_csv_and_keeps_some_processes_or_labels(
    make_events: Callable[..., EventSet], tmp_path: Path
) -> None:
    background = make_events(300, processes=("ttH", "ttW", "ttZ"))
    signal = make_events(40, seed=1, processes=("4top",), label=1)
    write_events(tmp_path / "all.parquet", [background, signal])
    for name, only, expected in (
        ("all.csv", (), EventSet.concatenate([background, signal])),
        ("some.csv.gz", ("--only", "ttH, ttZ"), background[np.isin(background.process, ["ttH", "ttZ"])]),
        ("signal.csv", ("--only", "signal"), signal),
        ("signal.parquet", ("--only", "signal"), signal),
    ):
        out, notes = running("data", "convert", tmp_path / "all.parquet", "--out", tmp_path / name, *only)
        assert f"{len(expected):,} events" in out, notes
        found = read_events(tmp_path / name)
        for column in ("event_id", "process", "weight", "met_mev", "met_phi", "tag", "energy_mev", "pt_mev", "phi"):
            np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))
    assert (tmp_path / "some.csv.gz").read_bytes()[:2] == b"\x1f\x8b"
    csv, more = tmp_path / "all.csv", ("--out", tmp_path / "no.csv")
    for command, message in (
        ((tmp_path / "all.parquet", "--only", "ttG", *more), "ttG: no event has this process or label; did you mean"),
        ((tmp_path / "all.parquet", "--out", tmp_path / "no.root"), "must end in .parquet or .csv or .csv.gz"),
        ((tmp_path / "all.parquet", "--out", csv), "give --overwrite"),
        ((csv, "--out", csv, "--overwrite"), "all.csv, which is read"),
        ((csv, "--process", "a;b", *more), "process 'a;b' cannot be written as Dark Machines CSV"),
    ):
        code, text = failing("data", "convert", *command)
        assert (code, message in text) == (2, True), text
    assert not (tmp_path / "no.csv").exists()
    running("data", "convert", tmp_path / "all.parquet", "--out", csv, "--overwrite")
