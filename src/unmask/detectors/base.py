"""What every detector does: learn from background, give each event one number, save and load."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Artifact, Json, load_artifact, provenance, save_artifact
from unmask.errors import ArtifactError, NotFittedError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.scores.score_table import Scores
from unmask.tokenizers.base import check_background

if TYPE_CHECKING:
    from unmask.scores.explanations import Explanation
    from unmask.training import Reporter

_SEEN = "events.fingerprint"


class Detector(ABC):
    """Gives each event a score; larger is more anomalous.

    Constructors only store their arguments; what :meth:`fit` learns ends in ``_``. A subclass says how it learns
    (:meth:`_fit`), how it scores (:meth:`score_events`) and what it has learnt (:meth:`_arrays`, :meth:`_restore`).
    """

    #: Name in the manifest of a saved detector.
    kind: ClassVar[str]
    #: Arguments of the constructor that are saved in folders of their own, or are shorthands, and so are no settings.
    _not_settings: ClassVar[tuple[str, ...]] = ("tokenizer", "seed")

    #: What the detector has learnt from; None before :meth:`fit`.
    fitted_on_: dict[str, Json] | None = None
    #: The training events, so that they can be told from others; None for a detector of unknown training.
    seen_: TrainingFingerprints | None = None

    def fit(
        self,
        train: EventSet,
        validation: EventSet,
        *,
        run_folder: str | Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        """Learn from background events; with a ``run_folder`` the training is logged there and can be resumed.

        Raises
        ------
        UsageError
            If signal events are among them, or there are none.
        """
        self._check_events(train, validation)
        self._fit(train, validation, None if run_folder is None else Path(run_folder), reporter)
        self.fitted_on_ = {
            "n_train": len(train),
            "n_validation": len(validation),
            "processes": train.process_names.counts(),
            "files": train.file_names.counts(),
        }
        self.seen_ = TrainingFingerprints.of(train)
        return self

    def _check_events(self, train: EventSet, validation: EventSet) -> None:
        for events in (train, validation):
            check_background(events)
        if not len(train) or not len(validation):
            raise UsageError("training and validation events are both needed; one of them has none")

    @abstractmethod
    def _fit(
        self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None
    ) -> None: ...

    @abstractmethod
    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        """Scores (n_events,); larger is more anomalous."""

    def scores(
        self,
        events: EventSet,
        *,
        how: str | None = None,
        with_token_losses: bool = False,
        device: str = "auto",
    ) -> Scores:
        """Scores with the identity of the events.

        Parameters
        ----------
        how : the name of a score, for detectors that have several.
        with_token_losses : also give the loss of every token, for detectors that have tokens.
        """
        if how is not None or with_token_losses:
            raise UsageError(f"a {self.kind} detector has one score and no token losses")
        return Scores.of(events, self.score_events(events, device=device), seen=self.seen_)

    def origin_of_scores(self, model: str | None, how: str | None = None) -> dict[str, Json]:
        """What a file of scores says of them: the hash of the ``model``'s manifest, its kind, and how it scores."""
        return {"model": model, "detector": self.kind, "score": how or self.settings().get("score")}

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:  # noqa: ARG002
        """Say of each event what made its score, for detectors that can.

        Raises
        ------
        UsageError
            If this detector cannot.
        """
        raise UsageError(f"a {self.kind} detector cannot explain its scores; leave out --explain")

    def settings(self) -> dict[str, Json]:
        """Arguments of the constructor, as JSON can hold them."""
        names = [name for name in inspect.signature(type(self)).parameters if name not in self._not_settings]
        values = {name: getattr(self, name) for name in names}
        return {
            name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for name, value in values.items()
        }

    @abstractmethod
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that was learnt."""

    @abstractmethod
    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:
        """Take back what :meth:`_arrays` and :meth:`_facts` gave."""

    def _facts(self) -> dict[str, Json]:
        """What is to be known of the fit, for the manifest."""
        return {}

    def _parts(self) -> dict[str, Callable[[Path], None]]:
        """What is saved in folders of its own."""
        return {}

    @classmethod
    def _make(cls, settings: dict[str, Json], folder: Path) -> Self:  # noqa: ARG003
        """Make the detector, not fitted yet, from its settings and the parts in ``folder``."""
        return cls(**settings)

    def save(self, folder: str | Path) -> None:
        """Write the fitted detector to a folder of its own."""
        self._check_fitted()
        arrays = self._arrays() | ({} if self.seen_ is None else {_SEEN: self.seen_.fingerprint})
        facts = provenance(fitted_on=self.fitted_on_, **self._facts())
        save_artifact(folder, Artifact(self.kind, self.settings(), arrays, facts), parts=self._parts())

    @classmethod
    def from_artifact(cls, artifact: Artifact, folder: Path) -> Self:
        """Make the detector again from what was read from ``folder``."""
        arrays = dict(artifact.arrays)
        seen = arrays.pop(_SEEN, None)
        try:
            detector = cls._make(artifact.settings, folder)
            detector._restore(arrays, artifact.provenance)
            detector.fitted_on_ = artifact.provenance["fitted_on"]
        except (TypeError, KeyError, RuntimeError) as error:
            raise ArtifactError(f"does not hold a whole {cls.kind} detector ({error})", path=folder) from None
        detector.seen_ = None if seen is None else TrainingFingerprints(seen)
        return detector

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a detector that :meth:`save` wrote.

        Raises
        ------
        ArtifactError
            If it is not there, of another kind or version, damaged or changed by hand.
        """
        return cls.from_artifact(load_artifact(folder, cls.kind), Path(folder))

    def _check_fitted(self) -> None:
        if self.fitted_on_ is None:
            raise NotFittedError(f"this {self.kind} detector has not been fitted; call fit(train, validation) first")
