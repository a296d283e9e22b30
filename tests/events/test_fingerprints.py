"""Knowing events again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask import load_sample, read_events
from unmask.events import fingerprints
from unmask.events.fingerprints import TrainingFingerprints


def test_every_event_of_the_sample_has_a_fingerprint_of_its_own() -> None:
    found = fingerprints.fingerprints(load_sample("gluino"))
    assert len(np.unique(found)) == len(found)


def test_only_the_content_counts() -> None:
    events = load_sample("gluino")[:200]
    seen = TrainingFingerprints.of(events)
    dressed = replace(events, weight=events.weight * 2, label=np.ones_like(events.label), row=events.row + 5)
    assert seen.contains(dressed).all()
    pt = events.pt_mev.copy()
    pt[:, 0] = np.nextafter(pt[:, 0], np.inf)
    assert not seen.contains(replace(events, pt_mev=pt)).any()
    assert not seen.contains(replace(events, met_phi=-events.met_phi)).any()


def test_a_text_file_and_the_table_made_of_it_hold_the_same_events(tmp_path: Path) -> None:
    from unmask import write_events
    from unmask.io.sample import sample_path

    events = read_events(sample_path("gluino"))[:100]
    write_events(tmp_path / "events.parquet", events)
    assert TrainingFingerprints.of(events).contains(read_events(tmp_path / "events.parquet")).all()


def test_of_very_many_events_some_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "MAX_REMEMBERED", 50)
    events = load_sample("gluino")[:200]
    seen = TrainingFingerprints.of(events)
    assert seen.contains(events).sum() == 50
