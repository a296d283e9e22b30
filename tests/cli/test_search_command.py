"""`unmask search`: from event files to a result, and messages for what cannot be searched."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import failing, running
from unmask import load_sample, write_events

pytest.importorskip("pyhf")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, sample = tmp_path_factory.mktemp("events"), load_sample("gluino")
    write_events(folder / "background.parquet", sample[sample.label == 0][1::4])
    write_events(folder / "gluino.parquet", sample[sample.label == 1][::6])
    return folder


def test_a_search_of_files(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, background, gluino = tmp_path / "out", files / "background.parquet", files / "gluino.parquet"
    command = ["search", "sample:gluino-model", "--background", background, "--signal", gluino, "--out", out]
    shown, notes = running(*command, "--inject", "gluino:0", "--lumi", "139")
    result = json.loads((out / "search.json").read_text())
    assert shown.startswith(result["summary"])
    assert result["summary"].startswith("Pseudo-data: ")
    assert "were in the training of the detector and are left out" in notes
    assert [one["name"] for one in result["regions"][:2]] == ["control", "validation"]
    assert result["limits"]["gluino"]["observed"] > 0
    assert f"{result['limits']['gluino']['observed']:.3g}" in shown
    assert (out / "workspace-gluino.json").is_file()
    assert (out / "figures" / "spectrum.pdf").is_file()
    assert result["summary"] in (out / "report.html").read_text()
    data = tmp_path / "data.parquet"
    write_events(data, load_sample("gluino").with_label(-1)[2::3])
    code, message = failing(*command, "--data", data)
    assert code == 2
    assert "exists; give --overwrite" in message
    code, message = failing(*command, "--data", data, "--overwrite")
    assert code == 3
    assert "data have weights (1 to 13.3467)" in message
    assert json.loads((out / "search.json").read_text()) == result
    for name in ("style.write_drawings", "page.write_report"):  # drawn once above
        monkeypatch.setattr(f"unmask.report.{name}", lambda *_, **__: None)
    counted = load_sample("gluino")
    counted = counted[counted.label == 0][2::8].with_label(-1)  # others than the background
    write_events(data, replace(counted, weight=np.ones(len(counted))))
    _, notes = running(*command[:4], "--out", out, "--data", data, "--edges", "0.6,0.1", "--overwrite")
    assert "the regions are others than those of the search that this one replaces" in notes
    assert json.loads((out / "search.json").read_text())["regions"][0]["p_above"] == 0.6
    assert (out / "events.parquet").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--edges", "0.2,x"], "--edges: 'x' is not a number"),
        (["--inject", "gluino"], "expected SIGNAL:STRENGTH"),
        (["--variation", "jes=up.root"], "expected NAME=UP,DOWN"),
        (["--variation", "a=b,c", "--variation", "a=d,e"], "names the same thing twice"),
    ],
)
def test_options_are_checked_before_events_are_scored(
    options: list[str], message: str, files: Path, tmp_path: Path
) -> None:
    command = ["search", "sample:gluino-model", "--background", files / "background.parquet", "--out", tmp_path / "out"]
    code, text = failing(*command, *options)
    assert code == 2
    assert message in text
    assert not (tmp_path / "out").exists()
