"""What every tokenizer does: learn from background, turn events into tokens, say what a token means, save and load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Artifact, Json, load_artifact, provenance, save_artifact
from unmask.errors import ArtifactError, NotFittedError, UsageError
from unmask.events.event_set import SIGNAL, EventSet
from unmask.events.schema import EventSchema
from unmask.tokenizers.token_set import PAD_ID, TokenSet

__all__ = ["PAD_ID", "TokenSet", "Tokenizer", "check_background"]


class Tokenizer(ABC):
    """Turns events into sequences of tokens.

    Constructors only store their arguments; what :meth:`fit` learns ends in ``_``. A subclass names its ``kind``,
    lists its constructor's arguments in :meth:`settings`, and begins :meth:`fit` with :meth:`_start_fit`.
    """

    #: Name in the manifest of a saved tokenizer.
    kind: ClassVar[str]

    #: Settings of earlier versions, which must be off in a saved tokenizer.
    _former_settings: ClassVar[tuple[str, ...]] = ()

    #: Events that the tokenizer can encode: those like the events that it was fitted on.
    schema_: EventSchema = EventSchema()
    #: What the tokenizer has learnt from: numbers of events, files and processes; None before :meth:`fit`.
    fitted_on_: dict[str, Json] | None = None

    @property
    @abstractmethod
    def n_codes(self) -> int:
        """Size of the vocabulary, padding not counted."""

    @property
    @abstractmethod
    def sequence_length(self) -> int:
        """Tokens per event, padding included."""

    @abstractmethod
    def fit(self, train: EventSet, validation: EventSet | None = None) -> Self:
        """Learn from background events.

        Raises
        ------
        UsageError
            If signal events are among them, or too few events.
        """

    @abstractmethod
    def settings(self) -> dict[str, Json]:
        """Arguments of the constructor, as JSON can hold them."""

    @abstractmethod
    def _encode(self, events: EventSet) -> npt.NDArray[np.int32]:
        """Tokens (n_events, sequence)."""

    @property
    @abstractmethod
    def event_positions(self) -> dict[int, str]:
        """Positions of the sequence that belong to the event as a whole, and their names; objects have the others."""

    @abstractmethod
    def _describe(self, token: int, brief: bool) -> str:
        """Words for a token from 1 to ``n_codes``."""

    @abstractmethod
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""

    def _facts(self) -> dict[str, Json]:
        """What else shall be known of the fit."""
        return {}

    @abstractmethod
    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        """Take back what :meth:`_arrays` and :meth:`_facts` gave."""

    def encode(self, events: EventSet) -> TokenSet:
        """Turn events into tokens."""
        self._check_fitted()
        admitted = self.schema_.admit(events, f"{self.kind} tokenizer")
        return TokenSet.of(events, self._encode(admitted), self.n_codes)

    def encode_stream(self, chunks: Iterable[EventSet]) -> Iterator[TokenSet]:
        """Turn a stream of events into a stream of tokens, a chunk at a time."""
        for events in chunks:
            yield self.encode(events)

    def describe(self, token: int, *, brief: bool = False) -> str:
        """Say in words what a token stands for.

        Parameters
        ----------
        brief : of an object only its type and pT, without statistics; several tokens then have the same words.

        Raises
        ------
        UsageError
            If there is no such token.
        """
        self._check_fitted()
        if not PAD_ID <= token <= self.n_codes:
            raise UsageError(f"no token {token}: this tokenizer has 0 (padding) and 1 to {self.n_codes}")
        return "padding" if token == PAD_ID else self._describe(int(token), brief)

    def save(self, folder: str | Path) -> None:
        """Write the fitted tokenizer to a folder of its own."""
        self._check_fitted()
        made_by = provenance(fitted_on=self.fitted_on_, events=asdict(self.schema_), **self._facts())
        save_artifact(folder, Artifact(self.kind, self.settings(), self._arrays(), made_by))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a tokenizer that :meth:`save` wrote.

        Raises
        ------
        ArtifactError
            If it is not there, of another kind or version, damaged or changed by hand.
        """
        return cls.from_artifact(load_artifact(folder, cls.kind), folder)

    @classmethod
    def from_artifact(cls, artifact: Artifact, folder: str | Path) -> Self:
        """Make the tokenizer again from what was read from ``folder``."""
        settings = dict(artifact.settings)
        for name in cls._former_settings:
            if settings.pop(name, None):
                raise ArtifactError(f"fitted with {name}, which this unmask does not have; fit it again", path=folder)
        try:
            tokenizer = cls(**settings)
            tokenizer.schema_ = EventSchema.from_json(artifact.provenance["events"])
            tokenizer._restore(artifact.arrays, artifact.provenance)
            tokenizer.fitted_on_ = artifact.provenance["fitted_on"]
        except (TypeError, KeyError, ValueError) as error:
            raise ArtifactError(f"does not hold a whole {cls.kind} tokenizer ({error})", path=folder) from None
        return tokenizer

    def _start_fit(self, train: EventSet, validation: EventSet | None) -> dict[str, Json]:
        """Refuse signal, and give what ``fitted_on_`` shall be once the fit has succeeded."""
        facts: dict[str, Json] = {}
        for name, events in (("train", train), ("validation", validation)):
            if events is not None:
                check_background(events)
                facts[name] = {
                    "n_events": len(events),
                    "n_objects": int(events.n_objects.sum()),
                    "files": events.file_names.counts(),
                    "processes": events.process_names.counts(),
                }
        self.schema_ = EventSchema.of(*(events for events in (train, validation) if events is not None))
        return facts

    def _check_fitted(self) -> None:
        if self.fitted_on_ is None:
            raise NotFittedError(
                f"this {self.kind} tokenizer has not been fitted; call fit(background) or load one first"
            )


def check_background(events: EventSet) -> None:
    """Refuse signal: nothing that is fitted may see it before the test."""
    n_signal = int(np.count_nonzero(events.label == SIGNAL))
    if n_signal:
        raise UsageError(
            f"{n_signal:,} of {len(events):,} events are labelled signal; "
            "fit on background only and keep all signal for the test"
        )
