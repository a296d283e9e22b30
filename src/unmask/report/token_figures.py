"""What tokens do: how often each occurs in signal and background, and how well a learned code book closes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unmask.events.objects import MET_TYPE, OBJECTS
from unmask.report.style import (
    BACKGROUND_COLOUR,
    SIGNAL_COLOUR,
    Drawing,
    Style,
    label_decades,
    legend_below,
    name_simulation,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = npt.NDArray[np.floating[Any]]

#: What a token stands for beside an object with its tag; 0 is an empty slot.
MET_PHI_TYPE = MET_TYPE + 1
TYPE_NAMES = {tag: one.name for tag, one in OBJECTS.items()} | {MET_TYPE: "MET", MET_PHI_TYPE: "MET phi"}


class TokenCounter:
    """Counts, chunk by chunk, how often each token occurs in signal and in background.

    >>> counter = TokenCounter(n_codes=3)
    >>> counter.add(np.array([[1, 2, 0], [2, 2, 0]], np.int32), label=np.zeros(2, np.int8), weight=np.ones(2))
    >>> counter.share(label=0)
    array([0.25, 0.75, 0.  ])
    """

    def __init__(self, n_codes: int) -> None:
        self.n_codes = n_codes
        self._counts: dict[int, FloatArray] = {}

    def add(self, tokens: npt.NDArray[np.int32], label: npt.NDArray[np.int8], weight: FloatArray) -> None:
        """Count the tokens (n_events, sequence) of events, with their weights."""
        for one in np.unique(label):
            chosen = label == one
            each = np.broadcast_to(weight[chosen, None], tokens[chosen].shape)
            counts = np.bincount(tokens[chosen].ravel(), weights=each.ravel(), minlength=self.n_codes + 1)
            self._counts[int(one)] = self._counts.get(int(one), np.zeros(self.n_codes + 1)) + counts

    def share(self, label: int) -> FloatArray | None:
        """Share of each token 1 ... n_codes among those that are not padding; None if there are none."""
        counts = self._counts.get(label, np.zeros(1))[1:]
        total = counts.sum()
        return np.asarray(counts / total) if total > 0 else None


def draw_token_occurrence(
    background: FloatArray,
    signal: FloatArray,
    *,
    n_object_codes: int | None = None,
    title: str = "",
    style: Style = "plain",
) -> Drawing:
    """Draw the shares of all tokens in signal and background and, below, their difference (the paper's appendix C).

    With ``n_object_codes`` the codes beyond, those of the MET, are drawn in an inset: every event has them, so that
    beside them the tokens of objects would hardly be seen.
    """
    n_codes = len(background)
    n_shown = n_codes if n_object_codes is None else n_object_codes
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
        upper.set(ylabel="share of tokens", xlim=(0.5, n_shown + 0.5), ylim=(0, top))
        difference = (signal - background)[:n_shown]
        lower.stairs(difference, np.arange(n_shown + 1) + 0.5, color="0.2", baseline=0, fill=True)
        lower.set(xlabel="token", ylabel="signal -\nbackground")
        upper.set_title(title, loc="left")
        name_simulation(drawing, upper)
        legend_below(drawing.figure, upper)
    return drawing


def _stairs(axis: Axes, background: FloatArray, signal: FloatArray, first: int = 1) -> None:
    edges = np.arange(first, first + len(background) + 1) - 0.5
    axis.stairs(background, edges, color=BACKGROUND_COLOUR, fill=True, alpha=0.5, label="background")
    axis.stairs(signal, edges, color=SIGNAL_COLOUR, label="signal")


def draw_code_usage(occurrence: FloatArray, *, title: str = "", style: Style = "plain") -> Drawing:
    """Draw how often codes are used, most used first, beside what equal use would be."""
    n_codes = len(occurrence)
    n_used = int(np.count_nonzero(occurrence))
    used = occurrence[occurrence > 0]
    perplexity = float(np.exp(-(used * np.log(used)).sum()))
    with new_figure(1, 1, (6, 3.5), style=style) as (drawing, axes):
        axis = axes[0, 0]
        axis.stairs(np.sort(occurrence)[::-1], np.arange(n_codes + 1), color=BACKGROUND_COLOUR, label="background")
        axis.axhline(1 / n_codes, color="0.4", linestyle=":", label="equal use")
        axis.set(xlabel="code, most used first", ylabel="share of tokens", xlim=(0, n_codes), ylim=(0, None))
        axis.set_title(f"{title}: {n_used} of {n_codes} codes used, perplexity {perplexity:.0f}", loc="left")
        axis.legend(loc="upper right")
    return drawing


def draw_closure(
    original: Mapping[str, FloatArray], reconstructed: Mapping[str, FloatArray], *, style: Style = "plain"
) -> Drawing:
    """Draw each quantity before and after the code book, with the ratio of the two below."""
    n_panels = len(original)
    with new_figure(2, n_panels, (2.5 * n_panels, 4), style=style, sharex="col", height_ratios=[3, 1]) as (
        drawing,
        axes,
    ):
        for (upper, lower), (name, values) in zip(axes.T, original.items(), strict=True):
            is_energy = name.endswith("[GeV]")
            low, high = np.quantile(values, [0, 0.999])
            edges = np.geomspace(max(low, 1.0), high, 41) if is_energy else np.linspace(low, high, 41)
            before, after = (
                np.histogram(np.clip(column, edges[0], np.nextafter(edges[-1], 0)), edges)[0]
                for column in (values, reconstructed[name])
            )
            upper.stairs(before, edges, color="0.3", fill=True, alpha=0.35, label="original")
            upper.stairs(after, edges, color=SIGNAL_COLOUR, label="reconstructed")
            ratio = np.divide(after, before, out=np.full(len(before), np.nan), where=before > 0)
            lower.stairs(ratio, edges, baseline=None, color=SIGNAL_COLOUR)
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

    Parameters
    ----------
    loss : (n_events, sequence)
    type_code : (n_events, sequence), keys of ``TYPE_NAMES``; tokens with other codes (empty slots) are left out.
    weight : (n_events,)

    >>> mean_type_losses(np.array([[1.0, 3.0], [2.0, 9.0]]), np.array([[1, 1], [1, MET_TYPE]]), np.ones(2))
    {1: (2.0, 0.0), 32: (9.0, 0.0)}
    """
    found = {}
    for code in TYPE_NAMES:
        is_type = type_code == code
        total = weight @ is_type.sum(axis=1)
        if total > 0:
            mean = weight @ np.where(is_type, loss, 0).sum(axis=1) / total
            off = weight * np.where(is_type, loss - mean, 0).sum(axis=1)  # by event, so that events are independent
            found[code] = (float(mean), float(np.sqrt((off**2).sum()) / total))
    return found


def draw_type_losses(
    loss: FloatArray,
    type_code: npt.NDArray[np.integer[Any]],
    is_signal: npt.NDArray[np.bool_],
    weight: FloatArray,
    *,
    style: Style = "plain",
) -> Drawing:
    """Draw how surprising each type of object is on average, in signal and in background; see `mean_type_losses`."""
    classes = (("background", ~is_signal, BACKGROUND_COLOUR, "o"), ("signal", is_signal, SIGNAL_COLOUR, "s"))
    means = {name: mean_type_losses(loss[of], type_code[of], weight[of]) for name, of, _, _ in classes}
    codes = [code for code in TYPE_NAMES if any(code in of_class for of_class in means.values())]
    with new_figure(1, 1, (6, 3.5), style=style) as (drawing, axes):
        axis = axes[0, 0]
        for shift, (name, _, colour, marker) in zip((-0.12, 0.12), classes, strict=True):
            place = [i + shift for i, code in enumerate(codes) if code in means[name]]
            values = [means[name][code] for code in codes if code in means[name]]
            mean, error = np.array(values).reshape(-1, 2).T
            face = colour if marker == "o" else "white"
            axis.errorbar(place, mean, error, fmt=marker, color=colour, markerfacecolor=face, capsize=3, label=name)
        axis.set_xticks(range(len(codes)), [TYPE_NAMES[code] for code in codes])
        axis.tick_params(axis="x", which="minor", bottom=False, top=False)
        axis.set(ylabel="mean loss of a token", xlim=(-0.6, len(codes) - 0.4))
        name_simulation(drawing, axis)
        legend_below(drawing.figure, axis)
    return drawing
