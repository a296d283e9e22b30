"""Several detectors as one: their p-values in background, together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.detectors import load_detector
from unmask.detectors.base import Detector
from unmask.detectors.explanations import Explanation, Term
from unmask.detectors.p_values import COMBINE, BackgroundTail, How
from unmask.errors import UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import SeenEvents

if TYPE_CHECKING:
    from unmask.training import Reporter

#: The share of calibration events that a member may have been trained on; more is a mix-up of files.
_MAX_TRAINED_ON = 0.01


class CombinationDetector(Detector):
    """Average, AND, OR or product of the p-values of other detectors.

    The p-value of a member is the share of validation background with its score or more, continued beyond the largest
    of them (see :class:`~unmask.detectors.p_values.BackgroundTail`). All scores are minus logarithms.

    Parameters
    ----------
    members : the detectors; those that are fitted already stay as they are, :meth:`fit` fits the others.
    how : "average" of the p-values; "and": the largest, so that all members must find the event odd; "or": the
        smallest, so that one is enough; "product" (Fisher's).
    """

    kind = "combination"
    _not_settings = ("members",)

    def __init__(self, members: Sequence[Detector], *, how: How = "product") -> None:
        self.members = list(members)
        self.how: How = how

    def _fit(self, train: EventSet, validation: EventSet, run_folder: Path | None, reporter: Reporter | None) -> None:
        self._check_settings()
        for i, member in enumerate(self.members):
            if member.fitted_on_ is None:
                member.fit(train, validation, run_folder=run_folder and run_folder / member_name(i), reporter=reporter)
        self._learn_tails(validation, None)

    def _learnt_from(self, train: EventSet) -> SeenEvents | None:  # noqa: ARG002
        return self._seen_by_members()

    def calibrate(self, validation: EventSet, *, device: str = "auto") -> Self:
        """Learn the p-values of members that are all fitted already, from background that none was trained on.

        Raises
        ------
        UsageError
            If signal is among the events, there are none, or a member was trained on more than 1 % of them.
        """
        self._check_settings()
        self._check_events(validation, validation)
        for member in self.members:
            member._check_fitted()
        self._learn_tails(validation, device)
        self.fitted_on_ = {
            "n_train": 0,
            "n_validation": len(validation),
            "processes": validation.process_names.counts(),
            "files": validation.file_names.counts(),
        }
        self.seen_ = self._seen_by_members()
        return self

    def score_events(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        return COMBINE[self.how](self.minus_log_p(events, device=device))

    def minus_log_p(self, events: EventSet, *, device: str = "auto") -> npt.NDArray[np.float64]:
        """Minus the natural logarithm of each member's p-value, (n_members, n_events)."""
        self._check_fitted()
        return np.stack(
            [
                tail.minus_log_p_of(member.score_events(events, device=device))
                for member, tail in zip(self.members, self.tails_, strict=True)
            ]
        )

    def explain(self, events: EventSet, *, device: str = "auto") -> list[Explanation]:
        """The p-value of each member, and what the members that can explain their scores say."""
        explained = []
        for member in self.members:
            with suppress(UsageError):  # one that cannot
                explained.append(member.explain(events, device=device))
        if not explained:
            return super().explain(events, device=device)
        p_values = self.minus_log_p(events, device=device)
        return [self._together(p_values[:, i], [one[i] for one in explained]) for i in range(len(events))]

    def _together(self, minus_log_p: npt.NDArray[np.float64], said: list[Explanation]) -> Explanation:
        members = zip(self.members, self.tails_, minus_log_p.tolist(), strict=True)
        terms = [Term(member.kind, tail.in_words(value), None, value) for member, tail, value in members]
        # Of one member, whose surprises mean the same: of tokens, if it has them.
        first = max(said, key=lambda one: (bool(one.tokens), any(each is not None for each in one.object_surprise)))
        return Explanation(
            first.object_surprise,
            first.met_surprise,
            tokens=[token for one in said for token in one.tokens],
            terms=terms + [term for one in said for term in one.terms],
        )

    def _check_settings(self) -> None:
        """Refuse what no fit could mend: an unknown rule, or fewer than two members."""
        if self.how not in COMBINE:
            raise UsageError(f"unknown combination {self.how!r}; {nearest(self.how, COMBINE)}")
        if len(self.members) < 2:
            raise UsageError(f"{len(self.members)} detectors to combine; accepted: 2 or more")

    def _learn_tails(self, validation: EventSet, device: str | None) -> None:
        """Without a device each member scores on that of its training."""
        self.tails_ = []
        for i, member in enumerate(self.members):
            n_known = 0 if member.seen_ is None else int(member.seen_.contains(validation).sum())
            if n_known > _MAX_TRAINED_ON * len(validation):
                raise UsageError(
                    f"detector {i + 1} ({member.kind}) was trained on {n_known:,} of the {len(validation):,} events: "
                    "p-values need background that it has not seen, such as its validation events"
                )
            where = getattr(getattr(member, "training", None), "device", "auto") if device is None else device
            self.tails_.append(BackgroundTail.of(member.score_events(validation, device=str(where))))

    def _seen_by_members(self) -> SeenEvents | None:
        """What any member has learnt from; not known if it is not of one of them."""
        seen = [member.seen_ for member in self.members]
        if any(some is None for some in seen):
            return None
        return SeenEvents(np.unique(np.concatenate([some.fingerprint for some in seen if some is not None])))

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {key: array for i, tail in enumerate(self.tails_) for key, array in tail.arrays(member_name(i)).items()}

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Json]) -> None:  # noqa: ARG002
        self.tails_ = [BackgroundTail.from_arrays(arrays, member_name(i)) for i in range(len(self.members))]

    def _parts(self) -> dict[str, Callable[[Path], None]]:
        return {member_name(i): member.save for i, member in enumerate(self.members)}

    @classmethod
    def _make(cls, settings: dict[str, Json], folder: Path) -> Self:
        folders = sorted(folder.glob("member-*"), key=lambda path: int(path.name.removeprefix("member-")))
        return cls([load_detector(path) for path in folders], **settings)


def member_name(i: int) -> str:
    """Of a member's folder and arrays; the first is 0."""
    return f"member-{i + 1}"
