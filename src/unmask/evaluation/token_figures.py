"""What tokens do: how often each occurs in signal and background, and how well a learned code book closes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.evaluation.plotting import BACKGROUND_COLOUR, SIGNAL_COLOUR, label_decades, new_figure

FloatArray = npt.NDArray[np.floating[Any]]


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


def plot_token_occurrence(
    background: FloatArray, signal: FloatArray, path: Path, *, n_object_codes: int | None = None, title: str = ""
) -> None:
    """Draw the shares of all tokens in signal and background and, below, their difference (the paper's appendix C).

    With ``n_object_codes`` the codes beyond, those of the MET, are repeated enlarged in a panel of their own.
    """
    n_codes = len(background)
    has_inset = n_object_codes is not None and n_object_codes < n_codes
    widths = {"height_ratios": [3, 1], **({"width_ratios": [5, 1]} if has_inset else {})}
    with new_figure(path, 2, 1 + has_inset, (10, 4.5), sharex="col", gridspec_kw=widths) as axes:
        ranges = [(1, n_codes)] + ([(n_object_codes + 1, n_codes)] if has_inset and n_object_codes else [])
        for (upper, lower), (first, last) in zip(axes.T, ranges, strict=True):
            edges = np.arange(first, last + 2) - 0.5
            mine, theirs = background[first - 1 : last], signal[first - 1 : last]
            upper.stairs(mine, edges, color=BACKGROUND_COLOUR, fill=True, alpha=0.5, label="background")
            upper.stairs(theirs, edges, color=SIGNAL_COLOUR, label="signal")
            lower.stairs(theirs - mine, edges, color="0.2", baseline=0, fill=True)
            lower.set_xlabel("token" if first == 1 else "MET tokens")
        axes[0, 0].set_ylabel("share of tokens")
        axes[1, 0].set_ylabel("signal -\nbackground")
        axes[0, 0].legend()
        axes[0, 0].set_title(title, loc="left")


def plot_code_usage(occurrence: FloatArray, path: Path, *, title: str = "") -> None:
    """Draw how often codes are used, most used first, beside what equal use would be."""
    n_codes = len(occurrence)
    n_used = int(np.count_nonzero(occurrence))
    used = occurrence[occurrence > 0]
    perplexity = float(np.exp(-(used * np.log(used)).sum()))
    with new_figure(path, 1, 1, (6, 3.5)) as axes:
        axis = axes[0, 0]
        axis.stairs(np.sort(occurrence)[::-1], np.arange(n_codes + 1), color=BACKGROUND_COLOUR, label="background")
        axis.axhline(1 / n_codes, color="0.4", linestyle=":", label="equal use")
        axis.set(xlabel="code, most used first", ylabel="share of tokens", ylim=(0, None))
        usage = f"{n_used} of {n_codes} codes used, perplexity {perplexity:.0f}"
        axis.set_title(f"{title}: {usage}", loc="left", fontsize=9)
        axis.legend()


def plot_closure(original: Mapping[str, FloatArray], reconstructed: Mapping[str, FloatArray], path: Path) -> None:
    """Draw each quantity before and after the code book, with the ratio of the two below."""
    with new_figure(
        path, 2, len(original), (3 * len(original), 4), sharex="col", gridspec_kw={"height_ratios": [3, 1]}
    ) as axes:
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
            lower.stairs(np.divide(after, before, out=np.ones(len(before)), where=before > 0), edges, baseline=None)
            lower.axhline(1, color="0.4", linestyle=":")
            lower.set(xlabel=name, ylim=(0.5, 1.5))
            if is_energy:
                lower.set_xscale("log")
                label_decades(lower.xaxis)
        axes[0, 0].set_ylabel("objects")
        axes[1, 0].set_ylabel("ratio")
        axes[0, 0].legend()
