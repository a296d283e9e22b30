"""Figures of events, of trainings and of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError
from unmask.events.event_set import BACKGROUND, LABEL_NAMES, SIGNAL, UNKNOWN, EventSet
from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.events.observables import OBSERVABLES, Observable
from unmask.report.style import (
    BACKGROUND_COLOR,
    SIGNAL_COLOR,
    Drawing,
    Style,
    label_decades,
    legend_below,
    name_simulation,
    new_figure,
)

FloatArray = npt.NDArray[np.floating[Any]]

#: Meaning of a token that is no object with its tag; 0 is an empty slot.
MET_PHI_TYPE = MET_TYPE + 1
TYPE_NAMES = {tag: one.name for tag, one in OBJECTS.items()} | {MET_TYPE: "MET", MET_PHI_TYPE: "MET phi"}
_LOOKS = {BACKGROUND: (BACKGROUND_COLOR, "-"), SIGNAL: (SIGNAL_COLOR, "--"), UNKNOWN: ("0.3", "-.")}


def _counts(values: FloatArray, edges: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """A histogram; what lies beyond the last edge is in the last bin, so that nothing is hidden."""
    return np.histogram(np.clip(values, edges[0], np.nextafter(edges[-1], 0)), edges, weights=weight)[0]


def _edges(observable: Observable, values: FloatArray) -> FloatArray:
    """Bins of an observable, up to its largest count or beyond nearly all momenta."""
    if observable.is_count:
        return np.arange(-0.5, values.max() + 1)
    return np.linspace(0, max(float(np.quantile(values, 0.999)), 1.0), 41)


def draw_events(events: EventSet, *, signal: str = "signal", style: Style = "plain") -> Drawing:
    """Draw all observables of events, and pT and eta of their objects, each class normalized to its sum of weights.

    ``signal`` is the name of the events labeled as signal.
    """
    if not len(events):
        raise UsageError("there are no events to plot")
    panels: list[tuple[str, FloatArray, FloatArray]] = [
        (one.axis_label, one.shown(events), _edges(one, one.shown(events))) for one in OBSERVABLES.values()
    ]
    panels += [
        ("pT of all objects [GeV]", events.pt_mev / 1e3, np.geomspace(15, 2000, 41)),
        ("eta of all objects", events.eta, np.linspace(-3, 3, 41)),
    ]
    names = LABEL_NAMES | {SIGNAL: signal}
    n_rows = -(-len(panels) // 4)
    with new_figure(n_rows, 4, (12, 2.5 * n_rows), style=style) as (drawing, axes):
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, (title, values, edges) in zip(axes.flat, panels, strict=False):
            for label, (color, line) in _LOOKS.items():
                chosen = events.label == label
                if not chosen.any():
                    continue
                weight = events.weight[chosen] / events.weight[chosen].sum()
                shown = values[chosen]
                if shown.ndim == 2:
                    is_object = events.is_object[chosen]
                    weight = np.broadcast_to(weight[:, None], shown.shape)[is_object]
                    shown = shown[is_object]
                text = f"{names[label]} ({chosen.sum():,})"
                axis.stairs(_counts(shown, edges, weight), edges, label=text, color=color, linestyle=line)
            axis.set_xlabel(title)
            if title.startswith("pT"):
                axis.set_xscale("log")
                label_decades(axis.xaxis)
            if "eta" not in title and title != OBSERVABLES["n_objects"].label:
                axis.set_yscale("log")
        legend_below(drawing.figure, axes[0, 0])
        for axis in axes[:, 0]:
            axis.set_ylabel("per event, normalized")
    return drawing


def draw_training(history: Sequence[Any], *, title: str = "", style: Style = "plain") -> Drawing:
    """Draw the losses of a training with the epoch whose network was kept and, below, the learning rate.

    ``history`` has a record for each epoch, as the ``history_`` of a fitted detector.
    """
    epoch, training, validation, rate = (
        np.array([getattr(record, name) for record in history], np.float64)
        for name in ("epoch", "training_loss", "validation_loss", "learning_rate")
    )
    best = int(np.argmin(validation))
    marker = "." if len(epoch) <= 50 else ""
    with new_figure(2, 1, (5.5, 4.5), style=style, sharex=True, height_ratios=[3, 1]) as (drawing, axes):
        upper, lower = axes[:, 0]
        upper.plot(epoch, training, "--", color=BACKGROUND_COLOR, marker=marker, label="training")
        upper.plot(epoch, validation, "-", color=SIGNAL_COLOR, marker=marker, label="validation")
        upper.axvline(epoch[best], color="0.4", linestyle=":", linewidth=1)
        kept = f"best epoch {epoch[best]:.0f}: {validation[best]:.4f}"
        upper.plot(epoch[best], validation[best], "*", color=SIGNAL_COLOR, markersize=11, label=kept)
        upper.set_ylabel("loss (background)")
        upper.set_title(title, loc="left")
        upper.legend(loc="best")
        lower.plot(epoch, rate, color="0.2", marker=marker)
        lower.set(xlabel="epoch", ylabel="learning rate")
        if rate.min() > 0 and rate.max() > 10 * rate.min():
            lower.set_yscale("log")
        else:
            lower.set_ylim(0, 1.2 * rate.max() or 1)
            lower.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4))
        lower.xaxis.get_major_locator().set_params(integer=True)
    return drawing


def draw_token_occurrence(
    background: FloatArray,
    signal: FloatArray,
    *,
    n_object_codes: int | None = None,
    title: str = "",
    style: Style = "plain",
) -> Drawing:
    """Draw the fractions of all tokens in signal and background and, below, their difference (the paper's appendix C).

    With ``n_object_codes`` the codes beyond, those of the MET, are drawn in an inset: every event has them, so that
    beside them the tokens of objects would hardly be seen.
    """
    n_codes = len(background)
    n_shown = n_object_codes or n_codes
    with new_figure(2, 1, (8, 4.5), style=style, sharex=True, height_ratios=[3, 1]) as (drawing, axes):
        upper, lower = axes[:, 0]
        _stairs(upper, background[:n_shown], signal[:n_shown])
        highest = np.maximum(background, signal)[:n_shown]
        top = 1.1 * highest.max()
        if n_shown < n_codes:
            # The inset begins at half the height; what lies below it must not reach there.
            top = max(top, highest[n_shown // 2 :].max() / 0.4)
            inset = upper.inset_axes((0.56, 0.55, 0.42, 0.34))
            _stairs(inset, background[n_shown:], signal[n_shown:], first=n_shown + 1)
            inset.set_title("MET tokens", fontsize="medium", pad=3)
            inset.set(xlim=(n_shown + 0.5, n_codes + 0.5), ylim=(0, None))
            inset.minorticks_off()
            inset.xaxis.get_major_locator().set_params(integer=True)
        upper.set(ylabel="fraction of tokens", xlim=(0.5, n_shown + 0.5), ylim=(0, top))
        difference = (signal - background)[:n_shown]
        lower.stairs(difference, np.arange(n_shown + 1) + 0.5, color="0.2", baseline=0, fill=True)
        lower.set(xlabel="token", ylabel="signal -\nbackground")
        upper.set_title(title, loc="left")
        name_simulation(drawing, upper)
        legend_below(drawing.figure, upper)
    return drawing


def _stairs(axis: Any, background: FloatArray, signal: FloatArray, first: int = 1) -> None:
    edges = np.arange(first, first + len(background) + 1) - 0.5
    axis.stairs(background, edges, color=BACKGROUND_COLOR, fill=True, alpha=0.5, label="background")
    axis.stairs(signal, edges, color=SIGNAL_COLOR, label="signal")


def draw_code_usage(occurrence: FloatArray, *, title: str = "", style: Style = "plain") -> Drawing:
    """Draw how often codes are used, most used first, beside equal use."""
    n_codes = len(occurrence)
    used = occurrence[occurrence > 0]
    perplexity = float(np.exp(-(used * np.log(used)).sum()))
    with new_figure(1, 1, (6, 3.5), style=style) as (drawing, axes):
        axis = axes[0, 0]
        axis.stairs(np.sort(occurrence)[::-1], np.arange(n_codes + 1), color=BACKGROUND_COLOR, label="background")
        axis.axhline(1 / n_codes, color="0.4", linestyle=":", label="equal use")
        axis.set(xlabel="code, most used first", ylabel="fraction of tokens", xlim=(0, n_codes), ylim=(0, None))
        axis.set_title(f"{title}: {len(used)} of {n_codes} codes used, perplexity {perplexity:.0f}", loc="left")
        axis.legend(loc="upper right")
    return drawing


def draw_closure(
    original: Mapping[str, FloatArray], reconstructed: Mapping[str, FloatArray], *, style: Style = "plain"
) -> Drawing:
    """Draw each variable before and after the codebook, with the ratio of the two below."""
    n_panels = len(original)
    size = (2.5 * n_panels, 4)
    with new_figure(2, n_panels, size, style=style, sharex="col", height_ratios=[3, 1]) as (drawing, axes):
        for (upper, lower), (name, values) in zip(axes.T, original.items(), strict=True):
            is_energy = name.endswith("[GeV]")
            low, high = np.quantile(values, [0, 0.999])
            edges = np.geomspace(max(low, 1.0), high, 41) if is_energy else np.linspace(low, high, 41)
            before, after = _counts(values, edges), _counts(reconstructed[name], edges)
            upper.stairs(before, edges, color="0.3", fill=True, alpha=0.35, label="original")
            upper.stairs(after, edges, color=SIGNAL_COLOR, label="reconstructed")
            ratio = np.divide(after, before, out=np.full(len(before), np.nan), where=before > 0)
            lower.stairs(ratio, edges, baseline=None, color=SIGNAL_COLOR)
            lower.axhline(1, color="0.4", linestyle=":")
            lower.set(xlabel=name, ylim=(0.5, 1.5))
            if is_energy:
                lower.set_xscale("log")
                label_decades(lower.xaxis)
        axes[0, 0].set_ylabel("objects or events")
        axes[1, 0].set_ylabel("ratio")
        legend_below(drawing.figure, axes[0, 0])
    return drawing


def mean_type_losses(
    loss: FloatArray, type_code: npt.NDArray[np.integer[Any]], weight: FloatArray
) -> dict[int, tuple[float, float]]:
    """Mean loss of the tokens of each type and its standard error, which allows for tokens of one event being alike.

    >>> mean_type_losses(np.array([[1.0, 3.0], [2.0, 9.0]]), np.array([[1, 1], [1, MET_TYPE]]), np.ones(2))
    {1: (2.0, 0.0), 32: (9.0, 0.0)}

    Losses and codes are (n_events, sequence). Tokens whose code is no key of ``TYPE_NAMES`` (empty slots) are left out.
    """
    means = {}
    for code in TYPE_NAMES:
        is_type = type_code == code
        total = weight @ is_type.sum(axis=1)
        if total > 0:
            mean = weight @ np.where(is_type, loss, 0).sum(axis=1) / total
            off = weight * np.where(is_type, loss - mean, 0).sum(axis=1)  # by event, so that events are independent
            means[code] = (float(mean), float(np.sqrt((off**2).sum()) / total))
    return means


def draw_type_losses(
    loss: FloatArray,
    type_code: npt.NDArray[np.integer[Any]],
    is_signal: npt.NDArray[np.bool_],
    weight: FloatArray,
    *,
    style: Style = "plain",
) -> Drawing:
    """Draw the mean loss of each type of object in signal and in background; see :func:`mean_type_losses`."""
    classes = (("background", ~is_signal, BACKGROUND_COLOR, "o"), ("signal", is_signal, SIGNAL_COLOR, "s"))
    means = {name: mean_type_losses(loss[of], type_code[of], weight[of]) for name, of, _, _ in classes}
    codes = [code for code in TYPE_NAMES if any(code in of_class for of_class in means.values())]
    with new_figure(1, 1, (6, 3.5), style=style) as (drawing, axes):
        axis = axes[0, 0]
        for shift, (name, _, color, marker) in zip((-0.12, 0.12), classes, strict=True):
            place = [i + shift for i, code in enumerate(codes) if code in means[name]]
            values = [means[name][code] for code in codes if code in means[name]]
            mean, error = np.array(values).reshape(-1, 2).T
            face = color if marker == "o" else "white"
            axis.errorbar(place, mean, error, fmt=marker, color=color, markerfacecolor=face, capsize=3, label=name)
        axis.set_xticks(range(len(codes)), [TYPE_NAMES[code] for code in codes])
        axis.tick_params(axis="x", which="minor", bottom=False, top=False)
        axis.set(ylabel="mean loss of a token", xlim=(-0.6, len(codes) - 0.4))
        name_simulation(drawing, axis)
        legend_below(drawing.figure, axis)
    return drawing
