"""Saved models and calibrations of wrong content whose digest fits: refused by name, never a traceback."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import unmask
from unmask import EventSet, artifacts, load_sample
from unmask.errors import ArtifactError, BadDataError, UnmaskError
from unmask.fitted import TOKENIZERS
from unmask.io.sample import resolve
from unmask.scores.calibration import Calibration, calibrate
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.workflow.score import Scoring

MANIFEST, ARRAYS = "manifest.json", "arrays.safetensors"
#: How the names of arrays begin that every score or p-value depends on.
USED = ("logits", "network/body", "network/head", "score", "p_value", "efficiency", "unit")


@pytest.fixture(scope="module")
def events() -> EventSet:
    sample = load_sample("gluino")
    return sample[sample.label == 0][:300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, events: EventSet) -> dict[str, Path]:
    """A detector, a tokenizer and a calibration."""
    folder = tmp_path_factory.mktemp("saved")
    shutil.copytree(resolve("sample:gluino-model"), folder / "detector")
    LookupTableTokenizer().fit(events).save(folder / "tokenizer")
    scores = unmask.load("sample:gluino-model").scores(events)
    calibrate(scores, background_efficiency=0.1).save(folder / "calibration")
    return {name: folder / name for name in ("detector", "tokenizer", "calibration")}


def use(folder: Path, events: EventSet) -> None:
    """Load and use whatever is saved there."""
    kind = json.loads((folder / MANIFEST).read_text()).get("kind")
    if kind == "calibration":
        calibration = Calibration.load(folder)
        repr(calibration)
        calibration.p_values(np.array([0.0, 1.0]))
    else:
        made: Any = unmask.load(folder)
        repr(made)
        (made.encode if made.kind in TOKENIZERS else made.scores)(events[:5])


def signed(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the digest of its content."""
    manifest["files"] = artifacts._hashes(folder) if isinstance(manifest.get("files"), dict) else manifest.get("files")
    manifest["digest"] = artifacts._digest(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inner = (
        content.items() if isinstance(content, dict) else enumerate(content[:2] if isinstance(content, list) else ())
    )
    for key, value in inner:
        yield from places(value, (*at, key))


NESTED: list[Any] = []
for _ in range(300):
    NESTED = [NESTED]
VALUES = (None, "x", -1, 0, 1e308, float("nan"), 10**12, [], {}, ["a"], {"a": 1}, True, NESTED, "gone")


@pytest.mark.parametrize("name", ["detector", "tokenizer", "calibration"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_manifest_with_any_other_value_works_or_is_refused(
    saved: dict[str, Path], events: EventSet, tmp_path: Path, name: str, data: st.DataObject
) -> None:
    manifest = json.loads((saved[name] / MANIFEST).read_text())
    *tables, key = data.draw(st.sampled_from([place for place in places(manifest) if place != ("digest",)]))
    value = data.draw(st.sampled_from(VALUES))
    changed = inner = copy.deepcopy(manifest)
    for table in tables:
        inner = inner[table]
    inner[key] = value
    if value == "gone":
        del inner[key]
    folder = tmp_path / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved[name], folder)
    signed(folder, changed)
    with suppress(UnmaskError):
        use(folder, events)


def wider(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([array, array])


def not_a_number(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.full_like(array, np.nan) if array.dtype.kind == "f" else array - 1


@pytest.mark.parametrize("name", ["detector", "calibration"])
@pytest.mark.parametrize("change", [wider, not_a_number])
def test_arrays_of_other_shapes_or_without_numbers_are_refused(
    saved: dict[str, Path],
    events: EventSet,
    tmp_path: Path,
    name: str,
    change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
) -> None:
    arrays = load_file(saved[name] / ARRAYS)
    whole = [key for key, array in arrays.items() if len(array) > 1 and key.startswith(USED)]
    assert len(whole) > 2
    for key in whole[:6]:
        folder = tmp_path / key.replace("/", "-")
        shutil.copytree(saved[name], folder)
        save_file(arrays | {key: change(arrays[key])}, folder / ARRAYS)
        signed(folder, json.loads((folder / MANIFEST).read_text()))
        with pytest.raises(ArtifactError, match="does not hold a whole"):
            use(folder, events)


def test_a_network_of_ten_million_layers_is_not_built(events: EventSet, tmp_path: Path) -> None:
    changes = {"training": {"max_epochs": 1}}
    unmask.fit("masked-token", events, events, changes=changes, device="cpu").save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / MANIFEST).read_text())
    manifest["settings"]["n_layers"] = 10**7
    signed(tmp_path / "model", manifest)
    with pytest.raises(ArtifactError, match="n_layers is 10000000; expected from 1 to 1,000"):
        unmask.load(tmp_path / "model")
    manifest["settings"] |= {"n_layers": 1000, "hidden": 1 << 16, "n_heads": 8}  # of 200 TB
    signed(tmp_path / "model", manifest)
    with pytest.raises(ArtifactError, match=r"Missing key|size mismatch"):
        unmask.load(tmp_path / "model")


def test_scores_that_are_no_numbers_are_not_written(events: EventSet, tmp_path: Path) -> None:
    detector: Any = unmask.load("sample:gluino-model")
    with torch.no_grad():
        detector.network_.head.bias.fill_(math.nan)  # as after a training that went wrong unnoticed
    with pytest.raises(BadDataError, match="300 of 300 scores of this contrast detector are NaN or infinite"):
        Scoring(detector, device="cpu").write([events], tmp_path / "scores.parquet")
    assert not [*tmp_path.iterdir()]
