"""What the masked-token detector expected at each token of an event, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from unmask.events.event_set import EventSet
from unmask.events.objects import OBJECTS
from unmask.networks.masked_token_scoring import token_probabilities
from unmask.scores.explanations import Explanation, Guess, Term, TokenExplanation
from unmask.tokenizers.base import PAD_ID, Tokenizer

if TYPE_CHECKING:
    from unmask.detectors.masked_token import MaskedTokenDetector

N_EXPECTED = 3
NO_OBJECT = "no further object"
#: Events whose probabilities of all tokens at all positions are held in memory.
_BATCH_EVENTS = 32


def explain_masked_tokens(
    detector: MaskedTokenDetector, events: EventSet, *, device: str = "auto"
) -> list[Explanation]:
    """Mask each token of each event in turn, and give its loss and what was expected instead.

    The contributions are the losses of which the score is made. Those of padding, where it is predicted, belong to the
    number of objects: they are added up in a term of that name, and of the tokens only the first empty slot is listed.
    """
    words = _Words(detector.tokenizer)
    explanations = []
    for some in events.chunks(_BATCH_EVENTS):
        tokens = detector.tokenizer.encode(some)
        losses = detector.token_losses(tokens, device=device)  # also moves the network to the device
        where = next(detector.network_.parameters()).device
        probabilities = token_probabilities(detector.network_, torch.tensor(tokens.tokens, device=where)).cpu().numpy()
        explanations += [
            _explain(words, some.tag[i], tokens.tokens[i], losses[i], probabilities[i], detector.padding == "predict")
            for i in range(len(some))
        ]
    return explanations


class _Words:
    """What the tokens of a tokenizer stand for; expectations of the same words are added up."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        known: dict[str, int] = {NO_OBJECT: 0}
        brief = (tokenizer.describe(token, brief=True) for token in range(1, tokenizer.n_codes + 1))
        self.group = np.array([0, *(known.setdefault(text, len(known)) for text in brief)])
        self.texts = list(known)

    def guesses(self, probabilities: npt.NDArray[np.float32], token: int) -> tuple[Guess, list[Guess]]:
        """What stood there, and what was expected."""
        grouped = np.bincount(self.group, weights=probabilities)
        best = np.argsort(-grouped, kind="stable")[:N_EXPECTED]
        observed, *expected = (Guess(self.texts[i], round(float(grouped[i]), 6)) for i in (self.group[token], *best))
        return observed, expected


def _explain(
    words: _Words,
    tags: npt.NDArray[np.uint8],
    tokens: npt.NDArray[np.int32],
    losses: npt.NDArray[np.float32],
    probabilities: npt.NDArray[np.float32],
    explains_padding: bool,
) -> Explanation:
    of_event = words.tokenizer.event_positions
    object_of_position = {p: n for n, p in enumerate(p for p in range(len(tokens)) if p not in of_event)}

    def token_at(position: int) -> TokenExplanation:
        token, number = int(tokens[position]), object_of_position.get(position)
        is_empty = token == PAD_ID
        observed, expected = words.guesses(probabilities[position], token)
        return TokenExplanation(
            name=of_event.get(position) or ("empty slot" if is_empty else OBJECTS[int(tags[number or 0])].name),
            text=NO_OBJECT if is_empty else words.tokenizer.describe(token),
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
    if explains_padding and len(empty):
        first = token_at(int(empty[0]))
        listed.append(first)
        guesses = "; ".join(f"{guess.text} ({100 * guess.probability:.1f} %)" for guess in first.expected)
        text = f"{len(of_objects)} objects and {len(empty)} empty slots; in an empty slot expected: {guesses}"
        terms.append(Term("number of objects", text, len(of_objects), round(float(losses[empty].sum()), 4)))
    return Explanation(
        object_contribution=[token.token_loss for token in of_objects],
        met_contribution=round(sum(of_met), 4) if of_met else None,
        tokens=listed,
        terms=terms,
    )
