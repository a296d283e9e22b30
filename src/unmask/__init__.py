"""Anomaly detection for LHC events without a signal model.

Detectors train on background and score each event. The default separates background from altered copies and multiplies
its tail probability by that of global observables; the masked-token detector is the published method.

The public names are imported when first used, so that ``import unmask`` is instant and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.detectors import load_detector
    from unmask.detectors.contrast import ContrastDetector
    from unmask.detectors.masked_token import MaskedTokenDetector
    from unmask.events.event_set import EventSet, concatenate_events
    from unmask.events.splits import split_background
    from unmask.io.parquet import write_events
    from unmask.io.read import BadEvents, ReadOptions, read_events, stream_events
    from unmask.io.sample import load_sample
    from unmask.scores.score_table import Scores, write_scores
    from unmask.tokenizers import load_tokenizer
    from unmask.tokenizers.base import Tokenizer, TokenSet
    from unmask.tokenizers.lookup_table import LookupTableTokenizer
    from unmask.tokenizers.vqvae import VQVAETokenizer
    from unmask.training import TrainingSettings

_HOME = {
    "BadEvents": "unmask.io.read",
    "ContrastDetector": "unmask.detectors.contrast",
    "EventSet": "unmask.events.event_set",
    "LookupTableTokenizer": "unmask.tokenizers.lookup_table",
    "MaskedTokenDetector": "unmask.detectors.masked_token",
    "ReadOptions": "unmask.io.read",
    "Scores": "unmask.scores.score_table",
    "TokenSet": "unmask.tokenizers.base",
    "Tokenizer": "unmask.tokenizers.base",
    "TrainingSettings": "unmask.training",
    "VQVAETokenizer": "unmask.tokenizers.vqvae",
    "concatenate_events": "unmask.events.event_set",
    "load_detector": "unmask.detectors",
    "load_sample": "unmask.io.sample",
    "load_tokenizer": "unmask.tokenizers",
    "read_events": "unmask.io.read",
    "split_background": "unmask.events.splits",
    "stream_events": "unmask.io.read",
    "write_events": "unmask.io.parquet",
    "write_scores": "unmask.scores.score_table",
}

__all__ = [
    "BadEvents",
    "ContrastDetector",
    "EventSet",
    "LookupTableTokenizer",
    "MaskedTokenDetector",
    "ReadOptions",
    "Scores",
    "TokenSet",
    "Tokenizer",
    "TrainingSettings",
    "VQVAETokenizer",
    "concatenate_events",
    "load_detector",
    "load_sample",
    "load_tokenizer",
    "read_events",
    "split_background",
    "stream_events",
    "write_events",
    "write_scores",
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
