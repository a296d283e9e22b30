"""Writes a saved detector as one ONNX graph, after ONNX Runtime and torch have agreed on events made for it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, checker, helper

from unmask.artifacts import MANIFEST, Json, atomic_path, load_artifact, provenance, sha256_of_file
from unmask.detectors import Detector, load_detector
from unmask.errors import UnmaskError, UsageError
from unmask.events.distributions import to_arrays
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.events.objects import TAGS
from unmask.events.schema import EventSchema
from unmask.export import operators  # noqa: F401 (fills the tables of tracing)
from unmask.export.graphs import PValue, graph_of
from unmask.export.onnx_detector import FORMAT_VERSION, GRAPH, METADATA, OnnxDetector, inputs_of
from unmask.export.probes import probe_events
from unmask.export.tracing import Graph, Traced
from unmask.io.sample import resolve
from unmask.model_card import model_card
from unmask.networks.event_network import SetNetwork
from unmask.outputs import check_output
from unmask.scores.calibration import Calibration

#: Old enough for the runtimes of experiments.
OPSET, IR_VERSION = 17, 8
#: Scores of ONNX Runtime and torch differ by at most this, and by this part of the score.
TOLERANCE = 1e-5
#: Contributions: the tail of an observable is a staircase, on which a last digit of the MET can be a small step.
EXPLAINED_TOLERANCE = 1e-3
N_REFERENCE = 64
_ARRAYS = {
    "tag": (torch.uint8, "object type, 0 for an empty slot"),
    "energy_mev": (torch.float32, "energy in MeV"),
    "pt_mev": (torch.float32, "pT in MeV"),
    "eta": (torch.float32, "pseudorapidity"),
    "phi": (torch.float32, "azimuth in radians, from -pi to pi"),
    "met_mev": (torch.float32, "MET in MeV"),
    "met_phi": (torch.float32, "azimuth of the MET in radians, from -pi to pi"),
}
_EXPLAIN = "explain"


def export(
    model: str | Path,
    out: str | Path,
    *,
    calibration: str | Path | None = None,
    max_objects: int | None = None,
    overwrite: bool = True,
) -> dict[str, float]:
    """Write a saved detector as an ONNX graph, with reference events beside it.

    Parameters
    ----------
    model
        Folder of a saved detector, or ``sample:gluino-model``.
    out
        File to write, ``model.onnx``; the reference is ``model.reference.json``.
    calibration
        Folder of a calibration of this model: the graph then gives p-values.
    max_objects
        Objects per event that the graph has room for, at most those of the model; with fewer it is faster.
    overwrite
        Whether a graph that is there is replaced.

    Returns
    -------
    dict
        Largest differences between ONNX Runtime and torch, by output.

    Raises
    ------
    UsageError
        If the detector has no graph, or the calibration is that of another model.
    """
    folder, out = resolve(model), Path(out)
    reference = out.with_suffix(".reference.json")
    check_output(out, ["graph"], [folder], endings=(GRAPH,), overwrite=overwrite)
    check_output(reference, ["reference"], [folder], overwrite=overwrite)
    detector, digest = load_detector(folder), sha256_of_file(folder / MANIFEST)
    if max_objects is not None:
        detector.schema_ = _narrowed(detector, max_objects)
    known = None if calibration is None else Calibration.load(calibration)
    if known and known.scored_by.model not in (None, digest):
        raise UsageError(f"{calibration} is a calibration of another model ({known.scored_by}); this is {digest[:12]}")
    content = build(
        detector, known, {"model": digest, "training": load_artifact(folder).provenance | detector.metadata()}
    ).SerializeToString()
    events = probe_events(detector)
    differences, outputs = _compare(detector, OnnxDetector.of(content, out), events, known)
    with atomic_path(out) as scratch:
        scratch.write_bytes(content)
    with atomic_path(reference) as scratch:
        scratch.write_text(json.dumps({"reference_of": digest, **outputs}) + "\n")
    return differences


def _narrowed(detector: Detector, max_objects: int) -> EventSchema:
    """The schema of a detector whose events have fewer objects, if its network can score them."""
    network = getattr(detector, "network_", None)
    if not 1 <= max_objects <= detector.schema_.max_objects:
        raise UsageError(f"--max-objects is {max_objects}; expected from 1 to {detector.schema_.max_objects}")
    if not isinstance(network, SetNetwork):
        raise UsageError(f"the network of this {detector.kind} needs all its slots; leave out --max-objects")
    return replace(detector.schema_, max_objects=max_objects)


def build(detector: Detector, calibration: Calibration | None, facts: dict[str, Json]) -> ModelProto:
    """Build the graph of a detector, with everything that :class:`OnnxDetector` needs in its metadata."""
    graph, n = Graph(), detector.schema_.max_objects
    arrays = [
        graph.input(name, dtype, *([] if name.startswith("met") else [n]), text=text)
        for name, (dtype, text) in _ARRAYS.items()
    ]
    code = graph_of(detector)
    arrays[0] = arrays[0].long()  # older runtimes cannot compare small integers
    with torch.no_grad():
        outputs = code(*arrays)
        if calibration:
            outputs["p_value"] = PValue(calibration.survival)(outputs["score"])
        if detector.can_explain:
            outputs |= _when_asked(graph, lambda: code.explain(outputs, *arrays))
    metadata = {
        "format_version": FORMAT_VERSION,
        "kind": detector.kind,
        **facts,
        "record": detector.record(),
        "inputs": {name: text for name, (_, text) in _ARRAYS.items()},
        "object_types": {name: TAGS[name] for name in detector.schema_.object_types},
        "calibration": calibration and {"threshold": calibration.threshold, "target": calibration.target},
        "words": code.words(),
        "opset": OPSET,
        "provenance": provenance(),
        "background": {name: values.tolist() for name, values in to_arrays(detector.background_, "").items()},
        "fingerprints": _encoded(detector.seen_),
        "theories": _encoded(detector.theories_),
    }
    infos = [graph.info(value, name) for name, value in outputs.items()]
    graph.nodes += [helper.make_node("Identity", [value.name], [name], name) for name, value in outputs.items()]
    constants = list(graph.initializers.values())
    proto = helper.make_graph(graph.nodes, "unmask", graph.inputs, infos, constants)
    opset = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(proto, opset_imports=opset, ir_version=IR_VERSION, producer_name="unmask")
    threshold = calibration and f"Threshold {calibration.threshold:.6g}: background efficiency {calibration.measured}"
    made.doc_string = model_card(
        detector.kind, detector.settings(), facts["training"], [threshold] if threshold else []
    )
    helper.set_model_props(made, {METADATA: json.dumps(metadata)})
    checker.check_model(made)
    return made


def _when_asked(graph: Graph, explained: Any) -> dict[str, Traced]:
    """Values that are computed only if the input ``explain`` is true; otherwise they are zeros."""
    graph.flag(_EXPLAIN, "whether to compute contributions; may be left out")
    with graph.branch() as then:
        values = explained()
    with graph.branch() as otherwise:
        zeros = {
            name: graph.emit("Expand", graph.name(0, value.dtype), graph.integers(*value.shape))
            for name, value in values.items()
        }
    branches = {
        "then_branch": helper.make_graph(then, "then", [], [graph.info(value) for value in values.values()]),
        "else_branch": helper.make_graph(
            otherwise, "else", [], [graph.info(value, zeros[name]) for name, value in values.items()]
        ),
    }
    names = graph.emit("If", _EXPLAIN, n=len(values), **branches)
    names = names if len(values) > 1 else [names]
    return {name: Traced(graph, one.example, to) for (name, one), to in zip(values.items(), names, strict=True)}


def _compare(
    detector: Detector, exported: OnnxDetector, events: EventSet, calibration: Calibration | None
) -> tuple[dict[str, float], dict[str, Json]]:
    """Largest differences between torch and ONNX Runtime, and reference events; raises UnmaskError if they differ."""
    score = detector.score_events(events, device="cpu")
    outputs = exported.run(events)
    differences = {"score": _difference(outputs["score"], score, TOLERANCE, "scores")}
    if calibration:  # a p-value is a staircase of the score
        shift = TOLERANCE * (1 + np.abs(score))
        high, low = (calibration.survival.p_values(score + sign * shift) for sign in (-1, 1))
        outside = np.maximum(outputs["p_value"] - high, low - outputs["p_value"]).clip(0)
        differences["p_value"] = _difference(outside, np.zeros(len(events)), 1e-12, "p-values")
    if detector.can_explain:
        few = events[:: max(1, len(events) // N_REFERENCE)]
        ours, theirs = ([one.object_contribution for one in each.explain(few)] for each in (exported, detector))
        given, expected = (np.concatenate([np.array(one, np.float64) for one in each]) for each in (ours, theirs))
        differences["contribution"] = _difference(given, expected, EXPLAINED_TOLERANCE, "contributions")
    inputs = {name: array.tolist() for name, array in inputs_of(events[-N_REFERENCE:]).items()}
    some = {name: outputs[name][-N_REFERENCE:].tolist() for name in ("score", "p_value") if name in outputs}
    return differences, {"inputs": inputs, "outputs": some}


def _difference(given: Any, expected: Any, tolerance: float, what: str) -> float:
    difference = np.abs(given - expected)
    wrong = ~(difference <= tolerance * (1 + np.abs(expected)))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise UnmaskError(
            f"{what} of ONNX Runtime and torch differ ({given[at]:.8g} and {expected[at]:.8g}; {int(wrong.sum()):,} of "
            f"{len(wrong):,}), so nothing was written; update onnxruntime"
        )
    return float(difference.max(initial=0))


def _encoded(known: TrainingFingerprints | None) -> str:
    return base64.b64encode(known.fingerprint.tobytes() if known else b"").decode()
