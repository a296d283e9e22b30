"""Flagged events: the table of events above a threshold, and lists to pick them by from the original files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from unmask.artifacts import Json, atomic_path, provenance
from unmask.events.columns import IDENTITY_TYPES, further_to_arrow, further_types, identity_to_arrow
from unmask.events.objects import OBJECTS
from unmask.scores.intervals import FloatArray
from unmask.scores.score_table import COLUMNS, Scores
from unmask.tables import TableKind, write_table

_NUMBERS = ("score", "p_value", "p_value_low", "p_value_high")
_WORDS = ("leading_objects", "reason")
#: Numbers of an event in a list of events to pick: that of CMS (run:lumi:event), and that of ATLAS (run event).
PICK_LISTS = {
    "run-lumi-event": ("run", "luminosity_block", "event_id"),
    "run-event": ("run", "event_id"),
}
FLAGGED_TABLE = TableKind(
    "flagged events",
    version=1,
    columns=IDENTITY_TYPES | dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_WORDS, pa.string()),
    dictionaries=("file", "process", "label", "weight"),
)
_OWN = (*FLAGGED_TABLE.columns, *COLUMNS)


@dataclass(frozen=True, eq=False)
class Flagged:
    """Events above the threshold, the smallest p-value first.

    Attributes
    ----------
    reason
        What is unusual in each event, in words.
    n_events, weight
        Number and sum of weights of all events, flagged or not.
    n_known, n_trained_on
        Number of all events that are calibration events too, and that the detector is known to have learned from.
    """

    scores: Scores
    p_value: FloatArray
    low: FloatArray
    high: FloatArray
    reason: list[str]
    n_events: int
    weight: float
    n_known: int
    n_trained_on: int

    @property
    def notes(self) -> list[str]:
        """Reasons for which p-values are not what they should be."""
        reasons = {
            "are those of the calibration: their p-values say nothing new": self.n_known,
            "were in the training of the detector: their p-values are too large": self.n_trained_on,
        }
        return [f"{n:,} of {self.n_events:,} events {reason}" for reason, n in reasons.items() if n]

    def write(self, path: str | Path, *, metadata: dict[str, Json] | None = None) -> list[Path]:
        """Write them to a Parquet file, with pick lists beside it, and return the paths of these."""
        columns = self.columns()
        types = {name: column.type for name, column in columns.items() if name not in FLAGGED_TABLE.columns}
        with write_table(path, FLAGGED_TABLE, {"provenance": metadata or provenance()}, types) as write:
            write(columns)
        written = []
        for (ending, names), list_ in zip(PICK_LISTS.items(), pick_list_paths(path), strict=True):
            known = [self.scores.event_id if name == "event_id" else self.scores.further.get(name) for name in names]
            numbers = [values.tolist() for values in known if values is not None]
            lines = [event for event in zip(*numbers, strict=True) if min(event) >= 0]
            list_.unlink(missing_ok=True)
            if lines and len(numbers) == len(names):
                separator = ":" if ending == "run-lumi-event" else " "
                with atomic_path(list_) as scratch:
                    scratch.write_text("".join(separator.join(map(str, line)) + "\n" for line in dict.fromkeys(lines)))
                written.append(list_)
        return written

    def columns(self) -> dict[str, pa.Array]:
        """The columns of that file."""
        scores = self.scores
        numbers = (scores.score, self.p_value, self.low, self.high)
        leading = [] if scores.leading_objects is None else scores.leading_objects.tolist()
        objects = [", ".join(f"{OBJECTS[tag].name} {pt} GeV" for tag, pt in event if tag) for event in leading]
        words = [pa.array(texts or [""] * len(scores), pa.string()) for texts in (objects, self.reason)]
        return {
            **identity_to_arrow(scores),
            **further_to_arrow(scores, further_types(scores, _OWN)),
            **dict(zip(_NUMBERS, map(pa.array, numbers), strict=True)),
            **{name: pa.array(values) for name, values in scores.observables.items()},
            **dict(zip(_WORDS, words, strict=True)),
        }


def pick_list_paths(flagged: str | Path) -> list[Path]:
    """Where the pick lists of flagged events are.

    >>> [path.name for path in pick_list_paths("run/flagged.parquet")]
    ['flagged.run-lumi-event.txt', 'flagged.run-event.txt']
    """
    path = Path(flagged)
    return [path.with_name(f"{path.name.removesuffix('.parquet')}.{ending}.txt") for ending in PICK_LISTS]
