"""Yields of samples in the regions, and the background that simulation and the control region predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from unmask.errors import BadDataError, UsageError, nearest
from unmask.scores.intervals import check_finite
from unmask.scores.score_table import Scores
from unmask.searches.counting import CountedBackground
from unmask.searches.regions import Regions

FloatArray = npt.NDArray[np.float64]
#: Up and down: scores of varied events, or names of further columns that hold varied weights.
Variation = tuple[Scores | str, Scores | str]
#: A variation changes a yield at most so many times.
MAX_FACTOR = 20.0


@dataclass(frozen=True, eq=False)
class Yields:
    """Sums of weights of a sample by region (n_regions,), with their errors.

    Attributes
    ----------
    one_event
        Typical weight: what an empty region may hide.
    factors
        Of each variation the yields up and down, relative to the nominal ones.
    """

    total: FloatArray
    error: FloatArray
    one_event: float
    factors: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def scaled(self, factor: float) -> Yields:
        """Yields of ``factor`` times the luminosity."""
        return Yields(self.total * factor, self.error * factor, self.one_event * factor, self.factors)


def count(scores: Scores, regions: Regions, weight: FloatArray | None = None) -> FloatArray:
    """Sums of weights in the regions."""
    weight = scores.weight if weight is None else weight
    return np.asarray(np.bincount(regions.assign(scores), weight, minlength=len(regions.names)), np.float64)


def yields_of(
    name: str, scores: Scores, regions: Regions, variations: Mapping[str, Variation], notes: list[str]
) -> Yields:
    """Count a sample in the regions, with its variations; what was limited is added to ``notes``."""
    check_finite(scores.weight, f"weights of {name}")
    total, square = count(scores, regions), count(scores, regions, scores.weight**2)
    if total.sum() <= 0:
        raise BadDataError(f"the weights of {name} do not add up to a positive number")
    for region, one in zip(regions.names, total, strict=True):
        if one < 0:
            raise BadDataError(
                f"the weights of {name} in region {region} add up to {one:.3g}: negative weights prevail there; choose "
                "other --edges, or give more events"
            )
    factors = {}
    for variation, pair in variations.items():
        ups = [_varied(name, variation, one, scores, regions) for one in pair]
        ratios = [np.divide(one, total, out=np.ones(len(total)), where=total > 0) for one in ups]
        limited = [np.clip(one, 1 / MAX_FACTOR, MAX_FACTOR) for one in ratios]
        for region, *changes in zip(regions.names, *ratios, *limited, strict=True):
            if changes[:2] != changes[2:]:
                notes.append(
                    f"{name}: variation {variation} makes the yield in {region} {changes[0]:.3g} and {changes[1]:.3g} "
                    f"times the nominal one; limited to factors of {MAX_FACTOR:g}"
                )
        factors[variation] = (limited[0], limited[1])
    return Yields(total, np.sqrt(square), float(square.sum() / total.sum()), factors)


def _varied(name: str, variation: str, one: Scores | str, scores: Scores, regions: Regions) -> FloatArray:
    if isinstance(one, Scores):
        if not len(one):
            raise BadDataError(f"variation {variation} of {name} has no events")
        varied, weight = one, one.weight
    elif one in scores.further:
        varied, weight = scores, scores.further[one].astype(np.float64)
    else:
        known = nearest(one, scores.further) if scores.further else "it has no further columns"
        raise UsageError(f"variation {variation}: {name} has no column {one!r}; {known}")
    check_finite(weight, f"weights of {name}, variation {variation},")
    return count(varied, regions, weight)


@dataclass(frozen=True, eq=False)
class Background:
    """Background expected in the regions: simulation times the ratio of data to simulation in the control region.

    Attributes
    ----------
    normalization
        That ratio; 1 without data.
    yields
        Simulation, normalized.
    control
        Number of data events in the control region; without data those expected.
    statistical, systematic
        Errors (n_regions,) of the control region's data, and of simulated statistics and variations.
    """

    normalization: float
    yields: Yields
    control: float
    statistical: FloatArray
    systematic: FloatArray

    @classmethod
    def of(cls, simulation: Yields, control: float | None) -> Background:
        """Normalize simulation to the number of data events in the control region, where that is known."""
        if simulation.total[0] <= 0:
            raise BadDataError(
                "no background is simulated in region control: nothing to normalize; choose other --edges"
            )
        if control == 0:
            raise BadDataError("no data event is in region control: the background cannot be normalized")
        scale = 1.0 if control is None else control / simulation.total[0]
        yields = simulation.scaled(scale)
        n = yields.total[0] if control is None else control
        relative = np.divide(yields.error, yields.total, out=np.zeros(len(yields.total)), where=yields.total > 0)
        varied = transfer_changes(yields)
        systematic = yields.total * np.sqrt(relative**2 + relative[0] ** 2 + (varied**2).sum(axis=0))
        systematic[0] = 0.0  # it is what data are
        return cls(scale, yields, n, yields.total / np.sqrt(n), systematic)

    @property
    def error(self) -> FloatArray:
        """Errors (n_regions,), of one standard deviation."""
        return np.hypot(self.statistical, self.systematic)

    @property
    def counted(self) -> CountedBackground:
        """The estimate as auxiliary events; where nothing is simulated, as none with the weight of a typical event."""
        is_empty = self.yields.total <= 0
        some = CountedBackground.of(np.where(is_empty, 1.0, self.yields.total), np.where(is_empty, 1.0, self.error))
        tau = np.where(is_empty, 1 / self.yields.one_event, some.tau)
        return CountedBackground(np.where(is_empty, 0.0, some.n_auxiliary), tau)


def transfer_changes(yields: Yields) -> FloatArray:
    """Relative change (n_variations, n_regions) of the ratio of each region to control by one standard deviation."""
    changes = [np.max([abs(np.log(one / one[0])) for one in pair], axis=0) for pair in yields.factors.values()]
    return np.array(changes).reshape(-1, len(yields.total))
