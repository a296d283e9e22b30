"""One explained event as rows of words, for a terminal, and as a figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from unmask.report.style import Drawing, new_figure
from unmask.scores.explanations import ExplainedEvent, ExplainedObject, TokenExplanation

_COLOR = "#0072b2"


@dataclass(frozen=True)
class ObjectRow:
    """Objects of one type that contribute the same to the score, as text and in numbers.

    Attributes
    ----------
    what, kinematics
        "2 jets", "pT 41 to 44 GeV".
    contribution
        Of each of them; None if it was not looked at.
    instead
        What the model expected in their places, for a model with tokens.
    """

    what: str
    kinematics: str
    contribution: float | None
    instead: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row of a table."""
        return (
            self.what,
            self.kinematics,
            "" if self.contribution is None else f"{self.contribution:+.2f}",
            self.instead,
        )


def object_rows(event: ExplainedEvent) -> list[ObjectRow]:
    """MET and objects of an event, the largest contribution first; equal ones are one row.

    Objects are equal if they are of one type and their contributions, to two digits, and what was expected agree.
    """
    tokens = {token.object: token for token in event.tokens if token.object is not None}
    parts = []
    for number, one in enumerate(event.objects):
        token = tokens.get(number)
        key = one.name, None if one.contribution is None else round(one.contribution, 2), _instead(token)
        parts.append((key, one))
    parts.sort(key=lambda part: (-(part[0][1] or 0), part[0][0], part[0][2]))
    rows = [_row([one for _, one in same], key[1], key[2]) for key, same in groupby(parts, key=lambda part: part[0])]
    of_met = " and ".join(filter(None, (_instead(token) for token in event.tokens if token.name == "MET")))
    kinematics = f"{event.met_mev / 1e3:.0f} GeV, phi {event.met_phi:.2f}"
    rows.append(ObjectRow("MET", kinematics, event.met_contribution, of_met))
    return sorted(rows, key=lambda row: -(row.contribution or 0))


def _row(objects: Iterable[ExplainedObject], contribution: float | None, instead: str) -> ObjectRow:
    group = list(objects)
    name, pt_gev = group[0].name, sorted(one.pt_mev / 1e3 for one in group)
    if len(group) == 1:
        return ObjectRow(name, f"pT {pt_gev[0]:.0f} GeV, eta {group[0].eta:.2f}", contribution, instead)
    return ObjectRow(f"{len(group)} {name}s", f"pT {pt_gev[0]:.0f} to {pt_gev[-1]:.0f} GeV", contribution, instead)


def _instead(token: TokenExplanation | None) -> str:
    """The most probable other thing, and its probability."""
    others = [] if token is None else [one for one in token.expected if one.text != token.observed.text]
    return f"{others[0].text} ({100 * others[0].probability:.0f}%)" if others else ""


def draw_explained(event: ExplainedEvent) -> Drawing:
    """Draw the contributions to the score of an event's objects and terms."""
    rows = [(f"{row.what}, {row.kinematics}", row.contribution) for row in object_rows(event)]
    bars = [(text, value) for text, value in rows if value is not None]
    terms = [(f"{term.name}: {term.text}"[:60], term.contribution) for term in event.terms]
    panels = [
        (title, part) for title, part in (("contribution to the score", bars), ("size of the term", terms)) if part
    ]
    heights = [len(part) for _, part in panels]
    size = (7.0, 1.2 + 0.28 * sum(heights) + 0.5 * len(panels))
    with new_figure(len(panels), 1, size, height_ratios=heights) as (drawing, axes):
        for axis, (title, part) in zip(axes[:, 0], panels, strict=True):
            axis.barh(range(len(part)), [value for _, value in part], color=_COLOR)
            axis.set_yticks(range(len(part)), [text for text, _ in part])
            axis.invert_yaxis()
            axis.set_xlabel(title)
            axis.axvline(0, color="0.4", linewidth=1)
            axis.minorticks_off()
        axes[0, 0].set_title(f"event {event.event_id}: score {event.score:.2f}", loc="left")
    return drawing
