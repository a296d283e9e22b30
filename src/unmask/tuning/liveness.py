"""Which running trials still have a worker: a trial whose worker was killed is given to another one.

Optuna's own heartbeat knows databases only. This one is a user attribute of the trial, so that it works through every
storage. Watchers compare beats with their own clock, never with another machine's.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna import Study, Trial

BEAT = "beat"
RETRY_OF = "retry_of"
#: Seconds without a sign of life after which a worker counts as dead; it gives four signs in that time.
GRACE_S = 120.0
_BEATS_PER_GRACE = 4


class Heartbeat:
    """Counts up an attribute of the trial while the block runs."""

    def __init__(self, trial: Trial, grace_s: float) -> None:
        self._trial, self._interval_s = trial, grace_s / _BEATS_PER_GRACE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._trial.set_user_attr(BEAT, 0)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        n_beats = 0
        while not self._stop.wait(self._interval_s):
            n_beats += 1
            try:
                self._trial.set_user_attr(BEAT, n_beats)
            except Exception:
                # A storage that stays away is noticed by the next report of the training; here only the beat is lost.
                continue


class Watch:
    """Fails running trials that show no sign of life, and queues them once more."""

    def __init__(self, study: Study, grace_s: float) -> None:
        self._study, self._grace_s = study, grace_s
        #: trial number -> the last beat seen, and when it was first seen
        self._seen: dict[int, tuple[int | None, float]] = {}

    def reclaim(self) -> list[int]:
        """Numbers of the trials that were found dead by this watch, now."""
        from optuna.trial import TrialState

        now, dead = time.monotonic(), []
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            beat = trial.user_attrs.get(BEAT)
            last_beat, since = self._seen.get(trial.number, (None, now))
            if trial.number not in self._seen or beat != last_beat:
                self._seen[trial.number] = (beat, now)
            elif now - since > self._grace_s and self._fail(trial.number):
                dead.append(trial.number)
                # Once only: a trial that takes its worker down must not take down all of them.
                if RETRY_OF not in trial.user_attrs and trial.params:
                    self._study.enqueue_trial(trial.params, user_attrs={RETRY_OF: trial.number})
        return dead

    def _fail(self, number: int) -> bool:
        """Whether it was this worker that marked the trial as failed."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        try:
            self._study.tell(number, state=TrialState.FAIL)
        except (ValueError, UpdateFinishedTrialError):
            return False
        return True
