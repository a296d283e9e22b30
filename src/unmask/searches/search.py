"""A search: from scores of background, data and signals to significances and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError, nearest
from unmask.events.event_set import BACKGROUND, LABEL_NAMES, SIGNAL
from unmask.events.fingerprints import MAX_REMEMBERED, is_leak, random_numbers
from unmask.scores.intervals import n_effective
from unmask.scores.score_table import Scores, concatenate_scores
from unmask.searches.counting import CountedBackground, events_limit, expected_events_limits, z_value
from unmask.searches.estimate import Background, Variation, Yields, yields_of
from unmask.searches.model import Fits, NotConvergedError, fit_asymptotic, is_asymptotic, workspace
from unmask.searches.reach import reach
from unmask.searches.regions import Regions
from unmask.searches.result import Limit, RegionResult, Search, SignalResult
from unmask.searches.spectrum import spectrum
from unmask.searches.toys import global_p_value, toy_limits

Progress = Callable[[float], None]
#: Of the part of the background that calibrates, where no other events do.
_SEED_OF_HALVES = 11


@dataclass(frozen=True)
class Plan:
    """Settings of a search; see :func:`search`."""

    edges: Sequence[float] | None = None
    variations: Mapping[str, Variation] = field(default_factory=dict)
    lumi: float | None = None
    blind: bool = False
    inject: Mapping[str, float] = field(default_factory=dict)
    seed: int = 1


def search(
    background: Scores,
    data: Scores | None = None,
    signals: Mapping[str, Scores] | None = None,
    *,
    calibrating: Scores | None = None,
    edges: Sequence[float] | None = None,
    variations: Mapping[str, Variation] | None = None,
    lumi: float | None = None,
    blind: bool = False,
    inject: Mapping[str, float] | None = None,
    seed: int = 1,
    progress: Progress = lambda _fraction: None,
) -> Search:
    """Search data for an excess over simulated background in regions of the background p-value.

    Parameters
    ----------
    background
        Simulated background, with its weights. Events that the detector was trained on, and events labeled signal, are
        left out.
    data
        Data, one event each, whatever their labels; None gives expected results.
    signals
        Simulated signals by name; their weights are expected events at strength 1.
    calibrating
        Background events that turn scores into p-values; by default half of ``background``, chosen at random, whose
        other half then estimates the yields.
    edges
        Falling p-values: control lies above the first, validation between the first two, and each further one begins
        another signal region [default: 0.2, 0.01, 0.001, as far as the background supports them].
    variations
        Up and down by name: scores of varied background, or further columns that hold varied weights;
        ``"gluino:jes"`` varies the signal gluino.
    lumi
        Luminosity of the data in fb⁻¹; limits on visible cross sections then join those on events.
    blind
        Do not look at data in the signal regions.
    inject
        Strengths of signals that are added to data; without data these are drawn from background.
    seed
        Of toys and of what is drawn.

    Raises
    ------
    BadDataError
        If the background is too small for its regions, or its weights, or the data, allow no estimate.
    UsageError
        If options cannot be used as given.
    """
    signals = dict(signals or {})
    plan = Plan(edges, dict(variations or {}), lumi, blind, dict(inject or {}), seed)
    _check(plan, signals)
    notes: list[str] = []
    variations = {name: _pair_of(name, pair, notes) for name, pair in plan.variations.items()}
    n_given = background.weight[background.label != SIGNAL].sum()
    background = _usable("background", background, SIGNAL, notes)
    if calibrating is None:
        is_first = _is_first(background)
        calibrating, background = background[is_first], background[~is_first]
        for name, pair in variations.items():
            if ":" not in name:  # the same events as the nominal ones
                up, down = (one if isinstance(one, str) else one[~_is_first(one)] for one in pair)
                variations[name] = (up, down)
    else:
        calibrating = _usable("calibrating background", calibrating, SIGNAL, notes)
    for name, part in (("calibrate", calibrating), ("estimate", background)):
        if not len(part) or part.weight.sum() <= 0:
            raise BadDataError(f"no background is left to {name}, or its weights add up to no positive number")
    regions = Regions.of(calibrating, plan.edges, n_effective(background.weight))
    signals = {name: _usable(name, one, BACKGROUND, notes) for name, one in signals.items()}
    simulation = _yields("background", background, regions, variations, notes).scaled(n_given / background.weight.sum())
    templates = {name: _yields(name, one, regions, variations, notes) for name, one in signals.items()}
    is_pseudo = data is None and bool(plan.inject)
    rng = np.random.default_rng(plan.seed)
    if is_pseudo:
        # Another simulation, as far as one can be had, is the truth: so data differ by all errors of the estimate.
        other = background[np.repeat(np.arange(len(background)), rng.poisson(1.0, len(background)))]
        data = _drawn(other, n_given / background.weight.sum(), rng)
        notes.append("no data: pseudo-data are drawn from the background, resampled")
    if data is not None:
        if not is_pseudo:
            _check_data(data, [calibrating, background], notes)
        data = concatenate_scores([data, *(_drawn(signals[name], mu, rng) for name, mu in plan.inject.items())])
    result = _measured(plan, regions, simulation, templates, data, notes, is_pseudo, progress)
    scale = result.background.yields.total.sum() / background.weight.sum()
    flagged = None if data is None or blind else regions.flag(data, calibrating)
    shown = spectrum(regions, background, scale, signals, data, blind=blind)
    return replace(result, spectrum=shown, flagged=flagged)


def _check(plan: Plan, signals: Mapping[str, Scores]) -> None:
    if plan.lumi is not None and not plan.lumi > 0:
        raise UsageError(f"luminosity {plan.lumi:g}; expected a positive number, in inverse femtobarn")
    if "background" in signals:
        raise UsageError("a signal is called background; give it another name")
    for name, strength in plan.inject.items():
        if name not in signals:
            raise UsageError(f"no signal {name!r} to inject; {nearest(name, signals) if signals else 'give signals'}")
        if not 0 <= strength < np.inf:
            raise UsageError(f"strength {strength:g} of {name}; expected a number from 0")
    for name in plan.variations:
        owner, colon, _ = name.rpartition(":")
        if colon and owner not in signals:
            raise UsageError(f"variation {name}: no signal {owner!r}; {nearest(owner, signals)}")


def _usable(name: str, scores: Scores, other: int, notes: list[str]) -> Scores:
    """Leave out events labeled as what they should not be, and those that were trained on."""
    kept = scores.label != other
    if n := int(np.count_nonzero(~kept)):
        notes.append(f"{name}: {n:,} of {len(scores):,} events are labeled {LABEL_NAMES[other]} and left out")
    if scores.was_trained_on is not None and (n := scores.n_trained_on):
        if n >= MAX_REMEMBERED:
            raise BadDataError(
                f"{name}: {n:,} of {len(scores):,} events were in the training of the detector, and there may be more; "
                "give events that were not"
            )
        kept = kept & ~scores.was_trained_on
        notes.append(f"{name}: {n:,} of {len(scores):,} events were in the training of the detector and are left out")
    if not kept.any():
        raise BadDataError(f"{name}: no event can be used" + "".join(f"; {note}" for note in notes))
    return scores if kept.all() else scores[kept]


def _pair_of(name: str, pair: Variation, notes: list[str]) -> Variation:
    """A variation without the events that its sample is without."""
    other = BACKGROUND if ":" in name else SIGNAL
    up, down = (one if isinstance(one, str) else _usable(f"variation {name}", one, other, notes) for one in pair)
    return up, down


def _is_first(scores: Scores) -> npt.NDArray[np.bool_]:
    """The half (n_events,) that calibrates; an event and its variations are in the same one."""
    return random_numbers(scores.row * 7919 + scores.event_id, _SEED_OF_HALVES) < 0.5


def _yields(
    name: str, scores: Scores, regions: Regions, variations: Mapping[str, Variation], notes: list[str]
) -> Yields:
    """Count a sample with its variations."""
    chosen = {}
    for full, pair in variations.items():
        owner, _, variation = full.rpartition(":")
        if (owner or "background") == name:
            chosen[variation] = pair
    return yields_of(name, scores, regions, chosen, notes)


def _drawn(scores: Scores, scale: float, rng: np.random.Generator) -> Scores:
    """Draw events of weight 1, as often as their weights times ``scale`` say; negative weights count as none."""
    weight = np.maximum(scores.weight, 0)
    weight = weight * (scale * scores.weight.sum() / weight.sum())
    return _as_data(scores[np.repeat(np.arange(len(scores)), rng.poisson(weight))])


def _as_data(scores: Scores) -> Scores:
    return replace(scores, weight=np.ones(len(scores)), was_trained_on=None)


def _check_data(data: Scores, simulated: Sequence[Scores], notes: list[str]) -> None:
    if len(data) and not (data.weight == 1).all():
        raise BadDataError(
            f"data have weights ({data.weight.min():g} to {data.weight.max():g}); data are counted, each event once: "
            "give events of weight 1, or pseudo-data with --inject SIGNAL:0"
        )
    if any(data.file_names.words):
        n_known = sum(int(np.isin(data.event_key, some.event_key).sum()) for some in simulated)
        if is_leak(n_known, len(data)):
            raise BadDataError(
                f"{n_known:,} of {len(data):,} data events are background events too (same file and row); give others"
            )
    if n := data.n_trained_on:
        notes.append(f"{n:,} of {len(data):,} data events were in the training of the detector: too few look anomalous")


def _measured(
    plan: Plan,
    regions: Regions,
    simulation: Yields,
    templates: Mapping[str, Yields],
    data: Scores | None,
    notes: list[str],
    is_pseudo: bool,
    progress: Progress,
) -> Search:
    """All numbers from yields and data."""
    observed: npt.NDArray[np.int64] | None = None
    if data is not None:
        observed = np.bincount(regions.assign(data), minlength=len(regions.names))
    background = Background.of(simulation, None if observed is None else float(observed[0]))
    shown = None if plan.blind else observed
    counted = background.counted
    low, high = counted.interval()
    results = []
    for i, name in enumerate(regions.names):
        seen = None if observed is None or (plan.blind and i > 1) else int(observed[i])
        one = CountedBackground(counted.n_auxiliary[i], counted.tau[i])
        p = None if seen is None or i == 0 else float(one.p_values(seen))
        if background.yields.total[i] <= 0:
            notes.append(
                f"{name}: no background is simulated there; it counts as none seen of weight {1 / one.tau:.3g}"
            )
        results.append(
            RegionResult(
                name,
                **regions.to_json(i),
                observed=seen,
                expected=float(background.yields.total[i]),
                expected_error=float(background.error[i]),
                statistical_error=float(background.statistical[i]),
                systematic_error=float(background.systematic[i]),
                expected_low=float(low[i]),
                expected_high=float(high[i]),
                p_value=p,
                z=None if p is None else float(z_value(p)),
                limit=_events_limit(one, seen, plan.lumi) if i > 1 else None,
            )
        )
    pulls = [result.pull for result in results[1:2] if result.pull is not None]
    if pulls and abs(pulls[0]) > 2:
        notes.append(f"validation: data and expectation differ by {pulls[0]:+.1f} standard deviations")
    global_p = None
    if shown is not None:
        smallest = min(result.p_value for result in results[2:] if result.p_value is not None)
        global_p = global_p_value(smallest, background, seed=plan.seed)
    method = "asymptotic" if is_asymptotic(background) else "toys"
    found = {}
    for n, (name, template) in enumerate(templates.items()):
        progress(n / len(templates))
        found[name] = _signal(name, regions, background, template, shown, method, plan.seed, notes)
    progress(1.0)
    return Search(
        regions=results,
        background=background,
        global_p_value=global_p,
        signals=found,
        method=method,
        lumi=plan.lumi,
        is_blind=plan.blind,
        is_pseudo=is_pseudo,
        injected=dict(plan.inject),
        notes=notes,
    )


def _events_limit(background: CountedBackground, observed: int | None, lumi: float | None) -> Limit:
    limit = None if observed is None else events_limit(observed, background)
    return Limit(limit, expected_events_limits(background), lumi)


def _signal(
    name: str,
    regions: Regions,
    background: Background,
    template: Yields,
    observed: npt.NDArray[np.int64] | None,
    method: str,
    seed: int,
    notes: list[str],
) -> SignalResult:
    """Strength, significance and limits of a signal."""
    total = template.total[2:].sum()
    if total <= 0:
        raise BadDataError(
            f"{name}: none of its events are in the signal regions; leave it out, or choose other --edges"
        )
    toys = toy_limits(observed, template, background, seed=seed)
    bound = 5 * next((one for one in reversed(toys.expected) if np.isfinite(one)), 1.0)
    if toys.observed is not None and np.isfinite(toys.observed):
        bound = max(bound, 5 * toys.observed)
    spec: dict[str, Json] = workspace(regions.names, background, template, observed, bound=bound)
    region_z = [
        float(z_value(CountedBackground(n, tau).p_values(n / tau + signal)))
        for n, tau, signal in zip(*_columns(background), template.total[2:], strict=True)
    ]
    fits, found = Fits(spec), None
    strength: tuple[float | None, float | None] = (None, None)
    limit, p_value, has_data = Limit(toys.observed, toys.expected), toys.p_value, observed is not None
    try:
        if has_data:
            strength = fits.best(-0.9 * _largest_loss(background, template))
        if method == "asymptotic":
            start = toys.expected[2] if toys.observed is None else toys.observed
            found = fit_asymptotic(fits, [start, *toys.expected], has_data=has_data)
    except NotConvergedError as error:
        notes.append(f"{name}: its fit does not converge ({error}); its limits are from toys")
        method = "toys"
    if found:
        limit, p_value = Limit(found.limit, found.expected_limits), found.p_value
    z = found.z if found else None if p_value is None else float(z_value(p_value))
    expected_z = found.expected_z if found else None
    luminosities = reach(background, template)
    return SignalResult(name, template, spec, method, limit, p_value, z, region_z, luminosities, expected_z, *strength)


def _largest_loss(background: Background, template: Yields) -> float:
    """The strength that, taken off the background, leaves none in a region."""
    is_there = template.total > 0
    return float(np.min(background.yields.total[is_there] / template.total[is_there]))


def _columns(background: Background) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    counted = background.counted
    return counted.n_auxiliary[2:], counted.tau[2:]
