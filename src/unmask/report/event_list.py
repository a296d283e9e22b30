"""The explained events of a report, as the page shows them: rows of a list, and the data that the script draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.artifacts import Json
from unmask.events.event_set import BACKGROUND, LABEL_NAMES
from unmask.report.runs import Run
from unmask.scores.explanations import ExplainedEvent
from unmask.scores.p_values import p_values
from unmask.scores.score_table import Scores

#: Events of each detector that the page holds, which keeps it small.
MAX_EVENTS = 200


@dataclass(frozen=True)
class Row:
    """An event in the list."""

    rank: int
    process: str
    label: str
    score: str
    p_value: str
    most_surprising: str


@dataclass(frozen=True)
class EventList:
    """The most anomalous events of one detector; ``number`` is where the script finds their data."""

    number: int
    name: str
    n_scored: int
    n_explained: int
    rows: list[Row]
    processes: list[str]
    labels: list[str]
    has_p_values: bool


def event_lists(runs: Sequence[Run]) -> list[EventList]:
    """The lists of all runs that have explanations."""
    lists: list[EventList] = []
    for run in runs:
        if run.explanations is None:
            continue
        shown = run.explanations.events[:MAX_EVENTS]
        shares = _p_values(run.scores, [event.score for event in shown])
        rows = [_row(event, p_value) for event, p_value in zip(shown, shares, strict=True)]
        lists.append(
            EventList(
                number=len(lists),
                name=run.name,
                n_scored=run.explanations.n_scored,
                n_explained=len(run.explanations.events),
                rows=rows,
                processes=sorted({row.process for row in rows}),
                labels=sorted({row.label for row in rows}),
                has_p_values=any(row.p_value for row in rows),
            )
        )
    return lists


def browser_data(runs: Sequence[Run]) -> Json:
    """What the script shows; texts, which repeat, are numbers into one list of them."""
    numbers: dict[str, int] = {}

    def text(words: str) -> int:
        return numbers.setdefault(words, len(numbers))

    lists = [
        [_compact(event, text) for event in run.explanations.events[:MAX_EVENTS]]
        for run in runs
        if run.explanations is not None
    ]
    return {"lists": lists, "texts": list(numbers)}


def _compact(event: ExplainedEvent, text: Callable[[str], int]) -> Json:
    """An event with its objects, tokens and terms as plain arrays, in the order that the script takes apart."""
    return {
        "rank": event.rank,
        "score": event.score,
        "file": event.file,
        "row": event.row,
        "id": event.event_id,
        "process": event.process,
        "label": LABEL_NAMES.get(event.label, str(event.label)),
        "weight": event.weight,
        "met": [event.met_mev, event.met_phi, event.met_surprise],
        "objects": [[o.symbol, o.name, o.pt_mev, o.eta, o.phi, o.energy_mev, o.surprise] for o in event.objects],
        "tokens": [
            [
                *(text(token.name), text(token.text), token.surprise, _few_digits(token.probability)),
                *(text(token.found.text), _few_digits(token.found.probability)),
                [[text(guess.text), _few_digits(guess.probability)] for guess in token.expected],
                token.object,
            ]
            for token in event.tokens
        ],
        "terms": [[term.name, term.text, term.value, term.surprise] for term in event.terms],
    }


def _few_digits(probability: float) -> float:
    return float(f"{probability:.3g}")


def _p_values(scores: Scores, values: list[float]) -> list[str]:
    """P(such a score or a higher one) in the labelled background; nothing where there is none."""
    is_background = scores.label == BACKGROUND
    weight = scores.weight[is_background]
    if not len(weight) or (weight < 0).any():
        return [""] * len(values)
    return [*map(_share, p_values(scores.score[is_background], np.array(values), weight))]


def _share(share: float) -> str:
    """A probability in few characters, also a small one."""
    return f"{share:.2f}" if share >= 0.1 else f"{share:.1e}".replace("e-0", "e-").replace("-", "\u2212")


def _row(event: ExplainedEvent, p_value: str) -> Row:
    surprises = [(o.surprise, f"{o.name}, {o.pt_mev / 1e3:.0f} GeV") for o in event.objects if o.surprise is not None]
    if event.met_surprise is not None:
        surprises.append((event.met_surprise, f"MET, {event.met_mev / 1e3:.0f} GeV"))
    if not surprises:  # a detector that explains by terms alone
        surprises = [(term.surprise, term.name) for term in event.terms]
    surprise, what = max(surprises, key=lambda one: one[0], default=(0.0, ""))
    return Row(
        rank=event.rank,
        process=event.process,
        label=LABEL_NAMES.get(event.label, str(event.label)),
        score=f"{event.score:.3f}",
        p_value=p_value,
        most_surprising=f"{what} ({surprise:.1f})" if what else "",
    )
