"""From events to a scores file: the one way, for a command, a study, Python, and each part of a large job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from unmask.artifacts import MANIFEST, Json, provenance, recover, sha256_of_file
from unmask.detectors import Detector, load_detector
from unmask.errors import ArtifactError, UnmaskError, UsageError
from unmask.events.distributions import Histograms, add, count, differences, variables_of
from unmask.events.event_set import SIGNAL, EventSet
from unmask.export.onnx_detector import GRAPH, OnnxDetector
from unmask.io.sample import resolve
from unmask.io.source import ReadOptions
from unmask.outputs import check_output
from unmask.scores.explanations import MostAnomalous, explained_path, write_explanations
from unmask.scores.intervals import check_finite
from unmask.scores.score_table import SCORES_TABLE, Scores, read_scores, write_scores
from unmask.tables import open_table, part_name, parts_in
from unmask.workflow.sources import Part, Sources

#: Events of a chunk that are compared with the training background; a fraction of them keeps scoring fast.
_MAX_COMPARED = 5000
#: Of differences that are warned of: the largest p-value, and the smallest distance, as simulation is never perfect.
_P_VALUE, _DISTANCE = 1e-3, 0.1
#: Variables that a warning names.
_MAX_NAMED = 3


def score(
    detector: Detector | str | Path,
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    explain: int = 0,
    options: ReadOptions | None = None,
) -> int:
    """Score event files in bounded memory and return the number of events.

    Parameters
    ----------
    detector
        Fitted detector, or the folder of a saved one, or its graph (``model.onnx``).
    paths
        Event files, patterns, or names of samples such as ``sample:gluino``.
    out
        Parquet file to write.
    explain
        Number of most anomalous events to explain, in a JSON file beside ``out``.
    options
        How the files are read.
    """
    if not isinstance(paths, str | Path | Iterable):
        raise UsageError(
            f"paths is of type {type(paths).__name__}; expected event files; score events with detector.scores(events)"
        )
    sources, out = Sources([paths] if isinstance(paths, str | Path) else paths, options=options), Path(out)
    model = detector if isinstance(detector, Detector) else resolve(detector)
    scoring = Scoring(model, explain=explain)
    scoring.check_output(out, sources.files, overwrite=True)
    return scoring.write(sources.stream(), out, **sources.origin()).n_events


@dataclass(frozen=True)
class Outcome:
    """Numbers of events that were scored, and of those that the detector was trained on.

    Of a part: whether it was there already, why it was not written, and which events were cut or skipped.
    ``histograms`` are those of some events that are not labeled signal.
    """

    n_events: int = 0
    n_trained_on: int = 0
    is_kept: bool = False
    failure: str | None = None
    problems: tuple[str, ...] = ()
    histograms: Histograms = field(default_factory=dict)


@dataclass(frozen=True)
class Scoring:
    """A detector, or the folder of a saved one, and how it scores.

    Attributes
    ----------
    reduction
        Reduction of token losses to a score; None for that of the detector.
    token_losses
        Also write the loss of each token.
    explain
        Number of most anomalous events to explain.
    """

    model: Detector | Path
    reduction: str | None = None
    token_losses: bool = False
    explain: int = 0
    device: str = "auto"

    @property
    def detector(self) -> Detector:
        """The detector, loaded once per process."""
        return self.model if isinstance(self.model, Detector) else _load(self.model, _digest(self.model))

    @property
    def digest(self) -> str | None:
        """SHA-256 of the detector's manifest, which holds those of all its files; None for one that is not saved."""
        if isinstance(detector := self.detector, OnnxDetector):
            return detector.digest
        return None if isinstance(self.model, Detector) else _digest(self.model)

    def origin(self) -> dict[str, Json]:
        """Provenance of scores: the detector and how it scores."""
        return {**self.detector.origin_of_scores(self.digest, self.reduction), "token_losses": self.token_losses}

    def check_output(self, out: Path, inputs: Iterable[str | Path], *, overwrite: bool = False) -> None:
        """Refuse scores and explanations that must not be written; see :func:`unmask.outputs.check_output`."""
        used = [*inputs, *([] if isinstance(self.model, Detector) else [self.model])]
        check_output(out, [SCORES_TABLE.name], used, endings=(".parquet",), overwrite=overwrite)
        check_output(explained_path(out), ["explanations"], used, overwrite=overwrite)

    def write(self, events: Iterable[EventSet], out: Path, **metadata: Json) -> Outcome:
        """Score a stream of events in bounded memory; explanations go beside ``out``, and older ones are removed."""
        detector = self.detector
        most, n_trained_on, histograms = MostAnomalous(self.explain), 0, Histograms()
        if self.explain:
            detector.explain(EventSet.empty())  # one that cannot explain raises now, not after hours

        def scored() -> Iterator[Scores]:
            nonlocal n_trained_on, histograms
            for some in events:
                scores = detector.scores(
                    some, reduction=self.reduction, with_token_losses=self.token_losses, device=self.device
                )
                check_finite(scores.score, f"scores of this {detector.kind} detector")
                most.add(some, scores.score)
                n_trained_on += scores.n_trained_on
                histograms = add(histograms, _compared(detector, some))
                yield scores

        record = provenance(**self.origin(), **metadata, **detector.record())
        explained_path(out).unlink(missing_ok=True)
        n_events = write_scores(out, scored(), provenance=record)
        if self.explain:
            write_explanations(out, most, detector.explain(most.events, device=self.device), provenance=record)
        return Outcome(n_events, n_trained_on, histograms=histograms)

    def read(self, events: Iterable[EventSet], out: Path, origin: Mapping[str, Json]) -> Scores:
        """Score a stream of events to ``out``, and read the scores."""
        self.write(events, out, **origin)
        return read_scores(out)

    def warnings(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Name the variables in which scored events do not look like the training background."""
        histograms: Histograms = {}
        for outcome in outcomes:
            histograms = add(histograms, outcome.histograms)
        (compared,) = differences(self.detector.background_, histograms)
        unlike = [one for one in compared if one.p_value < _P_VALUE and one.distance > _DISTANCE]
        if not unlike:
            return []
        named = ", ".join(
            f"mean {one.variable} {one.mean:.4g} instead of {one.background_mean:.4g} ({one.p_text})"
            for one in sorted(unlike, key=lambda one: -one.distance)[:_MAX_NAMED]
        )
        more = f" and {len(unlike) - _MAX_NAMED} more" if len(unlike) > _MAX_NAMED else ""
        advice = "Unless that is signal, check units, objects and trigger; all variables: unmask monitor"
        return [f"warning: these events do not look like the training background: {named}{more}. {advice}"]


def _compared(detector: Detector, events: EventSet) -> Histograms:
    """Histograms of some of the events that are not labeled signal."""
    events = events[:: -(-len(events) // _MAX_COMPARED) or 1]
    events = events[events.label != SIGNAL]
    return count(detector.background_, variables_of(events, detector.schema_.types), events.weight)


def load_model(model: str | Path) -> Detector:
    """Load a saved detector, a graph (``model.onnx``), or the sample ``sample:gluino-model``."""
    return Scoring(resolve(model)).detector


@lru_cache(maxsize=4)
def _load(model: Path, digest: str) -> Detector:  # noqa: ARG001
    """Load a detector; another one in the same place has another digest."""
    return OnnxDetector.load(model) if model.suffix == GRAPH else load_detector(model)


def _digest(model: Path) -> str:
    """SHA-256 of a graph, or of the manifest of a saved detector."""
    try:
        return sha256_of_file(model if model.suffix == GRAPH else model / MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            f"no {MANIFEST} here; give the folder of a trained detector, or what unmask export wrote ({GRAPH})",
            path=model,
        ) from None


@dataclass(frozen=True)
class Parts:
    """A folder of ``n`` scores files that any number of processes write, each on its own.

    A part is kept if it was made of the same entries of the same files, by the same detector, with the same options.
    """

    scoring: Scoring
    out: Path
    n: int

    def check(self) -> None:
        """Refuse a folder that holds parts of another number, or of another detector."""
        if self.out.suffix == ".parquet":
            raise UsageError(f"{self.out}: with --dask or --shard, OUT is a folder of parts; leave out .parquet")
        if not (there := parts_in(self.out)):
            return
        with open_table(there[0], SCORES_TABLE) as (_, metadata):
            made_by = {name: metadata["provenance"].get(name) for name in self.scoring.origin()}
        if made_by != self.scoring.origin() or there[0].name not in [part_name(i, self.n) for i in range(self.n)]:
            raise UsageError(f"{self.out} holds parts of another number, detector or score; choose another folder")

    def write(self, i: int, part: Part) -> Outcome:
        """Score part ``i``, from 0, unless that is done; bad data is an outcome, a failing file system an error."""
        out = self.out / part_name(i, self.n)
        try:
            origin = part.origin()
            identity = json.dumps({**self.scoring.origin(), **origin}, sort_keys=True)
            digest = hashlib.sha256(identity.encode()).hexdigest()
            if (n_there := _length(out, digest)) is not None:
                recover(out)
                return Outcome(n_there, is_kept=True)
            written = self.scoring.write(part.stream(), out, **origin, part=digest)
        except UnmaskError as error:
            return Outcome(failure=str(error), problems=tuple(part.problems()))
        return replace(written, problems=tuple(part.problems()))


def _length(out: Path, digest: str) -> int | None:
    """Number of events in a part; None if it is not there or was made otherwise."""
    try:
        with open_table(out, SCORES_TABLE) as (file, metadata):
            is_same = metadata.get("provenance", {}).get("part") == digest
            return int(file.metadata.num_rows) if is_same else None
    except ArtifactError:
        return None


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``i/n``, shard i of n from 1.

    >>> parse_shard("2/3")
    (2, 3)
    """
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError(f"--shard {text!r}: expected i/n with i from 1 to n, such as 1/100")
    return int(index), int(count)
