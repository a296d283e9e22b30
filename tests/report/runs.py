"""Scores with explanations, as scoring leaves them, without a trained network."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.events.event_set import EventSet
from unmask.events.objects import OBJECTS
from unmask.scores.explanations import Explanation, Guess, MostAnomalous, Term, TokenExplanation, write_explanations
from unmask.scores.score_table import Scores, write_scores


class Explainer:
    """Explains as a detector does: the harder an object, the more it contributes."""

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        return [self._explain(events, i) for i in range(len(events))]

    def _explain(self, events: EventSet, i: int) -> Explanation:
        n = int(events.n_objects[i])
        losses = [round(float(pt) / 4e4 + 0.123, 4) for pt in events.pt_mev[i, :n]]
        tokens = [
            TokenExplanation(
                name=OBJECTS[int(events.tag[i, j])].name,
                text=f"{OBJECTS[int(events.tag[i, j])].name}, pT above 20 GeV, phi -1.57 to 0.00",
                token_loss=losses[j],
                probability=float(np.exp(-losses[j])),
                observed=Guess("found here", 0.04),
                expected=[Guess("b-jet, pT 58 to 90 GeV", 0.5), Guess("no further object", 0.25), Guess("jet", 0.1)],
                object=j,
            )
            for j in range(n)
        ]
        met = TokenExplanation(
            "MET", "MET 70 to 95 GeV", 1.5, 0.22, Guess("MET", 0.22), [Guess("MET below 70 GeV", 0.7)]
        )
        nothing = Guess("no further object", 0.3)
        empty = TokenExplanation("empty slot", nothing.text, 1.2, 0.3, nothing, [nothing])
        terms = [Term("number of objects", f"{n} objects, expected 4 to 6", n, 2.5)]
        return Explanation(list(losses), 1.5, [*tokens, met, empty], terms)


class TermsOnly(Explainer):
    """A detector that explains by terms alone."""

    def _explain(self, events: EventSet, i: int) -> Explanation:
        term = Term("number of b-jets given the rest", "5, expected 1 to 2; p = 0.002", 5, 6.21)
        return Explanation([None] * int(events.n_objects[i]), terms=[term])


class ObjectsOnly(Explainer):
    """A detector that knows contributions of objects, but has no tokens."""

    def _explain(self, events: EventSet, i: int) -> Explanation:
        return Explanation(super()._explain(events, i).object_contribution)


def write_run(
    path: Path,
    make_events: Callable[..., EventSet],
    *,
    seed: int = 0,
    labels: Sequence[int] = (0, 1),
    n_explained: int = 10,
    weight_of_first: float | None = None,
    explainer: Explainer | None = None,
    provenance: dict[str, object] | None = None,
    **options: object,
) -> Path:
    """Write 200 scored events of each label to ``path``, signal scoring higher, and explain the highest."""
    parts = [make_events(200, label=label, seed=k, **options) for k, label in enumerate(labels)]
    events = EventSet.concatenate(
        [replace(part, row=part.row + 200 * k) for k, part in enumerate(parts)]  # rows of one file
    )
    if weight_of_first is not None:
        events = replace(events, weight=np.concatenate([[weight_of_first], events.weight[1:]]))
    score = np.random.default_rng(seed).normal(size=len(events)) + (events.label == 1)
    write_scores(path, [Scores.of(events, score)], provenance={"command": "unmask score model"} | (provenance or {}))
    if n_explained:
        most = MostAnomalous(n_explained)
        most.add(events, score)
        detector = explainer or Explainer()
        write_explanations(path, most, detector.explain(most.events))
    return path
