"""Explanations of the most anomalous events: what a detector gives for each, and the JSON file beside the scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json, atomic_path
from unmask.errors import ArtifactError
from unmask.events.event_set import EventSet
from unmask.events.objects import OBJECTS

FORMAT_VERSION = 2


@dataclass(frozen=True)
class Guess:
    """Something that a model held possible, and its probability."""

    text: str
    probability: float


@dataclass(frozen=True)
class TokenExplanation:
    """One masked token of an event: what it is and what the model expected.

    Attributes
    ----------
    name, text
        A short name ("b-jet", "MET") and a full description.
    token_loss
        Minus the logarithm of ``probability``.
    observed, expected
        The token in brief, and the most probable ones, each with the probability of all tokens of that description.
    object
        Index of the object that it stands for; None for other tokens.
    """

    name: str
    text: str
    token_loss: float
    probability: float
    observed: Guess
    expected: list[Guess]
    object: int | None = None


@dataclass(frozen=True)
class Term:
    """A named term of a score: "number of b-jets", "5; p = 0.002", 5, 6.2."""

    name: str
    text: str
    value: float | None
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Explanation of the score of one event; the detector fills in what it knows.

    Contributions are to the score, of the objects in the order of the event; None of what was not looked at.
    """

    object_contribution: list[float | None]
    met_contribution: float | None = None
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
    contribution: float | None


@dataclass(frozen=True)
class ExplainedEvent:
    """An event, its score and what contributes to it; rank 1 is the most anomalous."""

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
    met_contribution: float | None
    tokens: list[TokenExplanation]
    terms: list[Term]

    @property
    def reason(self) -> str:
        """The term and the object, or MET, that contribute most, in words."""
        parts: list[tuple[float | None, str]] = [
            (one.contribution, f"{one.name} of {one.pt_mev / 1e3:.0f} GeV") for one in self.objects
        ]
        parts.append((self.met_contribution, f"MET of {self.met_mev / 1e3:.0f} GeV"))
        known = [(contribution, text) for contribution, text in parts if contribution is not None]
        terms = [(term.contribution, f"{term.name}: {'; '.join(term.text.split('; ')[:2])}") for term in self.terms]
        return "; ".join(max(some)[1] for some in (terms, known) if some)


@dataclass(frozen=True)
class Explanations:
    """A file of explanations: the most anomalous of ``n_scored`` events."""

    format_version: int
    n_scored: int
    provenance: dict[str, Json]
    events: list[ExplainedEvent]


class MostAnomalous:
    """The ``n_events`` of highest score in a stream, most anomalous first; of equal ones the earlier.

    Scores that are not finite are not ranked.
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
        if (order >= len(self.score)).any():
            self.events = EventSet.concatenate([self.events, events[best]])[order]
        self.score = both[order]


def explained_path(scores: str | Path) -> Path:
    """Where the explanations of a scores file (or of a folder of its parts) are.

    >>> explained_path("run/scores.parquet").name
    'scores.explained.json'
    """
    scores = Path(scores)
    return scores.with_name(scores.name.removesuffix(".parquet") + ".explained.json")


def write_explanations(
    scores: str | Path,
    most: MostAnomalous,
    explanations: Sequence[Explanation],
    *,
    provenance: Mapping[str, Json] | None = None,
) -> Path:
    """Write explanations of the events that ``most`` has kept beside the ``scores``, and return the path."""
    events = explained_events(most, explanations)
    content = Explanations(FORMAT_VERSION, most.n_scored, dict(provenance or {}), events)
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
        if version == FORMAT_VERSION:
            return TypeAdapter(Explanations).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ArtifactError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", path=path) from None
    except FileNotFoundError:
        raise ArtifactError("no such file", path=path) from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ArtifactError(f"not a file of explanations ({error})", path=path) from None
    raise ArtifactError(f"format version {version}; expected {FORMAT_VERSION}. Score again with --explain", path=path)


def explained_events(most: MostAnomalous, explanations: Sequence[Explanation]) -> list[ExplainedEvent]:
    """Explanations together with the events that ``most`` has kept."""
    return [_explained(most, i, explanation) for i, explanation in enumerate(explanations)]


def _explained(most: MostAnomalous, i: int, explanation: Explanation) -> ExplainedEvent:
    events = most.events

    def rounded(name: str, *at: Any, digits: int = 4) -> float:
        return round(float(getattr(events, name)[at]), digits)

    objects = [
        ExplainedObject(
            OBJECTS[int(events.tag[i, j])].symbols[0],
            OBJECTS[int(events.tag[i, j])].name,
            rounded("pt_mev", i, j, digits=1),
            rounded("eta", i, j),
            rounded("phi", i, j),
            rounded("energy_mev", i, j, digits=1),
            contribution,
        )
        for j, contribution in zip(np.flatnonzero(events.is_object[i]), explanation.object_contribution, strict=True)
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
        met_mev=rounded("met_mev", i, digits=1),
        met_phi=rounded("met_phi", i),
        objects=objects,
        met_contribution=explanation.met_contribution,
        tokens=explanation.tokens,
        terms=explanation.terms,
    )
