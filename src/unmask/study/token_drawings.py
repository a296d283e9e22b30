"""Figures of the tokens of events: for reports of studies, and to look at a tokenizer by itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.events.objects import MET_TYPE
from unmask.networks.event_tensors import Kinematics, kinematics_of
from unmask.report.other_figures import MET_PHI_TYPE, draw_closure, draw_code_usage, draw_token_occurrence
from unmask.report.style import Drawing, Style
from unmask.tokenizers.base import Tokenizer


def token_drawings(tokenizer: Tokenizer, chunks: Iterable[EventSet], *, style: Style = "plain") -> dict[str, Drawing]:
    """Draw usage of the codes, occurrence in signal and background and, for a learned codebook, its closure.

    Raises
    ------
    UsageError
        If no event is labeled background.
    """
    counts = {label: np.zeros(tokenizer.n_codes + 1) for label in (BACKGROUND, SIGNAL)}
    some_background = None
    for events in chunks:
        tokens = tokenizer.encode(events).tokens
        for label, count in counts.items():
            chosen = events.label == label
            weight = np.repeat(events.weight[chosen], tokens.shape[1])
            count += np.bincount(tokens[chosen].ravel(), weight, minlength=len(count))
        if some_background is None and (events.label == BACKGROUND).any():
            some_background = tokenizer.schema_.admit(events[events.label == BACKGROUND], "tokenizer")
    totals = {label: count[1:].sum() for label, count in counts.items()}  # without padding
    if some_background is None or totals[BACKGROUND] <= 0:
        raise UsageError("no event to draw is labeled background; label them with: unmask data convert --label")
    background = counts[BACKGROUND][1:] / totals[BACKGROUND]
    title = f"{tokenizer.kind}, {tokenizer.n_codes:,} codes"
    drawings = {"code-usage": draw_code_usage(background, title=title, style=style)}
    if totals[SIGNAL] > 0:
        signal = counts[SIGNAL][1:] / totals[SIGNAL]
        drawings["token-occurrence"] = draw_token_occurrence(
            background, signal, n_object_codes=tokenizer.n_object_codes, title=title, style=style
        )
    if reconstructed := tokenizer.reconstruct(some_background):
        both = (kinematics_of(some_background), reconstructed)
        drawings["closure"] = draw_closure(*(_columns(one, some_background.is_object) for one in both), style=style)
    return drawings


def _columns(kinematics: Kinematics, is_object: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.float32]]:
    """Kinematics of the objects, and the MET, which is the first position."""
    return {
        "pT [GeV]": kinematics.pt_mev[:, 1:][is_object] / 1e3,
        "eta": kinematics.eta[:, 1:][is_object],
        "phi [rad]": kinematics.phi[:, 1:][is_object],
        "E [GeV]": kinematics.energy_mev[:, 1:][is_object] / 1e3,
        "MET [GeV]": kinematics.pt_mev[:, 0] / 1e3,
    }


def token_types(tokenizer: Tokenizer, events: EventSet) -> npt.NDArray[np.int64]:
    """Type of each token (n_events, sequence): the tag of an object, or the MET or its direction."""
    of_event = tokenizer.event_positions
    types = np.zeros((len(events), tokenizer.sequence_length), np.int64)
    tags = tokenizer.schema_.admit(events, "tokenizer").tag
    types[:, [i for i in range(tokenizer.sequence_length) if i not in of_event]] = tags
    for position, name in of_event.items():
        types[:, position] = MET_TYPE if name == "MET" else MET_PHI_TYPE
    return types
