"""Weights of samples: generator weights, cross sections, and labels of files by what they are given as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import uproot

from tests.io import root_events
from tests.workflow.running import unmask
from unmask import EventSet, ReadOptions, read_events, write_events
from unmask.errors import UsageError
from unmask.events.event_set import SIGNAL
from unmask.scores.score_table import read_scores
from unmask.workflow.samples import Sample, Samples, read_samples
from unmask.workflow.sources import Sources

WEIGHT = root_events.WEIGHT
TOML = """lumi = 2
[[sample]]
files = "ttbar_*.root"
xsec = 800
k_factor = 1.5
process = "ttbar"
label = "background"
[[sample]]
files = "other/signal.root"
xsec = 0.5
label = "signal"
[[sample]]
files = "data.root"
"""


def nanoaod(path: Path, sum_of_weights: list[float], **columns: np.ndarray) -> Path:
    """A NanoAOD file whose tree of runs tells the sum of all generator weights."""
    path.parent.mkdir(exist_ok=True)
    groups = root_events.nanoaod()
    groups[""] |= columns
    with uproot.recreate(path) as file:
        root_events.add_tree(file, "Events", "nanoaod", groups, "ttree")
        file["Runs"] = {"genEventSumw": np.array(sum_of_weights)}
    return path


def converted(path: Path, *options: str | Path) -> tuple[np.ndarray, str]:
    out = path.with_suffix(".parquet")
    result = unmask("data", "convert", path, "--out", out, "--overwrite", *options)
    assert result.returncode == 0, result.stderr
    return read_events(out).weight, result.stderr


def test_weights_are_normalized_by_the_sum_of_all_generated_events(tmp_path: Path) -> None:
    path = nanoaod(tmp_path / "ttbar.root", [10.0, 5.0])
    weight, notes = converted(path, "--xsec", "2", "--lumi", "3")
    np.testing.assert_allclose(weight, WEIGHT * 2 * 3e3 / 15)
    assert "2 pb, 3/fb and a sum of 15 (Runs.genEventSumw)" in notes
    assert "1 of 7 events have negative weights" in notes
    np.testing.assert_allclose(converted(path, "--xsec", "2", "--cut", "met > 40")[0], WEIGHT[[0, 2, 4, 5]] * 2e3 / 15)
    np.testing.assert_array_equal(converted(path)[0], WEIGHT)
    without_runs = root_events.write(tmp_path / "other.root", "nanoaod")
    for chunks in ("100", "3"):
        weight, notes = converted(without_runs, "--xsec", "2", "--chunk-events", chunks)
        np.testing.assert_allclose(weight, WEIGHT * 2e3 / WEIGHT.sum())
        assert "(genWeight)" in notes


@pytest.mark.parametrize("kind", ["delphes", "physlite"])
def test_other_formats_and_our_own_are_summed_over_the_file(kind: str, tmp_path: Path) -> None:
    path = root_events.write(tmp_path / "a.root", kind)
    assert converted(path, "--xsec", "1")[0].sum() == pytest.approx(1e3)
    events = read_events(path)
    write_events(tmp_path / "b.parquet", events)
    scored = Sources([tmp_path / "b.parquet"], samples=Samples((Sample(xsec=4.0),), lumi=0.5))
    assert EventSet.concatenate(list(scored.stream())).weight.sum() == pytest.approx(2e3)


def test_a_weight_can_be_chosen(tmp_path: Path) -> None:
    other = np.arange(1.0, 8.0)
    path = nanoaod(tmp_path / "a.root", [1e6], LHEWeight_originalXWGTUP=other)
    np.testing.assert_array_equal(converted(path, "--weight", "LHEWeight_originalXWGTUP")[0], other)
    # The tree of runs sums another weight.
    weight, _ = converted(path, "--weight", "LHEWeight_originalXWGTUP", "--xsec", "1")
    np.testing.assert_allclose(weight, other * 1e3 / other.sum())
    converted(path, "--keep", "LHEWeight_originalXWGTUP")
    kept = read_events(tmp_path / "a.parquet", options=ReadOptions(weight="LHEWeight_originalXWGTUP"))
    np.testing.assert_array_equal(kept.weight, other)
    for file, code, message in (
        (path, 3, "of the weights is missing; did you mean 'LHEWeight_originalXWGTUP'? choose from LHEW"),
        (tmp_path / "a.parquet", 2, "no column 'LHEWeight_original' was kept in it; did you mean 'LHEWeight_original"),
    ):
        result = unmask("data", "convert", file, "-o", tmp_path / "no.parquet", "--weight", "LHEWeight_original")
        assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert not (tmp_path / "no.parquet").exists()


def test_a_file_of_samples_normalizes_and_names_each(tmp_path: Path) -> None:
    (tmp_path / "samples.toml").write_text(TOML)
    files = [nanoaod(tmp_path / f"ttbar_{i}.root", [10.0]) for i in (1, 2)]
    files.append(nanoaod(tmp_path / "other" / "signal.root", [4.0]))
    files.append(root_events.write(tmp_path / "data.root", "nanoaod"))
    out = tmp_path / "all.parquet"
    result = unmask("data", "convert", *files, "--samples", tmp_path / "samples.toml", "-o", out)
    assert "2 files of ttbar_*.root: weights times 1.2e+05" in result.stderr
    events = read_events(out)
    assert events.process.tolist() == ["ttbar"] * 14 + ["signal"] * 7 + ["data"] * 7
    assert events.label.tolist() == [0] * 14 + [1] * 7 + [-1] * 7
    scales = np.repeat([2e3 * 800 * 1.5 / 20, 2e3 * 0.5 / 4, 1.0], [14, 7, 7])
    np.testing.assert_allclose(events.weight, np.tile(WEIGHT, 4) * scales)
    sources = Sources(files, samples=read_samples(tmp_path / "samples.toml"))
    parts = [EventSet.concatenate(list(part.stream())) for part in sources.parts(3)]
    assert [len(part) for part in parts] == [9, 9, 10]  # a part of a file has the scale of the whole
    np.testing.assert_allclose(EventSet.concatenate(parts).weight, events.weight)
    assert EventSet.concatenate(parts).label.tolist() == events.label.tolist()


def test_bad_samples_are_named(tmp_path: Path) -> None:
    path = nanoaod(tmp_path / "ttbar_1.root", [10.0])
    toml = tmp_path / "samples.toml"
    for text, message in (
        ("lumi = 3", "samples.toml: no samples; expected [[sample]]"),
        ('[[samples]]\nfiles = "*"', "no samples; expected [[sample]]"),
        ("lumu = 3\n[[sample]]", "lumu: unknown setting; did you mean 'lumi'?"),
        ('[[sample]]\nfiles = "*"\nxsec_pb = 3', "sample 1: xsec_pb: unknown setting; did you mean 'xsec'?"),
        ("[[sample]]\nfiles = 3", "sample 1: files is 3; expected text"),
        ('[[sample]]\nfiles = "*"\nxsec = "3"', "sample 1: xsec is '3'; expected a number or nothing"),
        ('[[sample]]\nfiles = "*"\nxsec = -3', "sample 1: xsec is -3; expected more than 0 or nothing"),
        ('[[sample]]\nfiles = "*"\nlabel = "bkg"', "label is 'bkg'; expected background, signal,"),
        ('[[sample]]\nfiles = "ttZ_*.root"', "ttbar_1.root matches none of the samples"),
        ('[[sample]]\nfiles = "*"\n[[sample]]\nfiles = "t*"', "ttbar_1.root matches '*' and 't*'"),
    ):
        toml.write_text(text)
        result = unmask("data", "convert", path, "--samples", toml, "-o", tmp_path / "no.parquet")
        assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    for options, message in (
        (("--xsec", "0"), "xsec is 0.0; expected more than 0"),
        (("--lumi", "3"), "--lumi goes with one of them"),
        (("--xsec", "3", "--samples", toml), "several samples need --samples"),
        (("--samples", tmp_path / "none.toml"), "none.toml: no such file"),
        (("--samples", tmp_path / "bad.toml"), "bad.toml: is not TOML: Invalid value"),
    ):
        (tmp_path / "bad.toml").write_text("lumi = ")
        result = unmask("data", "convert", path, *options, "-o", tmp_path / "no.parquet")
        assert (result.returncode != 0, message in result.stderr) == (True, True), result.stderr
    assert not (tmp_path / "no.parquet").exists()


def test_weights_that_cannot_be_normalized_are_an_error(tmp_path: Path) -> None:
    negative = nanoaod(tmp_path / "negative.root", [-3.0])
    data = root_events.nanoaod()
    data[""]["genWeight"] = np.array([1.0, -1, 1, -1, 1, -1, 0])
    zero = root_events.write(tmp_path / "zero.root", "nanoaod", data)
    for path, message in ((negative, "(Runs.genEventSumw) of sample '*' add up to -3"), (zero, "(genWeight) of")):
        result = unmask("data", "convert", path, "--xsec", "1", "-o", tmp_path / "no.parquet")
        assert (result.returncode, message in result.stderr) == (3, True), result.stderr
    assert not (tmp_path / "no.parquet").exists()
    path = nanoaod(tmp_path / "a.root", [10.0])
    converted(path, "--cut", "met > 40")
    result = unmask("data", "convert", tmp_path / "a.parquet", "--xsec", "1", "-o", tmp_path / "no.parquet")
    assert (result.returncode, "was written with a cut" in result.stderr) == (2, True), result.stderr


def test_files_are_labeled_by_what_they_are_given_as(make_events: Callable[..., EventSet], tmp_path: Path) -> None:
    known = {"bkg": make_events(40, label=-1, seed=1), "sig": make_events(20, label=1, seed=2)}
    known["data"] = make_events(30, label=1, seed=3)
    paths = {name: tmp_path / f"{name}.parquet" for name in known}
    for name, events in known.items():
        write_events(paths[name], events)
    roles = ("--background", paths["bkg"], "--signal", paths["sig"], "--data", paths["data"])
    result = unmask("score", "sample:gluino-model", *roles, "--out", tmp_path / "scores.parquet")
    assert result.returncode == 0, result.stderr
    assert read_scores(tmp_path / "scores.parquet").label.tolist() == [0] * 40 + [1] * 20 + [-1] * 30
    labels = dict(zip((path.absolute() for path in paths.values()), (0, 1, -1), strict=True))
    sources = Sources(paths.values(), labels=labels)
    parts = [EventSet.concatenate(list(part.stream())) for part in sources.parts(2)]
    assert EventSet.concatenate(parts).label.tolist() == [0] * 40 + [1] * 20 + [-1] * 30
    measured = unmask("evaluate", tmp_path / "scores.parquet")
    assert "AUC" in measured.stdout
    assert "30 of 90 events have no label and are left out" in measured.stderr
    for command, message in (
        (("--background", paths["sig"]), "sig.parquet: given as background, but 20 of 20 events are labeled signal"),
        ((paths["bkg"], "--background", paths["bkg"]), "is given twice"),
        (("--background", paths["bkg"], "--label", "signal"), "all label; give one of them"),
        (("--background", paths["bkg"], "--xsec", "3"), "several samples need --samples"),
        ((), "no event files; give FILE..., or --background, --signal or --data"),
    ):
        result = unmask("score", "sample:gluino-model", *command, "--out", tmp_path / "no.parquet")
        assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "no.parquet").exists()
    with pytest.raises(UsageError, match="given as background"):
        list(Sources([paths["sig"]], labels={paths["sig"].absolute(): 0}).stream())
    assert set(read_events(paths["sig"]).label) == {SIGNAL}
