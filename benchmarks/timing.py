"""Side-by-side timing on a noisy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_times(*contestants: Callable[[], object], repeats: int = 5) -> list[float]:
    """Run the contestants in turn, ``repeats`` times, and return the shortest time of each, in seconds."""
    best = [float("inf")] * len(contestants)
    for _ in range(repeats):
        for i, contestant in enumerate(contestants):
            started = time.perf_counter()
            contestant()
            best[i] = min(best[i], time.perf_counter() - started)
    return best
