"""When to stop: the paper's three rules."""

from __future__ import annotations

import math
from dataclasses import dataclass


def improves(loss: float, best: float, relative: float) -> bool:
    """Whether ``loss`` is below ``best`` by more than the ``relative`` share (losses may be negative)."""
    return best == math.inf or loss < best - relative * abs(best)


@dataclass
class EarlyStopping:
    """Stop when the validation loss no longer improves, or runs away from the training loss.

    Attributes
    ----------
    min_improvement : relative improvement of the best validation loss that counts as one.
    patience : epochs without such an improvement that are waited for.
    divergence : stop when (validation - training) / training exceeds it.
    """

    min_improvement: float = 0.001
    patience: int = 5
    divergence: float = 0.2
    best: float = math.inf
    n_waiting: int = 0

    def update(self, training_loss: float, validation_loss: float) -> str | None:
        """Take note of an epoch; return why training should stop, or None.

        >>> rule = EarlyStopping(min_improvement=0.1, patience=2)
        >>> [rule.update(1.0, loss) for loss in (1.0, 0.95, 0.94)]
        [None, None, 'no improvement of 10% for 2 epochs']
        """
        if improves(validation_loss, self.best, self.min_improvement):
            self.best, self.n_waiting = validation_loss, 0
        else:
            self.n_waiting += 1
        if self.n_waiting >= self.patience:
            return f"no improvement of {100 * self.min_improvement:g}% for {self.patience} epochs"
        if validation_loss - training_loss > self.divergence * abs(training_loss):
            return f"validation loss exceeds training loss by more than {100 * self.divergence:g}%"
        return None
