"""Explanations of events by the losses of their tokens, from probabilities and descriptions alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from unmask.events.event_set import EventSet
from unmask.events.objects import OBJECTS
from unmask.scores.explanations import Explanation, Guess, Term, TokenExplanation
from unmask.tokenizers import PAD_ID, Tokenizer

_N_EXPECTED = 3
NO_OBJECT = "no further object"


@dataclass(frozen=True)
class TokenTexts:
    """Names of the tokens of a tokenizer, those of events included.

    Attributes
    ----------
    brief, text
        Descriptions of the tokens from 1.
    event_positions
        Positions of the sequence that belong to the event as a whole, and their names.
    counts_padding
        Whether padding is predicted, so that its losses are those of the number of objects.
    """

    brief: list[str]
    text: list[str]
    event_positions: dict[int, str]
    counts_padding: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, counts_padding: bool) -> Self:
        """Ask a tokenizer."""
        tokens = range(1, tokenizer.n_codes + 1)
        brief, text = ([tokenizer.describe(token, brief=is_brief) for token in tokens] for is_brief in (True, False))
        return cls(brief, text, tokenizer.event_positions, counts_padding)

    @cached_property
    def _groups(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Number of the brief description of each token, and these descriptions."""
        known: dict[str, int] = {NO_OBJECT: 0}
        group = np.array([0, *(known.setdefault(text, len(known)) for text in self.brief)])
        return group, list(known)

    def explanations(
        self,
        events: EventSet,
        tokens: npt.NDArray[np.integer],
        losses: npt.NDArray[np.float32],
        probabilities: npt.NDArray[np.float32],
    ) -> Iterator[Explanation]:
        """Explain events by their tokens (n_events, sequence), the losses and the probabilities of all tokens there.

        The losses of padding, where it is predicted, belong to the number of objects: they are added up in a term of
        that name, and of the padding only the first empty slot is listed among the tokens.
        """
        for each in zip(events.tag, tokens, losses, probabilities, strict=True):
            yield self._explanation(*each)

    def _explanation(
        self, tags: npt.NDArray[np.uint8], tokens: npt.NDArray[Any], losses: npt.NDArray[Any], p: npt.NDArray[Any]
    ) -> Explanation:
        of_event = self.event_positions
        object_of_position = {at: n for n, at in enumerate(at for at in range(len(tokens)) if at not in of_event)}

        def token_at(position: int) -> TokenExplanation:
            token, number = int(tokens[position]), object_of_position.get(position)
            is_empty = token == PAD_ID
            observed, expected = self._guesses(p[position], token)
            return TokenExplanation(
                name=of_event.get(position) or ("empty slot" if is_empty else OBJECTS[int(tags[number or 0])].name),
                text=NO_OBJECT if is_empty else self.text[token - 1],
                token_loss=round(float(losses[position]), 4),
                probability=float(f"{np.exp(-float(losses[position])):.4g}"),
                observed=observed,
                expected=expected,
                object=None if is_empty else number,
            )

        listed = [token_at(int(position)) for position in np.flatnonzero(tokens != PAD_ID)]
        of_objects = [token for token in listed if token.object is not None]
        of_met = [token.token_loss for token in listed if token.object is None]
        terms = []
        empty = np.flatnonzero(tokens == PAD_ID)
        if self.counts_padding and len(empty):
            first = token_at(int(empty[0]))
            listed.append(first)
            guesses = "; ".join(f"{guess.text} ({100 * guess.probability:.1f}%)" for guess in first.expected)
            text = f"{len(of_objects)} objects and {len(empty)} empty slots; in an empty slot expected: {guesses}"
            terms.append(Term("number of objects", text, len(of_objects), round(float(losses[empty].sum()), 4)))
        return Explanation(
            object_contribution=[token.token_loss for token in of_objects],
            met_contribution=round(sum(of_met), 4) if of_met else None,
            tokens=listed,
            terms=terms,
        )

    def _guesses(self, probabilities: npt.NDArray[np.float32], token: int) -> tuple[Guess, list[Guess]]:
        """The observed token and the expected ones; probabilities of equal descriptions are added up."""
        group, texts = self._groups
        grouped = np.bincount(group, weights=probabilities)
        best = np.argsort(-grouped, kind="stable")[:_N_EXPECTED]
        observed, *expected = (Guess(texts[i], round(float(grouped[i]), 6)) for i in (group[token], *best))
        return observed, expected
