"""Base class of the detectors."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.distributions import Histograms, from_arrays, measure, to_arrays, variables_of
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import TrainingFingerprints
from unmask.fitted import DETECTORS, Fitted, load
from unmask.scores.explanations import Explanation
from unmask.scores.intervals import check_finite
from unmask.scores.score_table import Scores
from unmask.tokenizers.base import Tokenizer

_SEEN, _THEORIES, _BACKGROUND = "events/fingerprint", "events/theories", "background"
#: Validation events at most whose scores are kept as a histogram.
_MAX_SCORED = 20_000
#: Name of the score among the variables of events.
SCORE = "score"
ScoresAndLosses = tuple[npt.NDArray[np.float64], npt.NDArray[np.float32] | None]


class Detector(Fitted):
    """Gives each event a score; larger is more anomalous."""

    #: Whether :meth:`explain` works.
    can_explain: ClassVar[bool] = False
    #: Names of its scores, for detectors that make them of the losses of tokens.
    score_names: ClassVar[tuple[str, ...]] = ()

    tokenizer: Tokenizer | None = None
    #: Fingerprints of the training events, so that they can be recognized; None before ``fit``.
    seen_: TrainingFingerprints | None = None
    #: Histograms of the variables of training events and of the scores of validation events.
    background_: Histograms
    #: Those of the theories of its prior, with which it must not be tested.
    theories_: TrainingFingerprints | None = None

    def fit(self, train: EventSet, validation: EventSet | None = None, **options: Any) -> Self:
        if validation is None or not len(train) or not len(validation):
            raise UsageError("training and validation events are both needed; one of them has none")
        super().fit(train, validation, **options)
        self.seen_ = TrainingFingerprints.of(train)
        self.theories_ = None if options.get("prior") is None else TrainingFingerprints.of(options["prior"])
        some = validation[:: -(-len(validation) // _MAX_SCORED)]
        score = self.score_events(some, device=getattr(getattr(self, "training", None), "device", "auto"))
        self.background_ = measure(variables_of(train, self.schema_.types), train.weight)
        self.background_ |= measure({SCORE: score}, some.weight)
        return self

    @abstractmethod
    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        """Scores (n_events,); larger is more anomalous."""

    def scores(
        self, events: EventSet, *, reduction: str | None = None, with_token_losses: bool = False, device: str = "auto"
    ) -> Scores:
        """Scores with the identity of the events.

        Parameters
        ----------
        reduction
            One of ``score_names``: how token losses become a score.
        with_token_losses
            Also give the loss of every token, for detectors with ``score_names``.
        """
        self.check_scores(reduction, with_token_losses)
        if self.theories_ and (n_known := int(self.theories_.contains(events).sum())):
            raise BadDataError(
                f"{n_known:,} of {len(events):,} events are among the theories that the detector was trained on; leave "
                "their family out of the prior, or test with others"
            )
        score, losses = self._scored(events, reduction, device)
        return Scores.of(events, score, losses if with_token_losses else None, seen=self.seen_)

    def _scored(self, events: EventSet, reduction: str | None, device: str) -> ScoresAndLosses:  # noqa: ARG002
        """Scores, and the losses of tokens if there are any."""
        return self.score_events(events, device=device), None

    def check_scores(self, reduction: str | None, with_token_losses: bool = False) -> None:
        """Raise UsageError unless there are such scores, and token losses if asked for."""
        if reduction is not None and reduction not in self.score_names:
            choices = nearest(reduction, self.score_names) if self.score_names else "leave it out"
            raise UsageError(f"this {self.kind} detector has no score {reduction!r}; {choices}")
        if with_token_losses and not self.score_names:
            raise UsageError(f"this {self.kind} detector has one score and no token losses; leave them out")

    def origin_of_scores(self, model: str | None, reduction: str | None = None) -> dict[str, Json]:
        """Record for a file of scores: the hash of the ``model``'s manifest, its kind, and its score."""
        return {"model": model, "detector": self.kind, "score": reduction or self.settings().get("score")}

    def record(self) -> dict[str, Json]:
        """Settings, those of the tokenizer, and what it was fitted on, so that files of scores need no model."""
        tokenizer = self.tokenizer
        of_tokenizer = {"tokenizer": {"kind": tokenizer.kind, "settings": tokenizer.settings()}} if tokenizer else {}
        return {"settings": self.settings(), **of_tokenizer, "fitted_on": self.fitted_on_}

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:  # noqa: ARG002
        """Explain the score of each event; raises UsageError if ``can_explain`` is false."""
        raise UsageError(f"this {self.kind} detector cannot explain its scores; leave out --explain")

    def token_losses(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float32] | None:  # noqa: ARG002
        """Loss (n_events, sequence) of each token, for a detector with tokens."""
        return None

    def altered_copies(self, background: EventSet) -> EventSet | None:  # noqa: ARG002
        """Altered copies of background events as in the training, for a detector that learns from such copies."""
        return None

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        known = {_SEEN: self.seen_, _THEORIES: self.theories_}
        arrays = {name: each.fingerprint for name, each in known.items() if each}
        return arrays | to_arrays(self.background_, _BACKGROUND)

    def metadata(self) -> dict[str, Json]:
        return super().metadata() | {"variables": list(self.background_)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, Json]) -> None:
        super().restore(arrays, metadata)
        self.seen_ = TrainingFingerprints(arrays[_SEEN])
        self.background_ = from_arrays(metadata["variables"], arrays, _BACKGROUND)
        self.theories_ = TrainingFingerprints(arrays[_THEORIES]) if _THEORIES in arrays else None

    def try_out(self) -> None:
        check_finite(self.scores(self._one_event(), device="cpu").score)


def load_detector(folder: str | Path) -> Detector:
    """Load a saved detector of any kind; see :func:`unmask.fitted.load`."""
    detector: Detector = load(folder, DETECTORS)
    return detector
