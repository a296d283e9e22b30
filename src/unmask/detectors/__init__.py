"""From events, or their tokens, to one number an event: larger is more anomalous."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from unmask.artifacts import load_artifact
from unmask.detectors.base import Detector
from unmask.errors import ArtifactError

__all__ = ["KINDS", "Detector", "detector_class", "load_detector"]

# kind -> module and class, imported when needed.
_CLASSES: dict[str, tuple[str, str]] = {
    "contrast": ("contrast", "ContrastDetector"),
    "masked-token": ("masked_token", "MaskedTokenDetector"),
    "ddd": ("ddd", "DDDDetector"),
    "deep-svdd": ("deep_svdd", "DeepSVDDDetector"),
    "drocc": ("drocc", "DROCCDetector"),
    "trivial": ("trivial", "TrivialDetector"),
}
KINDS: tuple[str, ...] = tuple(_CLASSES)
#: Kinds of earlier versions, whose models can no longer be read.
_FORMER = {"replaced-object", "likelihood-ratio", "joint-tail", "supervised-bound"}
_FORMER |= {"flow", "beta-vae", "isolation-forest", "combination"}


def detector_class(kind: str) -> type[Detector]:
    """The class of a kind in ``KINDS``."""
    module, name = _CLASSES[kind]
    found: type[Detector] = getattr(import_module(f"unmask.detectors.{module}"), name)
    return found


def load_detector(folder: str | Path) -> Detector:
    """Load a saved detector of any kind.

    Raises
    ------
    ArtifactError
        If it is not there, not a detector, of another version, damaged or changed by hand.
    """
    artifact = load_artifact(folder)
    if artifact.kind in _FORMER:
        raise ArtifactError(
            f"holds a {artifact.kind} detector of an earlier version, which this unmask cannot read; train one of "
            "those that unmask list shows",
            path=folder,
        )
    if artifact.kind not in _CLASSES:
        raise ArtifactError(f"holds a {artifact.kind}, not a detector ({', '.join(_CLASSES)})", path=folder)
    return detector_class(artifact.kind).from_artifact(artifact, Path(folder))
