"""What the tokens of events do, as figures: for reports of studies, and to look at a tokenizer by itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.events.objects import MET_TYPE
from unmask.networks.kinematic_features import Kinematics, kinematics_of
from unmask.report import token_figures
from unmask.report.style import Drawing, Style
from unmask.tokenizers.base import Tokenizer
from unmask.tokenizers.lookup_table import LookupTableTokenizer


def token_drawings(tokenizer: Tokenizer, chunks: Iterable[EventSet], *, style: Style = "plain") -> dict[str, Drawing]:
    """Draw usage of the codes, occurrence in signal and background and, for a learned code book, its closure.

    Raises
    ------
    UsageError
        If no event is labelled background.
    """
    counter = token_figures.TokenCounter(tokenizer.n_codes)
    some_background = None
    for events in chunks:
        tokens = tokenizer.encode(events)
        counter.add(tokens.tokens, tokens.label, tokens.weight)
        if some_background is None and (events.label == BACKGROUND).any():
            some_background = tokenizer.schema_.admit(events[events.label == BACKGROUND], "tokenizer")
    background, signal = counter.share(BACKGROUND), counter.share(SIGNAL)
    if background is None or some_background is None:
        raise UsageError("no event to draw is labelled background; label them with: unmask data convert --label")
    title = f"{tokenizer.kind}, {tokenizer.n_codes:,} codes"
    drawings = {"code-usage": token_figures.draw_code_usage(background, title=title, style=style)}
    if signal is not None:
        n_object_codes = tokenizer.n_object_codes if isinstance(tokenizer, LookupTableTokenizer) else None
        drawings["token-occurrence"] = token_figures.draw_token_occurrence(
            background, signal, n_object_codes=n_object_codes, title=title, style=style
        )
    reconstruct = getattr(tokenizer, "reconstruct", None)
    if reconstruct is not None:
        is_object = some_background.is_object
        both = (
            _columns(kinematics, is_object)
            for kinematics in (kinematics_of(some_background), reconstruct(some_background))
        )
        drawings["closure"] = token_figures.draw_closure(*both, style=style)
    return drawings


def _columns(kinematics: Kinematics, is_object: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.float32]]:
    """What the closure figure shows of the objects, and of the MET, which is the first position."""
    return {
        "pT [GeV]": kinematics.pt_mev[:, 1:][is_object] / 1e3,
        "eta": kinematics.eta[:, 1:][is_object],
        "phi [rad]": kinematics.phi[:, 1:][is_object],
        "E [GeV]": kinematics.energy_mev[:, 1:][is_object] / 1e3,
        "MET [GeV]": kinematics.pt_mev[:, 0] / 1e3,
    }


def token_types(tokenizer: Tokenizer, events: EventSet) -> npt.NDArray[np.int64]:
    """What each token (n_events, sequence) stands for: the tag of an object, or the MET or its direction."""
    of_event = tokenizer.event_positions
    types = np.zeros((len(events), tokenizer.sequence_length), np.int64)
    tags = tokenizer.schema_.admit(events, "tokenizer").tag
    types[:, [i for i in range(tokenizer.sequence_length) if i not in of_event]] = tags
    for position, name in of_event.items():
        types[:, position] = MET_TYPE if name == "MET" else token_figures.MET_PHI_TYPE
    return types
