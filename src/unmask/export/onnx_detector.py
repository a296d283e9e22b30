"""An exported graph as a detector: scores events with ONNX Runtime, without torch."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.detectors.base import Detector, ScoresAndLosses
from unmask.detectors.observable_tail import observable_terms
from unmask.detectors.token_explanations import TokenTexts
from unmask.errors import ArtifactError, UsageError, damage_named, require
from unmask.events.distributions import from_arrays
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.events.schema import EventSchema
from unmask.scores.explanations import Explanation, Term
from unmask.scores.p_values import p_value_text

#: Suffix of a graph.
GRAPH = ".onnx"
FORMAT_VERSION = 1
#: Key of the metadata of a graph.
METADATA = "unmask"
#: Outputs that explain scores.
_EXPLAINING = {"contribution", "probability"}
#: Events in memory at a time: pair features are 171 rows for each, and an explained event is as many as it has slots.
_EVENTS, _EXPLAINED = 512, 64


class OnnxDetector(Detector):
    """A detector that ``unmask export`` wrote, of whatever kind; it cannot be fitted."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a graph.

        Raises
        ------
        ArtifactError
            If it is missing, damaged, not of unmask or of another version, or ONNX Runtime cannot run it.
        """
        path = Path(path)
        if not path.is_file():
            raise ArtifactError("no such file", path=path)
        return cls.of(path.read_bytes(), path)

    @classmethod
    def of(cls, content: bytes, path: Path) -> Self:
        """Load a graph from its bytes; ``path`` names it in errors."""
        require("onnxruntime", "onnx")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        what = f"ONNX Runtime {onnxruntime.__version__} cannot run it; export it again, or update onnxruntime"
        with damage_named(path, what, error=ArtifactError):
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        with damage_named(path, "no graph that unmask exported", error=ArtifactError):
            metadata = json.loads(session.get_modelmeta().custom_metadata_map[METADATA])
            version = metadata["format_version"]
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"format version {version}; this unmask reads {FORMAT_VERSION}. Export the model again", path=path
            )
        with damage_named(path, "metadata", error=ArtifactError):
            return cls(session, metadata)

    def __init__(self, session: Any, metadata: dict[str, Json]) -> None:
        self.session, self.facts = session, metadata
        self.kind = metadata["kind"]  # type: ignore[misc]
        self.schema_ = EventSchema.from_json(metadata["training"]["events"])
        self.fitted_on_ = metadata["record"]["fitted_on"]
        self.seen_, self.theories_ = (
            TrainingFingerprints(np.frombuffer(base64.b64decode(text), np.uint64)) if text else None
            for text in (metadata["fingerprints"], metadata["theories"])
        )
        histograms = {name: np.array(values) for name, values in metadata["background"].items()}
        self.background_ = from_arrays(metadata["training"]["variables"], histograms, "")
        self._outputs = [output.name for output in session.get_outputs()]
        self.can_explain = bool(_EXPLAINING & {*self._outputs})  # type: ignore[misc]
        if "token_loss" in self._outputs:
            self.score_names = (self.settings()["score"],)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<OnnxDetector of kind {self.kind}>"

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest of the model that was exported."""
        return str(self.facts["model"])

    def settings(self) -> dict[str, Json]:
        return dict(self.facts["record"]["settings"])

    def record(self) -> dict[str, Json]:
        return dict(self.facts["record"])

    def check(self) -> None:
        raise UsageError("a graph cannot be trained; train the detector and export it again")

    def _fit(self, train: EventSet, validation: EventSet, **options: Any) -> None:  # noqa: ARG002
        self.check()

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        return self._scored(events, None, device)[0]

    def _scored(self, events: EventSet, reduction: str | None, device: str) -> ScoresAndLosses:  # noqa: ARG002
        self._check_device(device)
        outputs = self.run(events)
        return outputs["score"], outputs.get("token_loss")

    def run(self, events: EventSet, *, explain: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Outputs of the graph by name; those that explain, which are large, only if asked for."""
        names = [name for name in self._outputs if explain or name not in _EXPLAINING]
        events = self.schema_.admit(events, f"{self.kind} detector")
        flag = {"explain": np.array(explain)} if self.can_explain else {}
        inputs = inputs_of(events)
        if not len(events):  # which ONNX Runtime cannot multiply: the shapes are those of one event
            inputs = {name: np.zeros((1, *array.shape[1:]), array.dtype) for name, array in inputs.items()}
        n, size = len(inputs["tag"]), _EXPLAINED if explain else _EVENTS
        parts = [
            self.session.run(names, {name: array[i : i + size] for name, array in inputs.items()} | flag)
            for i in range(0, n, size)
        ]
        whole = [np.concatenate(of_parts)[: len(events)] for of_parts in zip(*parts, strict=True)]
        return dict(zip(names, whole, strict=True))

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        self._check_device(device)
        if not self.can_explain:
            return super().explain(events)
        events = self.schema_.admit(events, f"{self.kind} detector")
        outputs, words = self.run(events, explain=True), self.facts["words"]
        if "token" in outputs:
            words = words | {"event_positions": {int(at): name for at, name in words["event_positions"].items()}}
            columns = (outputs[name] for name in ("token", "token_loss", "probability"))
            return list(TokenTexts(**words).explanations(events, *columns))
        of_network, *of_observables = np.split(outputs["minus_log_p"], outputs["minus_log_p"].shape[1], axis=1)
        names, (beyond, *limits) = words["observables"], words["beyond"]
        terms = observable_terms(events, names, [one[:, 0] for one in of_observables], limits)
        return [
            Explanation(
                contribution[is_object].tolist(),
                terms=[Term("objects, together", p_value_text(p, beyond), None, p), *observables],
            )
            for contribution, is_object, p, observables in zip(
                outputs["contribution"], events.is_object, of_network[:, 0].tolist(), terms, strict=True
            )
        ]

    def _check_device(self, device: str) -> None:
        if device not in ("auto", "cpu"):
            raise UsageError(f"device {device!r}: graphs are scored on the CPU; leave out --device")


def inputs_of(events: EventSet) -> dict[str, npt.NDArray[Any]]:
    """Inputs of the graph."""
    names = ("energy_mev", "pt_mev", "eta", "phi", "met_mev", "met_phi")
    return {"tag": events.tag} | {name: getattr(events, name).astype(np.float32, copy=False) for name in names}
