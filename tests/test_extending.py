"""A new detector, observable and file format take three files at most, as ARCHITECTURE.md says, and work everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layout import SOURCE
from unmask import load_sample, write_events

LEADING_PT = '''"""Score by the largest pT."""

from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.detectors.base import Detector
from unmask.events.event_set import EventSet


class LeadingPtDetector(Detector):
    """The largest pT of an event."""

    kind = "leading-pt"

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:
        pass

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        return np.where(events.is_object, events.pt_mev, 0).max(axis=1).astype(np.float64)
'''
JSON_LINES = '''"""Events as a JSON object per line."""

import json
from collections.abc import Iterator

import numpy as np

from unmask.events.build import FlatEvents
from unmask.events.columns import Names
from unmask.io.source import Chunk, Source, decompressed


def stream(source: Source) -> Iterator[Chunk]:
    """Read all events of a file."""
    with source.path.open("rb") as file:
        events = [json.loads(line) for line in decompressed(file)]
    objects = np.array([one for event in events for one in event["objects"]]).reshape(-1, 5)
    row = np.arange(len(events))
    flat = FlatEvents(
        row=row,
        event_id=row,
        process_names=Names.of([source.default_process] * len(events)),
        weight=np.ones(len(events)),
        met_mev=np.array([event["met"] for event in events]),
        met_phi=np.array([event["met_phi"] for event in events]),
        n_objects=np.array([len(event["objects"]) for event in events]),
        tag=objects[:, 0].astype(np.uint8),
        energy_mev=objects[:, 1],
        pt_mev=objects[:, 2],
        eta=objects[:, 3],
        phi=objects[:, 4],
    )
    yield Chunk(flat, "line", row + 1)
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package, to be changed, and events beside it."""
    shutil.copytree(SOURCE, tmp_path / "src" / "unmask", ignore=shutil.ignore_patterns("__pycache__", "*.parquet"))
    sample = load_sample("gluino")
    write_events(tmp_path / "train.parquet", [sample[sample.label == 0][::40]])
    write_events(tmp_path / "test.parquet", [sample[::40]])
    return tmp_path / "src" / "unmask"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, (file, old)
    file.write_text(text.replace(old, new))


def unmask(source: Path, *commands: str) -> str:
    """What commands print, one after the other in one process, with the changed package."""
    code = "from unmask.cli import app\nimport unmask\n" + "".join(
        f"app({command.split()!r}, standalone_mode=False)\n" for command in commands
    )
    paths = os.environ | {"PYTHONPATH": str(source.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source.parents[1], env=paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_detector_takes_three_files(source: Path) -> None:
    (source / "detectors" / "leading_pt.py").write_text(LEADING_PT)
    change(
        source / "fitted.py",
        '    "untrained": (',
        '    "leading-pt": ("unmask.detectors.leading_pt", "LeadingPtDetector"),\n    "untrained": (',
    )
    preset = 'description = "largest pT"\n\n[detector]\nkind = "leading-pt"\n'
    (source / "workflow" / "presets" / "leading-pt.toml").write_text(preset)
    shown = unmask(
        source,
        "list",
        "train train.parquet --preset leading-pt --out model",
        "score model test.parquet --out leading.parquet",
        "evaluate leading.parquet --json",
    )
    names, _, result = shown.partition("{")
    assert "leading-pt" in names
    rows = {row["name"]: row for row in json.loads("{" + result)["rows"]}
    assert rows["leading"]["metrics"]["auc"]["value"] > 0.9


def test_an_observable_takes_one_file(source: Path) -> None:
    change(
        source / "events" / "observables.py",
        '        Observable("sum_pt"',
        '        Observable("leading_pt", "leading pT", '
        "lambda events: events.pt_mev.max(1, where=events.is_object, initial=0)),\n"
        '        Observable("sum_pt"',
    )
    shown = unmask(
        source,
        "train train.parquet --preset untrained --set score=leading-pt --out model",
        "score model test.parquet --out scores.parquet",
        "evaluate scores.parquet --json",
    )
    rows = {row["name"]: row for row in json.loads(shown[shown.index("{") :])["rows"]}
    assert rows["leading pT"]["kind"] == "untrained"
    assert rows["leading pT"]["metrics"]["auc"]["value"] == pytest.approx(rows["scores"]["metrics"]["auc"]["value"])


def test_a_format_takes_two_files(source: Path) -> None:
    (source / "io" / "json_lines.py").write_text(JSON_LINES)
    change(source / "io" / "__init__.py", '"fixed", "parquet", ', '"fixed", "json-lines", "parquet", ')
    event = {"met": 5e4, "met_phi": 1.0, "objects": [[1, 6e4, 5e4, 0.5, 1.0], [5, 3e4, 3e4, 0.0, -1.0]]}
    (source.parents[1] / "ww.jsonl").write_text(f"{json.dumps(event)}\n" * 3)
    shown = unmask(
        source,
        "data convert ww.jsonl --format json-lines --out ww.parquet",
        "data inspect ww.parquet --json",
    )
    summary = json.loads(shown[shown.index("{") :])
    assert summary["processes"] == {"ww": 3}
    assert summary["mean_objects_per_event"]["muon"] == 1
