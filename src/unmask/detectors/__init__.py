"""From events, or their tokens, to one score per event: larger is more anomalous."""

from unmask.detectors.base import Detector, load_detector

__all__ = ["Detector", "load_detector"]
