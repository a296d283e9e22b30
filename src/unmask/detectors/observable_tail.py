"""Tail probability of an event's observables in background, without any network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet
from unmask.events.observables import OBSERVABLES
from unmask.scores.explanations import Term
from unmask.scores.p_values import Array, BackgroundTail, p_value_text

#: Observables of the tail term: invisible energy, heavy quarks, and visible energy.
IN_TAIL = ("met", "n_b_jets", "sum_pt")
#: Those of the product that stands in for a network of few events.
IN_PRODUCT = ("n_objects", *IN_TAIL)
_RULES = ("smallest", "product", "product_of_all")


@dataclass(frozen=True)
class ObservableTail:
    """Minus log p of observables in training background, as two terms of a score.

    The first is the larger of the values of the smallest p-value of three observables and of their product: the one
    finds one extreme observable, the other several that are all rather large. The second is that of the product of the
    p-values of four. As the p-values are correlated, smallest and products have p-values of their own.
    """

    of_observable: dict[str, BackgroundTail]
    of_rule: dict[str, BackgroundTail]

    @classmethod
    def of(cls, train: EventSet) -> Self:
        """Measure on background events."""
        tails = {name: BackgroundTail.of(OBSERVABLES[name].of(train)) for name in IN_PRODUCT}
        return cls(tails, {rule: BackgroundTail.of(value) for rule, value in _combined(tails, train).items()})

    def minus_log_p(self, events: EventSet) -> tuple[Array, Array]:
        """Both terms (n_events,); the first is not a p-value itself, since it is the larger of two."""
        smallest, product, of_all = (
            self.of_rule[rule].minus_log_p_of(value) for rule, value in _combined(self.of_observable, events).items()
        )
        return np.maximum(smallest, product), of_all

    def terms(self, events: EventSet) -> list[list[Term]]:
        """Observables of each event, the most extreme first."""
        tails = self.of_observable
        minus_log_p = [tail.minus_log_p_of(OBSERVABLES[name].of(events)) for name, tail in tails.items()]
        return observable_terms(events, list(tails), minus_log_p, [tail.beyond for tail in tails.values()])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Everything learned, by name."""
        tails = self.of_observable | self.of_rule
        return {key: array for name, tail in tails.items() for key, array in tail.arrays(f"tail.{name}").items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """Restore what :meth:`arrays` returned."""
        names = [key.split(".")[1] for key in arrays if key.startswith("tail.") and key.endswith(".scale")]
        tails = {name: BackgroundTail.from_arrays(arrays, f"tail.{name}") for name in names}
        rules = {rule: tails.pop(rule) for rule in _RULES}
        return cls(tails, rules)


def observable_terms(
    events: EventSet, names: Sequence[str], minus_log_p: Sequence[Array], beyond: Sequence[float]
) -> list[list[Term]]:
    """Terms of each event, the most extreme first: -ln p (n_events,) of observables, measured up to ``beyond``."""
    columns = []
    for name, of_events, limit in zip(names, minus_log_p, beyond, strict=True):
        one, values = OBSERVABLES[name], OBSERVABLES[name].of(events).tolist()
        columns.append(
            [
                Term(one.label, f"{one.text(value)}; {p_value_text(p, limit)}", value, p)
                for value, p in zip(values, of_events.tolist(), strict=True)
            ]
        )
    return [sorted(terms, key=lambda term: -term.contribution) for terms in zip(*columns, strict=True)]


def _combined(tails: dict[str, BackgroundTail], events: EventSet) -> dict[str, Array]:
    """Smallest p-value and product of p-values of three observables, and product of four, as minus logarithms."""
    minus_log_p = {name: tail.minus_log_p_of(OBSERVABLES[name].of(events)) for name, tail in tails.items()}
    in_tail = np.stack([minus_log_p[name] for name in IN_TAIL])
    of_all = np.sum([minus_log_p[name] for name in IN_PRODUCT], axis=0)
    return dict(zip(_RULES, (in_tail.max(axis=0), in_tail.sum(axis=0), of_all), strict=True))
