"""How far in the tail of background an event's observables are, without any network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet
from unmask.events.observables import OBSERVABLES
from unmask.scores.explanations import Term
from unmask.scores.p_values import Array, BackgroundTail

#: Observables of the tail term: the energy that is seen, that is not seen, and the heavy quarks.
IN_TAIL = ("met", "n_b_jets", "sum_pt")
_RULES = ("smallest", "product")


@dataclass(frozen=True)
class ObservableTail:
    """Minus log p of several observables as one: the larger of what their smallest p-value and their product give.

    The p-values of observables are those in training background; those of the smallest and of the product, in
    validation background, as their terms are correlated there. One extreme observable is found by the first, several
    that are all rather large by the second.

    Attributes
    ----------
    of_observable
        Background tails by the name of the observable.
    of_rule
        Background tails of the smallest p-value and of the product.
    """

    of_observable: dict[str, BackgroundTail]
    of_rule: dict[str, BackgroundTail]

    @classmethod
    def of(cls, train: EventSet, validation: EventSet) -> Self:
        """Learn from background events."""
        found = {name: BackgroundTail.of(OBSERVABLES[name].of(train)) for name in IN_TAIL}
        both = _of_rules(_of_observables(found, validation))
        return cls(found, {rule: BackgroundTail.of(value) for rule, value in zip(_RULES, both, strict=True)})

    def minus_log_p(self, events: EventSet) -> Array:
        """(n_events,); not a p-value itself, since it is the larger of two."""
        smallest, product = _of_rules(_of_observables(self.of_observable, events))
        of_rule = self.of_rule
        larger: Array = np.maximum(
            of_rule["smallest"].minus_log_p_of(smallest), of_rule["product"].minus_log_p_of(product)
        )
        return larger

    def terms(self, events: EventSet) -> list[list[Term]]:
        """Of each event its observables, the most extreme first."""
        columns = []
        for name, tail in self.of_observable.items():
            observable, values = OBSERVABLES[name], OBSERVABLES[name].of(events)
            columns.append(
                [
                    Term(observable.label, f"{observable.text(value)}; {tail.text(p)}", value, p)
                    for value, p in zip(values.tolist(), tail.minus_log_p_of(values).tolist(), strict=True)
                ]
            )
        return [sorted(terms, key=lambda term: -term.contribution) for terms in zip(*columns, strict=True)]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""
        tails = {f"tail.{name}": tail for name, tail in (self.of_observable | self.of_rule).items()}
        return {key: array for name, tail in tails.items() for key, array in tail.arrays(name).items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """Take back what :meth:`arrays` gave."""
        known = [key.split(".")[1] for key in arrays if key.startswith("tail.") and key.endswith(".scale")]
        tails = {name: BackgroundTail.from_arrays(arrays, f"tail.{name}") for name in known}
        return cls(
            {name: tail for name, tail in tails.items() if name not in _RULES}, {rule: tails[rule] for rule in _RULES}
        )


def _of_observables(tails: dict[str, BackgroundTail], events: EventSet) -> Array:
    """(n_observables, n_events)."""
    return np.stack([tail.minus_log_p_of(OBSERVABLES[name].of(events)) for name, tail in tails.items()])


def _of_rules(minus_log_p: Array) -> tuple[Array, Array]:
    """The smallest p-value and the product, as minus logarithms."""
    return minus_log_p.max(axis=0), minus_log_p.sum(axis=0)
