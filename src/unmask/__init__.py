"""Anomaly detection for LHC events without a signal model.

Detectors train on background and score each event. The default separates background from altered copies and multiplies
its tail probability by that of global observables; the masked-token detector is the published method.

The public names are imported when first used, so that ``import unmask`` is instant and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.detectors.contrast import ContrastDetector
    from unmask.detectors.masked_token import MaskedTokenDetector
    from unmask.evaluation.evaluate import evaluate
    from unmask.events.event_set import EventSet
    from unmask.events.observables import OBSERVABLES
    from unmask.events.splits import split_background
    from unmask.io.parquet import write_events
    from unmask.io.read import read_events
    from unmask.io.sample import load_sample
    from unmask.io.source import ReadOptions
    from unmask.report.page import write_report
    from unmask.scores.calibration import calibrate
    from unmask.tokenizers.lookup_table import LookupTableTokenizer
    from unmask.tokenizers.vqvae import VQVAETokenizer
    from unmask.training import TrainingSettings
    from unmask.workflow.fit import fit, load
    from unmask.workflow.score import score

_HOME = {
    "ContrastDetector": "unmask.detectors.contrast",
    "EventSet": "unmask.events.event_set",
    "LookupTableTokenizer": "unmask.tokenizers.lookup_table",
    "MaskedTokenDetector": "unmask.detectors.masked_token",
    "OBSERVABLES": "unmask.events.observables",
    "ReadOptions": "unmask.io.source",
    "TrainingSettings": "unmask.training",
    "VQVAETokenizer": "unmask.tokenizers.vqvae",
    "calibrate": "unmask.scores.calibration",
    "evaluate": "unmask.evaluation.evaluate",
    "fit": "unmask.workflow.fit",
    "load": "unmask.workflow.fit",
    "load_sample": "unmask.io.sample",
    "read_events": "unmask.io.read",
    "score": "unmask.workflow.score",
    "split_background": "unmask.events.splits",
    "write_events": "unmask.io.parquet",
    "write_report": "unmask.report.page",
}

__all__ = [
    "OBSERVABLES",
    "ContrastDetector",
    "EventSet",
    "LookupTableTokenizer",
    "MaskedTokenDetector",
    "ReadOptions",
    "TrainingSettings",
    "VQVAETokenizer",
    "calibrate",
    "evaluate",
    "fit",
    "load",
    "load_sample",
    "read_events",
    "score",
    "split_background",
    "write_events",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("unmask")
    raise AttributeError(f"module 'unmask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
