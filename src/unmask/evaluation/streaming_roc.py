"""The exact ROC of more scores than fit in memory: sort pieces on disk, then go once through all of them in order.

Nothing is binned or sampled: area, interval and curve are those of `metrics`, ties and weights included. A piece of
``piece_events`` events is held in memory, however many there are; on disk an event takes 25 bytes while this runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.detectors.scores import stream_scores
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.evaluation import MIN_EVENTS
from unmask.evaluation.intervals import Estimate, logit_interval
from unmask.events.event_set import BACKGROUND, SIGNAL

FloatArray = npt.NDArray[np.float64]
#: An event on disk.
_ROW = np.dtype([("score", "<f8"), ("weight", "<f8"), ("is_signal", "?")])
_SIGNAL, _BACKGROUND = 0, 1


@dataclass(frozen=True)
class StreamedRoc:
    """What the scores of many events say.

    Attributes
    ----------
    auc : area under the ROC curve with DeLong's interval, as :func:`~unmask.evaluation.metrics.roc_auc` gives it.
    background_efficiency, signal_efficiency : points of the curve, at the background efficiencies asked for. Empty if
        there are negative weights, with which the curve is no function.
    n_signal, n_background : numbers of events.
    notes : what a reader must know besides the numbers.
    """

    auc: Estimate
    background_efficiency: FloatArray
    signal_efficiency: FloatArray
    n_signal: int
    n_background: int
    notes: tuple[str, ...]


def streaming_roc(
    scores: str | Path | Iterable[str | Path],
    *,
    background_efficiency: npt.ArrayLike | None = None,
    confidence: float = 0.95,
    piece_events: int = 2_000_000,
    scratch: str | Path | None = None,
) -> StreamedRoc:
    """Go through scores files, or folders of parts, of labelled events; those without a label are left out.

    Parameters
    ----------
    background_efficiency : where the curve is wanted; by default 501 points from 1e-5 to 1.
    piece_events : events in memory at a time.
    scratch : folder for the sorted pieces; by default the system's temporary one.

    Raises
    ------
    BadDataError
        If no event has a label, scores or weights are not finite, or weights do not add up to a positive number.
    UsageError
        If signal or background is missing, or a background efficiency is none.
    """
    files = [scores] if isinstance(scores, (str, Path)) else list(scores)
    wanted = np.asarray(
        np.geomspace(1e-5, 1, 501) if background_efficiency is None else background_efficiency, np.float64
    )
    if not np.all((wanted > 0) & (wanted <= 1)):
        raise UsageError("background efficiencies must be above 0 and at most 1")
    with tempfile.TemporaryDirectory(prefix="unmask-roc-", dir=scratch) as folder:
        pieces = _write_pieces(files, Path(folder), piece_events)
        sums = _Sums(pieces, wanted)
        for group in _groups(_merged(pieces.paths, max(1, piece_events // max(1, len(pieces.paths))))):
            sums.add(group)
    return sums.result(confidence)


@dataclass
class _Pieces:
    """Sorted pieces on disk, beside each the sorted keys of its events, and what was counted on the way."""

    files: str
    paths: list[Path] = field(default_factory=list)
    n_events: list[int] = field(default_factory=lambda: [0, 0])
    weights: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    has_negative_weights: bool = False
    n_unlabelled: int = 0
    n_trained_on: int = 0
    lowest: float = np.inf
    highest: float = -np.inf

    def add(self, rows: npt.NDArray[np.void], keys: npt.NDArray[np.int64], path: Path) -> None:
        for one, is_one in ((_SIGNAL, rows["is_signal"]), (_BACKGROUND, ~rows["is_signal"])):
            self.n_events[one] += int(np.count_nonzero(is_one))
            self.weights[one].append(float(rows["weight"][is_one].sum()))
        self.has_negative_weights |= bool((rows["weight"] < 0).any())
        rows = rows[np.argsort(rows["score"], kind="stable")]
        self.lowest, self.highest = min(self.lowest, rows["score"][0]), max(self.highest, rows["score"][-1])
        rows.tofile(path)
        np.sort(keys).tofile(path.with_suffix(".keys"))
        self.paths.append(path)

    def n_repeated(self) -> int:
        """How many events have the file name and row of another; keys are spread evenly, so they go in equal ranges."""
        keys = [np.memmap(path.with_suffix(".keys"), np.int64, "r") for path in self.paths]
        edges = np.linspace(-(2.0**63), 2.0**63, len(keys) + 1)[1:-1].astype(np.int64)
        parts = zip(*(np.split(each, np.searchsorted(each, edges)) for each in keys), strict=True)
        return sum(self.n_events) - sum(len(np.unique(np.concatenate(part))) for part in parts)

    def notes(self) -> tuple[str, ...]:
        n_unlabelled, n_trained_on = self.n_unlabelled, self.n_trained_on
        notes = [f"{n_unlabelled:,} events have no label and are left out"] if n_unlabelled else []
        if n_trained_on:
            notes.append(f"the detector was trained on {n_trained_on:,} of these events: its numbers are too good")
        if self.lowest == self.highest:
            notes.append(f"constant score: the detector gives all events the score {self.lowest:g}")
        if self.has_negative_weights:
            notes.append("negative weights: only the AUC is measured")
        n_repeated = self.n_repeated()
        if n_repeated:
            notes.append(
                f"{n_repeated:,} of the {sum(self.n_events):,} events are there more than once (same file name and "
                "row): its intervals are too narrow"
            )
        notes += [
            f"only {n} events of {name}: their intervals cannot be trusted"
            for name, n in zip(("signal", "background"), self.n_events, strict=True)
            if n < MIN_EVENTS
        ]
        return tuple(notes)

    def check(self) -> None:
        if not any(self.n_events):
            raise BadDataError(
                f"none of the {self.n_unlabelled:,} events has a label; score files with --label or --signal-process"
                if self.n_unlabelled
                else "holds no events",
                path=self.files,
            )
        if not all(self.n_events):
            raise UsageError(
                f"{self.files}: signal and background events are both needed; all labelled events are of one class"
            )
        for name, weights in zip(("signal", "background"), self.weights, strict=True):
            if fsum(weights) <= 0:
                raise BadDataError(
                    f"the weights of the {name} events do not add up to a positive number", path=self.files
                )


def _write_pieces(files: Sequence[str | Path], folder: Path, piece_events: int) -> _Pieces:
    pieces = _Pieces(", ".join(map(str, files)))
    waiting: list[tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]] = []
    n_waiting = 0

    def flush() -> None:
        nonlocal n_waiting
        if n_waiting:
            rows, keys = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            pieces.add(rows, keys, folder / f"{len(pieces.paths)}")
        waiting.clear()
        n_waiting = 0

    for file in files:
        for chunk in stream_scores(file, chunk_events=min(piece_events, 200_000)):
            is_labelled = (chunk.label == SIGNAL) | (chunk.label == BACKGROUND)
            rows = np.empty(np.count_nonzero(is_labelled), _ROW)
            rows["score"], rows["weight"] = chunk.score[is_labelled], chunk.weight[is_labelled]
            rows["is_signal"] = chunk.label[is_labelled] == SIGNAL
            for name in ("score", "weight"):
                n_bad = np.count_nonzero(~np.isfinite(rows[name]))
                if n_bad:
                    raise BadDataError(f"{n_bad:,} of {len(rows):,} {name}s are NaN or infinite", path=file)
            pieces.n_unlabelled += len(chunk) - len(rows)
            if chunk.was_trained_on is not None:
                pieces.n_trained_on += int(np.count_nonzero(chunk.was_trained_on[is_labelled]))
            if n_waiting + len(rows) > piece_events:
                flush()
            waiting.append((rows, chunk.event_key[is_labelled]))
            n_waiting += len(rows)
    flush()
    pieces.check()
    return pieces


def _merged(paths: list[Path], n_buffer: int) -> Iterator[npt.NDArray[np.void]]:
    """Yield all rows in the order of their scores; equal scores may be divided between what is yielded."""
    read = [0] * len(paths)
    buffers = [np.empty(0, _ROW) for _ in paths]
    is_open = [True] * len(paths)
    while True:
        for i, path in enumerate(paths):
            if is_open[i] and not len(buffers[i]):
                buffers[i] = np.fromfile(path, _ROW, n_buffer, offset=read[i] * _ROW.itemsize)
                read[i] += len(buffers[i])
                is_open[i] = len(buffers[i]) == n_buffer
        filled = [i for i, buffer in enumerate(buffers) if len(buffer)]
        if not filled:
            return
        # Up to the smallest score after which a piece has to be read on, no further rows can come in between.
        limit = min((buffers[i]["score"][-1] for i in filled if is_open[i]), default=np.inf)
        out = []
        for i in filled:
            n = int(np.searchsorted(buffers[i]["score"], limit, side="right"))
            out.append(buffers[i][:n])
            buffers[i] = buffers[i][n:]
        rows = np.concatenate(out)
        yield rows[np.argsort(rows["score"], kind="stable")]


@dataclass(frozen=True)
class _Group:
    """Rising scores; ``sums`` (3, 2, n) over the events with each score: weights, their squares, numbers; by class."""

    score: FloatArray
    sums: FloatArray


def _groups(parts: Iterable[npt.NDArray[np.void]]) -> Iterator[_Group]:
    """Join events of equal scores, also across the borders of ``parts``."""
    held: _Group | None = None
    for rows in parts:
        start = np.flatnonzero(np.concatenate([[True], np.diff(rows["score"]) > 0]))
        score = rows["score"][start]
        is_one = np.stack([rows["is_signal"], ~rows["is_signal"]])
        weight = rows["weight"] * is_one
        sums = np.stack([np.add.reduceat(values, start, axis=1) for values in (weight, weight**2, is_one * 1.0)])
        if held is not None and held.score[0] == score[0]:
            sums[:, :, :1] += held.sums
        elif held is not None:
            score, sums = np.concatenate([held.score, score]), np.concatenate([held.sums, sums], axis=2)
        # The last score may go on in the next part.
        held = _Group(score[-1:], sums[:, :, -1:])
        if len(score) > 1:
            yield _Group(score[:-1], sums[:, :, :-1])
    if held is not None:
        yield held


class _Sums:
    """Goes up through the scores, with the weights below, and adds up what area, interval and curve need."""

    def __init__(self, pieces: _Pieces, wanted: FloatArray) -> None:
        self.n_events = np.array(pieces.n_events)
        self.notes = pieces.notes()
        self.total = np.array([fsum(weights) for weights in pieces.weights])
        self.below, self.n_below = np.zeros(2), np.zeros(2)
        #: By class, of the places p of its events among the other class: sums of w, w p, w^2, w^2 p, w^2 p^2.
        self.moments: list[FloatArray] = []
        self.wanted = np.zeros(0) if pieces.has_negative_weights else wanted
        self.signal_efficiency = np.full(len(self.wanted), np.nan)

    def add(self, group: _Group) -> None:
        w, w2, count = group.sums
        n_up_to = self.n_below[:, None] + np.cumsum(count, axis=1)
        up_to = self.below[:, None] + np.cumsum(w, axis=1)
        # All is exactly all, whatever was rounded on the way: classes that do not overlap have an area of 1.
        up_to = np.where(n_up_to == self.n_events[:, None], self.total[:, None], up_to)
        bounds = np.concatenate([self.below[:, None], up_to], axis=1)
        share = (bounds[:, :-1] + bounds[:, 1:]) / 2 / self.total[:, None]
        place = np.stack([share[_BACKGROUND], 1 - share[_SIGNAL]])
        self.moments.append(np.stack([w, w * place, w2, w2 * place, w2 * place**2]).sum(axis=2))
        self._add_curve(bounds)
        self.below, self.n_below = up_to[:, -1], n_up_to[:, -1]

    def _add_curve(self, below: FloatArray) -> None:
        above = (self.total[:, None] - below)[:, ::-1]
        wanted = self.wanted * self.total[_BACKGROUND]
        is_here = (wanted >= above[_BACKGROUND, 0]) & (wanted <= above[_BACKGROUND, -1])
        values = np.interp(wanted[is_here], above[_BACKGROUND], above[_SIGNAL]) / self.total[_SIGNAL]
        self.signal_efficiency[is_here] = values

    def result(self, confidence: float) -> StreamedRoc:
        sums = np.array([[fsum(part[i, j] for part in self.moments) for j in (0, 1)] for i in range(5)])
        variance, n_pairs = 0.0, np.inf
        for w, wp, w2, w2p, w2p2 in sums.T:
            mean, n_effective = wp / w, w**2 / w2
            spread = max(w2p2 - 2 * mean * w2p + mean**2 * w2, 0.0)
            variance += n_effective / max(n_effective - 1, 1) * spread / w**2
            n_pairs = min(n_pairs, n_effective)
        area = float(sums[1, _SIGNAL] / sums[0, _SIGNAL])
        return StreamedRoc(
            auc=logit_interval(area, np.sqrt(variance), confidence, n_pairs),
            background_efficiency=self.wanted,
            signal_efficiency=self.signal_efficiency,
            n_signal=int(self.n_events[_SIGNAL]),
            n_background=int(self.n_events[_BACKGROUND]),
            notes=self.notes,
        )
