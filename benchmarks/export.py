"""An exported detector beside the same one in torch, on one core: one event, and many."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import best_times
from unmask import load_sample
from unmask.detectors.contrast import ContrastDetector
from unmask.events.event_set import EventSet
from unmask.export.onnx_detector import inputs_of
from unmask.export.write import export
from unmask.io.sample import sample_path
from unmask.networks.event_network import SetNetwork
from unmask.networks.event_tensors import event_tensors

_N_EVENTS, _N_EXPLAINED = 2048, 64
_REPEATS = 1000  # of one event: the shortest is that without other programs
#: Slots of graphs; few background events of the sample have more than 10 objects.
_SLOTS = (18, 10)


def run() -> dict[str, float]:
    """Microseconds of one event, events per second, and multiplications of the matrix products of the default."""
    detector = ContrastDetector.load(sample_path("gluino-model"))
    events = load_sample("gluino")
    events = events[events.n_objects <= min(_SLOTS)][:_N_EVENTS]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures: dict[str, float] = {}
        for slots in _SLOTS:
            some = events.with_max_objects(slots)
            figures[f"{slots} slots: multiplications per event"] = _multiplications(detector, some[:1])
            figures |= {f"{slots} slots, {name}": value for name, value in _compared(detector, some).items()}
        return figures
    finally:
        torch.set_num_threads(n_threads)


def _compared(detector: ContrastDetector, events: EventSet) -> dict[str, float]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        export(sample_path("gluino-model"), path := Path(folder) / "model.onnx", max_objects=events.max_objects)
        session = onnxruntime.InferenceSession(path, options)
    one, many, few = (inputs_of(events[:n]) for n in (1, _N_EVENTS, _N_EXPLAINED))
    few["explain"] = np.array(True)
    of_one = [  # one after the other, as a trigger runs: each would evict the other from the caches
        best_times(job, repeats=_REPEATS)[0]
        for job in (lambda: session.run(["score"], one), lambda: detector.score_events(events[:1]))
    ]
    times = (
        of_one,
        best_times(lambda: session.run(["score"], many), lambda: detector.score_events(events)),
        best_times(
            lambda: session.run(["contribution"], few), lambda: detector.explain(events[:_N_EXPLAINED]), repeats=3
        ),
    )
    figures = {}
    for name, of_one, of_many, of_explained in zip(("ONNX Runtime", "torch"), *times, strict=True):
        figures[f"{name}: one event, microseconds"] = of_one * 1e6
        figures[f"{name}: events/s"] = len(events) / of_many
        figures[f"{name}, explained: events/s"] = _N_EXPLAINED / of_explained
    return figures


def _multiplications(detector: ContrastDetector, event: EventSet) -> float:
    network = detector.network_
    assert isinstance(network, SetNetwork)
    kinematics, types = event_tensors(event)
    with FlopCounterMode(display=False) as counter:
        network.of_padded_inputs(network.standardize(kinematics, types), types)
    return float(counter.get_total_flops() // 2)
