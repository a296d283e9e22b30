"""Why events are anomalous: what a detector says of its most anomalous events, as the JSON file beside the scores.

While events are scored, :class:`MostAnomalous` remembers the few that will be explained. A detector explains events by
giving an :class:`Explanation` for each; :func:`write_explanations` puts that together with what the events are.
Nothing here needs torch, so that a report can read it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json, atomic_path
from unmask.errors import ArtifactError
from unmask.events.event_set import EventSet, concatenate_events
from unmask.events.objects import OBJECTS
from unmask.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from unmask.detectors.base import Detector

FORMAT_VERSION = 1
SUFFIX = ".explained.json"


@dataclass(frozen=True)
class Guess:
    """What a model held possible, in words, and how probable it found it."""

    text: str
    probability: float


@dataclass(frozen=True)
class TokenExplanation:
    """One token of an event, masked: what stood there and what the model expected.

    Attributes
    ----------
    name, text : a short name of the token ("b-jet", "MET") and all that it says, in words.
    surprise : its cross-entropy, minus the logarithm of ``probability``.
    found : what stood there in brief, and the probability of any token of these words.
    expected : what the model found most probable, in brief, most probable first.
    object : number of the object that it stands for, from 0; None for other tokens.
    """

    name: str
    text: str
    surprise: float
    probability: float
    found: Guess
    expected: list[Guess]
    object: int | None = None


@dataclass(frozen=True)
class Term:
    """A named part of a score: "number of b-jets", "5, expected 1 to 2; p = 0.002", 5, 6.2."""

    name: str
    text: str
    value: float | None
    surprise: float


@dataclass(frozen=True)
class Explanation:
    """What a detector has to say about an event; it fills in what it knows.

    Attributes
    ----------
    object_surprise : how surprising each object was, in the order of the event; None if it was not looked at.
    met_surprise : how surprising the MET was.
    """

    object_surprise: list[float | None]
    met_surprise: float | None = None
    tokens: list[TokenExplanation] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)


@dataclass(frozen=True)
class ExplainedObject:
    """An object of an explained event."""

    symbol: str
    name: str
    pt_mev: float
    eta: float
    phi: float
    energy_mev: float
    surprise: float | None


@dataclass(frozen=True)
class ExplainedEvent:
    """An event, its score and why it has it; rank 1 is the most anomalous."""

    rank: int
    score: float
    file: str
    row: int
    event_id: int
    process: str
    label: int
    weight: float
    met_mev: float
    met_phi: float
    objects: list[ExplainedObject]
    met_surprise: float | None
    tokens: list[TokenExplanation]
    terms: list[Term]


@dataclass(frozen=True)
class Explanations:
    """A file of explanations: the most anomalous of ``n_scored`` events, and which detector says so."""

    format_version: int
    n_scored: int
    detector: dict[str, Json]
    provenance: dict[str, Json]
    events: list[ExplainedEvent]


class MostAnomalous:
    """Remembers the ``n_events`` of highest score in a stream, most anomalous first; of equal ones the earlier.

    Scores that are not finite are not ranked.

    >>> most = MostAnomalous(2)
    >>> most.add(EventSet.empty(), np.zeros(0))
    >>> len(most.events), most.n_scored
    (0, 0)
    """

    def __init__(self, n_events: int) -> None:
        self.n_events = n_events
        self.n_scored = 0
        self.events = EventSet.empty()
        self.score: npt.NDArray[np.float64] = np.zeros(0)

    def add(self, events: EventSet, score: npt.NDArray[np.float64]) -> None:
        """Look at the next events; only those that may be among the most anomalous are kept."""
        self.n_scored += len(events)
        best = np.flatnonzero(np.isfinite(score))
        best = best[np.argsort(-score[best], kind="stable")][: self.n_events]
        both = np.concatenate([self.score, score[best]])
        order = np.argsort(-both, kind="stable")[: self.n_events]
        if len(order) and (order >= len(self.score)).any():
            self.events = concatenate_events([self.events, events[best]])[order]
        self.score = both[order]


def explained_path(scores: str | Path) -> Path:
    """Where the explanations of a scores file (or of a folder of its parts) are.

    >>> explained_path("run/scores.parquet").name
    'scores.explained.json'
    """
    scores = Path(scores)
    return scores.with_name(scores.name.removesuffix(".parquet") + SUFFIX)


def write_explanations(
    scores: str | Path,
    most: MostAnomalous,
    detector: Detector,
    *,
    device: str = "auto",
    provenance: Mapping[str, Json] | None = None,
) -> Path:
    """Have ``detector`` explain the events that ``most`` has kept, write that beside the ``scores`` and return where.

    Raises
    ------
    UsageError
        If the detector cannot explain its scores. ``detector.explain(EventSet.empty())`` tells before any work.
    """
    explanations = detector.explain(most.events, device=device)
    made_by = {"kind": detector.kind, "settings": detector.settings(), "fitted_on": detector.fitted_on_}
    tokenizer = getattr(detector, "tokenizer", None)
    if isinstance(tokenizer, Tokenizer):
        made_by["tokenizer"] = {"kind": tokenizer.kind, "settings": tokenizer.settings()}
    events = [_explained(most, i, explanation) for i, explanation in enumerate(explanations)]
    content = Explanations(FORMAT_VERSION, most.n_scored, made_by, dict(provenance or {}), events)
    path = explained_path(scores)
    with atomic_path(path) as scratch:
        scratch.write_text(json.dumps(asdict(content), ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read_explanations(path: str | Path) -> Explanations:
    """Read what :func:`write_explanations` wrote.

    Raises
    ------
    ArtifactError
        If it is not there, damaged or of another version.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        text = Path(path).read_bytes()
        version = json.loads(text)["format_version"]
        if version != FORMAT_VERSION:
            raise ArtifactError(f"format version {version}; this unmask reads version {FORMAT_VERSION}", path=path)
        return TypeAdapter(Explanations).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArtifactError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", path=path) from None
    except FileNotFoundError:
        raise ArtifactError("no such file", path=path) from None
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(f"not a file of explanations ({error})", path=path) from None


def _explained(most: MostAnomalous, i: int, explanation: Explanation) -> ExplainedEvent:
    events = most.events
    objects = [
        ExplainedObject(
            symbol=OBJECTS[int(events.tag[i, j])].symbols[0],
            name=OBJECTS[int(events.tag[i, j])].name,
            pt_mev=round(float(events.pt_mev[i, j]), 1),
            eta=round(float(events.eta[i, j]), 4),
            phi=round(float(events.phi[i, j]), 4),
            energy_mev=round(float(events.energy_mev[i, j]), 1),
            surprise=surprise,
        )
        for j, surprise in zip(np.flatnonzero(events.is_object[i]), explanation.object_surprise, strict=True)
    ]
    return ExplainedEvent(
        rank=i + 1,
        score=float(most.score[i]),
        file=str(events.file_names.words[events.file_names.code[i]]),
        row=int(events.row[i]),
        event_id=int(events.event_id[i]),
        process=str(events.process_names.words[events.process_names.code[i]]),
        label=int(events.label[i]),
        weight=float(events.weight[i]),
        met_mev=round(float(events.met_mev[i]), 1),
        met_phi=round(float(events.met_phi[i]), 4),
        objects=objects,
        met_surprise=explanation.met_surprise,
        tokens=explanation.tokens,
        terms=explanation.terms,
    )
