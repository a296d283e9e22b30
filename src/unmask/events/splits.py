"""Split background into training, validation and test events; signal is only ever test.

Every process of every file is cut, in the order of its events, into the smallest blocks in which the fractions are
whole numbers (10 events for 80/10/10); a seeded permutation of each block assigns its events. The split can be made
while streaming, has exact proportions for every process (up to its last, incomplete block), and depends on nothing but
the seed, the process and the place among the events of that process in that file. Events that repeat earlier ones,
object by object, are left out or follow the first.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import SIGNAL, EventSet
from unmask.events.fingerprints import KnownEvents, fingerprints, repeated_text

#: The splits by name; the code of a split is its place here.
SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(len(SPLITS))
#: The code of an event that repeats an earlier one, and is left out.
REPEATED = -1
DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
# One step of the Philox counter gives this many random numbers.
_PHILOX_NUMBERS = 4


@dataclass
class Splitter:
    """Assigns events to splits, chunk after chunk of a stream.

    Parameters
    ----------
    seed
        Any whole number; the same seed gives the same split.
    fractions
        Of training, validation and test, in whole percent.
    keep_duplicates
        Keep events that repeat earlier ones, in the split of the first.

    Raises
    ------
    UsageError
        If the fractions are negative, not in whole percent or do not add up to 1.
    """

    seed: int = 0
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS
    keep_duplicates: bool = False

    def __post_init__(self) -> None:
        self._pattern = _block_pattern(self.fractions)
        self._known = [KnownEvents() for _ in SPLITS]
        self._n_events, self._n_repeated = 0, 0
        self._n_seen: defaultdict[tuple[str, str], int] = defaultdict(int)  # events of a file and process

    def assign(self, events: EventSet) -> npt.NDArray[np.int8]:
        """(n_events,): 0 train, 1 validation, 2 test, -1 repeated, for the next events of the stream.

        Signal is never split: events labeled signal are all test events. Events without a label are background.
        """
        hashes, first, place = np.unique(fingerprints(events), return_index=True, return_inverse=True)
        home = np.full(len(hashes), REPEATED, np.int8)  # split of each distinct event
        for code, known in enumerate(self._known):
            home[known.contains(hashes)] = code
        is_new, is_first = home == REPEATED, np.zeros(len(events), np.bool_)
        is_first[first[is_new]] = True
        split = np.full(len(events), TEST, np.int8)
        background = np.flatnonzero(is_first & (events.label != SIGNAL))
        files, processes = events.file_names, events.process_names
        group = files.code.astype(np.int64) * len(processes.words) + processes.code
        order = background[np.argsort(group[background], kind="stable")]
        for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            if not len(members):
                continue
            file, process = files.words[files.code[members[0]]], processes.words[processes.code[members[0]]]
            split[members] = self._codes(process, self._n_seen[file, process], len(members))
            self._n_seen[file, process] += len(members)
        home[is_new] = split[first[is_new]]
        for code, known in enumerate(self._known):
            known.add(hashes[is_new & (home == code)])
        copies = np.where(events.label == SIGNAL, TEST, home[place]) if self.keep_duplicates else REPEATED
        self._n_events, self._n_repeated = self._n_events + len(events), self._n_repeated + int((~is_first).sum())
        return np.where(is_first, split, copies).astype(np.int8)

    def notes(self) -> list[str]:
        """Name the events that repeated earlier ones, if there were any."""
        return repeated_text(self._n_repeated, self._n_events, self.keep_duplicates)

    def _codes(self, process: str, first: int, n: int) -> npt.NDArray[np.int8]:
        """Splits of the events ``first`` to ``first + n`` of a process."""
        size = len(self._pattern)
        first_block, end_block = first // size, -(-(first + n) // size)
        # Philox is counted, so the numbers of any block can be had without those before it.
        steps = -(-size // _PHILOX_NUMBERS)
        key = hashlib.sha256(f"{self.seed}\0{process}".encode()).digest()[:16]
        generator = np.random.Philox(key=int.from_bytes(key, "little"), counter=first_block * steps)
        numbers = generator.random_raw((end_block - first_block) * steps * _PHILOX_NUMBERS)
        order = np.argsort(numbers.reshape(-1, steps * _PHILOX_NUMBERS)[:, :size], axis=1, kind="stable")
        codes = self._pattern[order].ravel()
        return codes[first - first_block * size :][:n]


def _block_pattern(fractions: tuple[float, ...]) -> npt.NDArray[np.int8]:
    """Split codes of one block before it is permuted.

    >>> _block_pattern((0.5, 0.25, 0.25)).tolist()
    [0, 0, 1, 2]
    """
    percent = [round(100 * fraction) if math.isfinite(fraction) else -1 for fraction in fractions]
    is_whole = all(abs(100 * f - p) < 1e-6 and p >= 0 for f, p in zip(fractions, percent, strict=True))
    if len(percent) != len(SPLITS) or not is_whole or sum(percent) != 100:
        raise UsageError(
            f"fractions {fractions}: give three for training, validation and test, in whole percent, with a sum of 1"
        )
    return np.repeat(np.arange(len(percent), dtype=np.int8), np.array(percent) // math.gcd(*percent))


def split_background(
    events: EventSet,
    *,
    seed: int = 0,
    fractions: tuple[float, float, float] = DEFAULT_FRACTIONS,
    keep_duplicates: bool = False,
) -> tuple[EventSet, EventSet, EventSet]:
    """Split background into training, validation and test events, process by process.

    Events without a label count as background. Events that repeat earlier ones, object by object, are left out with a
    warning, or with ``keep_duplicates`` stay in the split of the first.

    Raises
    ------
    UsageError
        If an event is labeled signal, or the fractions cannot be used.
    """
    n_signal = int(np.count_nonzero(events.label == SIGNAL))
    if n_signal:
        raise UsageError(
            f"{n_signal:,} of {len(events):,} events are labeled signal; "
            "signal is never split: all signal events are test events"
        )
    splitter = Splitter(seed, fractions, keep_duplicates)
    split = splitter.assign(events)
    for text in splitter.notes():
        warnings.warn(text, stacklevel=2)
    return events[split == TRAIN], events[split == VALIDATION], events[split == TEST]
