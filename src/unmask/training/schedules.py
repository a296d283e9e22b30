"""Learning rate as a function of the step, or of the validation loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unmask.training.early_stopping import improves

#: The cosine ends at this share of the peak and stays there.
FINAL_SHARE = 0.1
#: Share of the steps that are warm-up where nothing else is asked for.
WARMUP_SHARE = 0.05


def warmup_cosine(step: int, *, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Linear warm-up to ``peak``, cosine to 10 % of it at ``total_steps``, constant afterwards.

    >>> [round(warmup_cosine(step, peak=1.0, warmup_steps=10, total_steps=110), 3) for step in (0, 9, 60, 110, 999)]
    [0.1, 1.0, 0.55, 0.1, 0.1]
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return peak * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass
class Plateau:
    """Multiply the rate by ``factor`` when the validation loss has not improved for ``patience`` epochs."""

    rate: float
    factor: float = 0.5
    patience: int = 3
    threshold: float = 1e-4
    minimum: float = 1e-6
    best: float = math.inf
    n_waiting: int = 0

    def update(self, validation_loss: float) -> None:
        """Take note of an epoch's validation loss."""
        if improves(validation_loss, self.best, self.threshold):
            self.best, self.n_waiting = validation_loss, 0
            return
        self.n_waiting += 1
        if self.n_waiting > self.patience:
            self.rate, self.n_waiting = max(self.rate * self.factor, self.minimum), 0
