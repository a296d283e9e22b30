"""Explained events of a report: rows of a list, and the data that the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.artifacts import Json
from unmask.events.event_set import BACKGROUND, LABEL_NAMES
from unmask.report.runs import Run
from unmask.scores.explanations import ExplainedEvent
from unmask.scores.p_values import Survival

#: Events of each detector that the page holds, which keeps it small.
MAX_EVENTS = 200


def event_lists(runs: Sequence[Run]) -> tuple[list[dict[str, Json]], Json]:
    """Give the lists of all runs that have explanations, for the template, and what the script shows of them.

    There texts, which repeat, are numbers into one list of them.
    """
    lists, compact, numbers = [], [], dict[str, int]()
    for run in runs:
        if run.explanations is not None:
            shown = run.explanations.events[:MAX_EVENTS]
            p_values = _p_values(run, shown)
            lists.append(
                {
                    "name": run.name,
                    "n_scored": run.explanations.n_scored,
                    "n_explained": len(run.explanations.events),
                    "rows": [_row(event, p_value) for event, p_value in zip(shown, p_values, strict=True)],
                    "has_p_values": any(p_values),
                }
            )
            compact.append([_compact(event, numbers) for event in shown])
    return lists, {"lists": compact, "texts": list(numbers)}


def _compact(event: ExplainedEvent, numbers: dict[str, int]) -> Json:
    """An event with its objects, tokens and terms as plain arrays, in the order that the script takes apart."""

    def text(content: str) -> int:
        return numbers.setdefault(content, len(numbers))

    def short(probability: float) -> float:
        return float(f"{probability:.3g}")

    return {
        "rank": event.rank,
        "score": event.score,
        "file": event.file,
        "row": event.row,
        "id": str(event.event_id),  # beyond 2^53 no number of a script
        "process": event.process,
        "label": LABEL_NAMES.get(event.label, str(event.label)),
        "weight": event.weight,
        "met": [event.met_mev, event.met_phi, event.met_contribution],
        "objects": [[o.symbol, o.name, o.pt_mev, o.eta, o.phi, o.energy_mev, o.contribution] for o in event.objects],
        "tokens": [
            [
                *(text(token.name), text(token.text), token.token_loss, short(token.probability)),
                *(text(token.observed.text), short(token.observed.probability)),
                [[text(guess.text), short(guess.probability)] for guess in token.expected],
                token.object,
            ]
            for token in event.tokens
        ],
        "terms": [[term.name, term.text, term.value, term.contribution] for term in event.terms],
    }


def _p_values(run: Run, events: Sequence[ExplainedEvent]) -> list[str]:
    """In the labeled background of the same scores, as text; empty where there is none."""
    is_background = run.scores.label == BACKGROUND
    weight = run.scores.weight[is_background]
    if weight.sum() <= 0:
        return [""] * len(events)
    survival = Survival.of(run.scores.score[is_background], weight)
    values = survival.p_values(np.array([event.score for event in events]))
    return [f"{p:.2f}" if p >= 0.1 else f"{p:.1e}".replace("e-0", "e-").replace("-", "\u2212") for p in values]


def _row(event: ExplainedEvent, p_value: str) -> dict[str, Json]:
    parts = [(o.contribution, f"{o.name}, {o.pt_mev / 1e3:.0f} GeV") for o in event.objects]
    parts.append((event.met_contribution, f"MET, {event.met_mev / 1e3:.0f} GeV"))
    known = [(value, name) for value, name in parts if value is not None]
    known = known or [(term.contribution, term.name) for term in event.terms]  # some explain by terms alone
    value, name = max(known, key=lambda part: part[0], default=(0.0, ""))
    return {
        "rank": event.rank,
        "process": event.process,
        "label": LABEL_NAMES.get(event.label, str(event.label)),
        "score": f"{event.score:.3f}",
        "p_value": p_value,
        "largest": f"{name} ({value:.1f})" if name else "",
    }
