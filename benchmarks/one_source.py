"""Rates of the default detector and of VQ-VAE training with whatever source of unmask is on the path, as JSON.

Run by `against_reference` in processes of their own, once for each source, so it keeps to what both have.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import EventSet, load_sample
from unmask.detectors import load_detector
from unmask.detectors.base import Detector
from unmask.training import EpochRecord, Reporter

try:
    from unmask.workflow.settings import load_settings, preset_names
except ImportError:  # the earlier commit
    from unmask.studies.presets import load_preset, preset_names

    load_settings = None

IS_CUDA = torch.cuda.is_available()


class EpochTimes(Reporter):
    """When epochs end, everything that belongs to them included."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def epoch_done(self, record: EpochRecord) -> None:  # noqa: ARG002
        self.ends.append(time.perf_counter())

    def shortest(self) -> float:
        return float(np.diff(self.ends).min())


def main() -> None:
    torch.set_num_threads(1)
    # Of a default that is made of two detectors the training of one, by far the longer, is timed.
    trained = "default-replaced" if "default-replaced" in preset_names() else "default"
    n_train, n_scored = (60_000, 300_000) if IS_CUDA else (2_000, 2_000)
    figures = {}
    for study in ("gluino", "four-top"):
        sample = load_sample(study)
        background = sample[sample.label == 0]
        train, scored = (background[np.resize(np.arange(len(background)), n)] for n in (n_train, n_scored))
        times, validation = EpochTimes(), background[-500:]
        _detector(trained, 3).fit(train, validation, reporter=times)
        figures[f"{study}, default: training events/s"] = n_train / times.shortest()
        detector = _detector("default", 1).fit(background[:1000], validation)
        with tempfile.TemporaryDirectory() as folder:
            detector.save(Path(folder) / "model")
            detector = load_detector(Path(folder) / "model")
        figures[f"{study}, default: scored events/s"] = n_scored / min(_seconds(detector, scored) for _ in range(2))
    times = EpochTimes()
    name = next(name for name in ("four-top-vq-512", "vq-512") if name in preset_names())
    changes = _changes(3)
    tokenizer = (
        load_settings(name, {"tokenizer": changes}).new_tokenizer()
        if load_settings
        else load_preset(name).new_tokenizer(changes)
    )
    tokenizer.fit(train, validation, reporter=times)
    figures["four-top, VQ-VAE with 512 codes: training events/s"] = n_train / times.shortest()
    json.dump(figures, sys.stdout)


def _detector(name: str, max_epochs: int) -> Detector:
    changes = _changes(max_epochs)
    if load_settings:
        return load_settings(name, changes).new_detector()
    return load_preset(name).new_detector(changes=changes)


def _changes(max_epochs: int) -> dict[str, Any]:
    return {"training": {"max_epochs": max_epochs, "device": "cuda" if IS_CUDA else "cpu"}}


def _seconds(detector: Detector, events: EventSet) -> float:
    started = time.perf_counter()
    detector.score_events(events)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
