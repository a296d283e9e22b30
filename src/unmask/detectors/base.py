"""What every detector does: learn from background, give each event one number, save and load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Artifact, Json, load_artifact
from unmask.errors import NotFittedError
from unmask.events.event_set import EventSet

if TYPE_CHECKING:
    from unmask.training import Reporter


class Detector(ABC):
    """Gives each event a score; larger is more anomalous.

    Constructors only store their arguments; what :meth:`fit` learns ends in ``_``.
    """

    #: Name in the manifest of a saved detector.
    kind: ClassVar[str]

    #: What the detector has learnt from; None before :meth:`fit`.
    fitted_on_: dict[str, Json] | None = None

    @abstractmethod
    def fit(
        self,
        train: EventSet,
        validation: EventSet,
        *,
        run_folder: Path | None = None,
        reporter: Reporter | None = None,
    ) -> Self:
        """Learn from background events; with a ``run_folder`` the training is logged there and can be resumed.

        Raises
        ------
        UsageError
            If signal events are among them.
        """

    @abstractmethod
    def score_events(self, events: EventSet) -> npt.NDArray[np.float64]:
        """Scores (n_events,); larger is more anomalous."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the fitted detector to a folder of its own."""

    @classmethod
    @abstractmethod
    def from_artifact(cls, artifact: Artifact, folder: Path) -> Self:
        """Make the detector again from what was read from ``folder``."""

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
