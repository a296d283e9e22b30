"""Golden JSON files: the luminosity blocks of each run that are certified for physics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError

#: First and last luminosity block of each range, by run: ``{"355100": [[1, 20], [25, 40]]}``.
Certified = Mapping[str, Sequence[Sequence[int]]]
#: Run of simulated events in CMS files.
_SIMULATED_RUN = 1
_MAX_DIGITS = 18
_ACCEPTED = 'runs with ranges of luminosity blocks, such as {"355100": [[1, 20], [25, 40]]}'


def read_golden_json(path: str | Path) -> Certified:
    """Read and check the certified luminosity blocks, as ``ReadOptions(golden_json=...)`` takes them."""
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadDataError(f"cannot be read as JSON ({reason}); accepted: {_ACCEPTED}", path=path) from None
    if not isinstance(content, dict) or not content:
        raise BadDataError(f"holds no runs; accepted: {_ACCEPTED}", path=path)
    for run, ranges in content.items():
        if (
            not run.isdecimal()
            or len(run) > _MAX_DIGITS
            or not isinstance(ranges, list)
            or not all(map(_is_range, ranges))
        ):
            raise BadDataError(f"run {run!r}: {str(ranges)[:60]}; accepted: {_ACCEPTED}", path=path)
    return content


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value) and value[0] <= value[1]
    )


def is_certified(
    run: npt.NDArray[np.int64], luminosity_block: npt.NDArray[np.int64], certified: Certified
) -> npt.NDArray[np.bool_]:
    """Which events are of certified luminosity blocks, or simulated (of run 1, unless it is listed).

    >>> is_certified(np.array([7, 7, 8, 1]), np.array([3, 5, 3, 9]), {"7": [[1, 4]]})
    array([ True, False, False,  True])
    """
    is_good: npt.NDArray[np.bool_] = (run == _SIMULATED_RUN) & (str(_SIMULATED_RUN) not in certified)
    for one in np.unique(run):
        for first, last in certified.get(str(one), ()):
            is_good |= (run == one) & (first <= luminosity_block) & (luminosity_block <= last)
    return is_good
