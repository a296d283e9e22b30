"""How long a study will take: an estimate, from the speed of a few training steps on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unmask.detectors.network import NetworkDetector
from unmask.events.checks import BadEvents
from unmask.events.event_set import BACKGROUND
from unmask.events.readers import ReadOptions, count_entries, detect_kind
from unmask.events.readers.base import Source, open_text
from unmask.events.sample import Study as SampleName
from unmask.events.sample import load_sample
from unmask.studies.configurations import Configuration
from unmask.studies.runner import StudyRun
from unmask.studies.stages import Planned, Stage
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training.devices import pick_device
from unmask.training.loop import LOG, TrainingSettings

#: Events that a speed is measured with, in turn, until a measurement has taken a second.
_N_EVENTS = {"cpu": (64, 1024), "cuda": (64, 8192)}
_LONG_ENOUGH_S = 1.0
#: Losses are measured after every epoch: on a tenth of the events each for training and validation, forward only.
_EVALUATION = 1.1
#: Events of which the lines are counted; the rest of a text file is taken to be alike.
_COUNTED_BYTES = 1 << 25
_BYTES_PER_EVENT = 400
#: Events/s of what is not trained, as measured on two cores of a server; and seconds whatever the number of events.
_RATES = {"background": 50_000.0, "signal": 50_000.0, "data": 50_000.0, "figures": 20_000.0, "results": 30_000.0}
_FIXED_S = {"figures": 3.0, "results": 4.0, "report": 4.0}


@dataclass(frozen=True)
class Speed:
    """Events/s of a configuration on this machine; None for what is not trained epoch by epoch."""

    tokenizer: float | None
    detector: float | None
    scoring: float


@dataclass(frozen=True)
class Estimate:
    """How long a stage takes; ``is_limit``: at most, since training may stop early."""

    seconds: float
    is_limit: bool = False


class Estimator:
    """Estimates the stages of a run."""

    def __init__(self, run: StudyRun) -> None:
        self.run = run
        self._speeds: dict[str, Speed] = {}

    def of(self, planned: Planned) -> Estimate:
        """Estimate one stage; what is done takes no time."""
        if planned.why is None:
            return Estimate(0.0)
        kind, _, name = planned.stage.name.partition(" ")
        n_train, n_validation = round(0.8 * self._n_background), round(0.1 * self._n_background)
        if kind in ("tokenizer", "detector"):
            return self._training(planned.stage, kind, name, n_train)
        if kind in ("scores", "calibration", "search"):
            n_scored = {"scores": n_validation + self._n_signal, "calibration": n_validation, "search": self._n_data}
            return Estimate(n_scored[kind] / self._speed(name).scoring)
        n_tests = n_validation + self._n_signal
        n_events = {"background": self._n_background, "signal": self._n_signal, "data": self._n_data}.get(kind, n_tests)
        if kind == "results":
            n_events *= len(self.run.configurations)
        return Estimate(_FIXED_S.get(kind, 0.0) + n_events / _RATES.get(kind, float("inf")))

    def _training(self, stage: Stage, kind: str, name: str, n_train: int) -> Estimate:
        settings = stage.settings.get("training")
        if settings is None:  # fitted at once
            return Estimate(1.0)
        log = _read_log(stage.run_folder / LOG) if stage.run_folder and self.run.ledger.can_continue(stage) else []
        n_left = settings["max_epochs"] - len(log)
        rate = log[-1]["events_per_second"] if log else getattr(self._speed(name), kind)
        return Estimate(max(n_left, 0) * n_train * _EVALUATION / rate, is_limit=True)

    def _speed(self, name: str) -> Speed:
        if name not in self._speeds:
            configuration = next(each for each in self.run.configurations if each.name == name)
            self._speeds[name] = measure_speed(configuration, self.run.device, self._sample)
        return self._speeds[name]

    @property
    def _sample(self) -> SampleName:
        """Events like those of the study; of one's own may be as long as any."""
        return "gluino" if self.run.study.name == "gluino" else "four-top"

    @cached_property
    def _n_background(self) -> int:
        files = self.run.files
        return self._count(path for path in files.background if not _is_of(path, files.signal_processes))

    @cached_property
    def _n_signal(self) -> int:
        files = self.run.files
        among = [path for path in files.background if _is_of(path, files.signal_processes)]
        return self._count([*files.signal, *among])

    @cached_property
    def _n_data(self) -> int:
        return self._count(self.run.files.data)

    def _count(self, paths: Iterable[Path]) -> int:
        return sum(count_events(path, self.run.files.options) for path in paths)


def measure_speed(configuration: Configuration, device: str, sample: SampleName) -> Speed:
    """Train and score for a moment with events of a sample."""
    events = load_sample(sample)
    background = events[events.label == BACKGROUND]
    short = replace(
        configuration,
        tokenizer_changes=_shortened(configuration.tokenizer_changes),
        detector_changes=_shortened(configuration.detector_changes),
    )
    numbers = _N_EVENTS[pick_device(device).type]
    validation = background[-64:]
    tokenizer, tokenizer_rate = short.new_tokenizer(), None
    if tokenizer is not None:
        tokenizer.fit(background[: numbers[-1]], validation)
        if isinstance(tokenizer, VQVAETokenizer) and tokenizer.history_:
            tokenizer_rate = tokenizer.history_[-1].events_per_second
    detector_rate, scoring_rate = None, 1.0
    for n_events in numbers:
        some, started = background[:n_events], time.perf_counter()
        detector = short.new_detector(tokenizer)
        if isinstance(detector, NetworkDetector):
            detector.training = _fitting(detector.training, n_events)
        detector.fit(some, validation)
        fitted = time.perf_counter()
        if isinstance(detector, NetworkDetector):
            detector_rate = detector.history_[-1].events_per_second
        detector.scores(some, device=device)
        scoring_rate = n_events / (time.perf_counter() - fitted)
        if time.perf_counter() - started > _LONG_ENOUGH_S:
            break
    return Speed(tokenizer_rate, detector_rate, scoring_rate)


def _shortened(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Two epochs: the first pays for what is made on the way."""
    return {**changes} | ({"training": {**changes["training"], "max_epochs": 2}} if "training" in changes else {})


def _fitting(training: TrainingSettings, n_events: int) -> TrainingSettings:
    return replace(training, batch_size=min(training.batch_size, n_events))


def count_events(path: Path, options: ReadOptions) -> int:
    """About how many events a file has, without reading all of a large text file."""
    kind = detect_kind(path)
    n_entries = count_entries(path, kind=kind, options=options)
    if n_entries is not None:
        return n_entries
    if kind != "darkmachines":
        return path.stat().st_size // _BYTES_PER_EVENT
    fraction = [1.0]
    source = Source(path, options, BadEvents(), lambda done: fraction.__setitem__(0, done))
    with open_text(source) as stream:
        n_lines = stream.read(_COUNTED_BYTES).count(b"\n")
    return round(n_lines / fraction[0])


def _is_of(path: Path, processes: tuple[str, ...]) -> bool:
    """Whether a file is named after one of the processes."""
    return path.name.split(".")[0] in processes


def _read_log(path: Path) -> list[dict[str, float]]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (FileNotFoundError, ValueError):
        return []
