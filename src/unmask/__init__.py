"""Anomaly detection for LHC events without a signal model.

Detectors train on background and score each event. The default separates background from altered copies and multiplies
its tail probability by that of global observables; the masked-token detector is the published method.

The public names are imported when first used, so that ``import unmask`` is instant and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.detectors.contrast import ContrastDetector as ContrastDetector
    from unmask.detectors.masked_token import MaskedTokenDetector as MaskedTokenDetector
    from unmask.evaluation.evaluate import evaluate as evaluate
    from unmask.events.event_set import EventSet as EventSet
    from unmask.events.observables import OBSERVABLES as OBSERVABLES
    from unmask.events.splits import split_background as split_background
    from unmask.io.parquet import write_events as write_events
    from unmask.io.read import read_events as read_events
    from unmask.io.sample import load_sample as load_sample
    from unmask.io.source import ReadOptions as ReadOptions
    from unmask.report.page import write_report as write_report
    from unmask.scores.calibration import calibrate as calibrate
    from unmask.searches.search import search as search
    from unmask.tokenizers.lookup_table import LookupTableTokenizer as LookupTableTokenizer
    from unmask.tokenizers.vqvae import VQVAETokenizer as VQVAETokenizer
    from unmask.training import TrainingSettings as TrainingSettings
    from unmask.workflow.fit import fit as fit
    from unmask.workflow.fit import load as load
    from unmask.workflow.score import score as score

#: The only place of the version; pyproject.toml reads it.
__version__ = "0.1.0"
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
    "search": "unmask.searches.search",
    "split_background": "unmask.events.splits",
    "write_events": "unmask.io.parquet",
    "write_report": "unmask.report.page",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'unmask' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
