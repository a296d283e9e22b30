"""A small detector and files of events to share out."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.io.event_files import darkmachines_line, example_events
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.events.event_set import EventSet
from unmask.io.parquet import EventsWriter
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.training import TrainingSettings


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, make_events: Callable[..., EventSet]) -> Path:
    """Folder of a tiny detector."""
    return make_model(tmp_path_factory.mktemp("model") / "detector", make_events, seed=1)


def make_model(folder: Path, make_events: Callable[..., EventSet], *, seed: int) -> Path:
    detector = MaskedTokenDetector(
        LookupTableTokenizer(n_bins=4),
        hidden=8,
        n_layers=1,
        n_heads=2,
        training=TrainingSettings(max_epochs=1, device="cpu", seed=seed),
    )
    detector.fit(make_events(200, seed=seed), make_events(50, seed=seed + 1)).save(folder)
    return folder


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, make_events: Callable[..., EventSet]) -> list[Path]:
    """A Parquet file with gaps in its rows, a compressed and a plain text file."""
    folder = tmp_path_factory.mktemp("files")
    events = make_events(3001, file="original.csv", processes=("ttH", "ttW", "ttZ"))
    with EventsWriter(folder / "many.parquet") as writer:
        writer.write(events[np.arange(len(events)) % 7 != 3])
    lines = [darkmachines_line(event) + "\n" for event in example_events(40, seed=1)]
    (folder / "packed.csv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    (folder / "plain.csv").write_text("".join(lines[:25]))
    return sorted(folder.iterdir())
