"""Base class of the tokenizers."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.fitted import TOKENIZERS, Fitted, load
from unmask.tokenizers.bins import Bin
from unmask.tokenizers.token_set import PAD_ID, TokenSet

if TYPE_CHECKING:
    from unmask.networks.event_tensors import Kinematics


class Tokenizer(Fitted):
    """Turns events into sequences of tokens: 0 for padding, 1 to ``n_codes`` for the vocabulary."""

    #: Errors of the reconstruction and usage of the codes on the validation events, if there is a reconstruction.
    validation_report_: dict[str, float] | None = None

    @property
    @abstractmethod
    def n_codes(self) -> int:
        """Size of the vocabulary, padding not counted."""

    @property
    def n_object_codes(self) -> int | None:
        """Number of codes of objects, which come first; None if objects and MET share codes."""
        return None

    @property
    @abstractmethod
    def sequence_length(self) -> int:
        """Tokens per event, padding included."""

    @property
    @abstractmethod
    def event_positions(self) -> dict[int, str]:
        """Positions of the sequence that belong to the event as a whole, and their names; objects have the others."""

    @abstractmethod
    def _encode(self, events: EventSet) -> npt.NDArray[np.int32]:
        """Tokens (n_events, sequence)."""

    @abstractmethod
    def _describe(self, token: int, brief: bool) -> str:
        """Describe a token from 1 to ``n_codes``."""

    def encode(self, events: EventSet) -> TokenSet:
        """Turn events into tokens."""
        self.check_fitted()
        admitted = self.schema_.admit(events, f"{self.kind} tokenizer")
        return TokenSet.of(events, self._encode(admitted), self.n_codes)

    def try_out(self) -> None:
        self.encode(self._one_event())

    def describe(self, token: int, *, brief: bool = False) -> str:
        """Describe a token.

        Parameters
        ----------
        brief
            Give only the type and pT of an object, without statistics; several tokens then have the same description.

        Raises
        ------
        UsageError
            If there is no such token.
        """
        self.check_fitted()
        if not PAD_ID <= token <= self.n_codes:
            raise UsageError(f"no token {token}: this tokenizer has 0 (padding) and 1 to {self.n_codes}")
        return "padding" if token == PAD_ID else self._describe(int(token), brief)

    def reconstruct(self, events: EventSet) -> Kinematics | None:  # noqa: ARG002
        """Encode and decode events, for a tokenizer that can decode."""
        return None

    def bins_table(self) -> list[Bin]:
        """Bins of every variable in physical units: GeV for pT and MET, radians for phi; empty if there are none."""
        return []


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load a saved tokenizer of any kind; see :func:`unmask.fitted.load`."""
    tokenizer: Tokenizer = load(folder, TOKENIZERS)
    return tokenizer
