"""Figures of a search: data over expected background, regions with pulls, limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unmask.artifacts import Json
from unmask.report.style import SIGNAL_COLOR, Drawing, Style, legend_below, line_styles, name_simulation, new_figure

_BANDS = ((0, 4, "#ffdf7f", "95% of expected"), (1, 3, "#85d1fb", "68% of expected"))


def search_figures(result: Mapping[str, Json], style: Style = "plain") -> dict[str, Drawing]:
    """All figures of a search by their names, from the content of search.json."""
    drawings = {"regions": draw_regions(result, style=style)}
    if result["spectrum"]:
        drawings = {"spectrum": draw_spectrum(result, style=style)} | drawings
    if result["limits"]:
        drawings |= {"limits": draw_limits(result, style=style), "reach": draw_reach(result, style=style)}
    return drawings


def draw_spectrum(result: Mapping[str, Json], *, style: Style = "plain") -> Drawing:
    """Draw data over the stacked processes of the expected background and, below, their ratio, with the regions."""
    found = result["spectrum"]
    edges = np.array(found["edges"])
    centers = (edges[1:] + edges[:-1]) / 2
    stacked = {name: np.array(counts) for name, counts in reversed(found["background"].items())}
    total, error = sum(stacked.values(), np.zeros(len(centers))), np.array(found["background_error"])
    data = None if found["data"] is None else np.array(found["data"], np.float64)  # NaN where blind
    with new_figure(2, 1, (6, 5), style=style, sharex=True, height_ratios=[3, 1]) as (drawing, axes):
        upper, lower = axes[:, 0]
        below = np.zeros(len(centers))
        for (name, counts), line in zip(stacked.items(), line_styles(), strict=False):
            upper.stairs(below + counts, edges, baseline=below, fill=True, color=line["color"], alpha=0.6, label=name)
            below = below + counts
        upper.stairs(total + error, edges, baseline=total - error, fill=True, hatch="////", facecolor="none",
                     edgecolor="0.4", label="simulated statistics")  # fmt: skip
        for (name, counts), line in zip(found["signals"].items(), line_styles(), strict=False):
            upper.stairs(counts, edges, color=SIGNAL_COLOR, linestyle=line["linestyle"], label=name)
        safe = np.where(total > 0, total, np.nan)
        lower.stairs(1 + error / safe, edges, baseline=1 - error / safe, fill=True, color="0.8")
        if data is not None:
            word = "pseudo-data" if result["is_pseudo_data"] else "data"
            upper.errorbar(centers, data, np.sqrt(data), fmt="o", color="black", markersize=3.5, label=word)
            lower.errorbar(centers, data / safe, np.sqrt(data) / safe, fmt="o", color="black", markersize=3.5)
        for axis in (upper, lower):
            for region in result["regions"][1:]:
                axis.axvline(region["score_from"], color="0.3", linestyle=":", linewidth=1)
        for region in result["regions"]:
            at = edges[0] if region["score_from"] is None else region["score_from"]
            upper.annotate(f" {region['name']}", (at, 1.0), xycoords=("data", "axes fraction"), va="top", fontsize=7)
        upper.set(yscale="log", ylabel="events", ylim=(max(0.1, total[total > 0].min(initial=1e9) / 10), None))
        upper.set_ylim(None, upper.get_ylim()[1] * 5)
        lower.axhline(1, color="0.4", linewidth=0.8)
        lower.set(xlabel="anomaly score", ylabel="data / expected", ylim=(0, 2))
        name_simulation(drawing, upper)
        legend_below(drawing.figure, upper)
    return drawing


def draw_regions(result: Mapping[str, Json], *, style: Style = "plain") -> Drawing:
    """Draw observed and expected events in all regions and, below, the pulls."""
    regions = result["regions"]
    at, expected, error = np.arange(len(regions)), *_columns(result, "expected", "expected_error")
    observed, pull = _columns(result, "observed", "pull")
    with new_figure(2, 1, (4.5, 4.5), style=style, sharex=True, height_ratios=[3, 1]) as (drawing, axes):
        upper, lower = axes[:, 0]
        low = np.maximum(expected - error, 1e-3)
        upper.bar(at, expected + error - low, 0.8, bottom=low, color="0.8", label="expected ± its error")
        upper.hlines(expected, at - 0.4, at + 0.4, color="0.3")
        upper.errorbar(at, observed, np.sqrt(observed), fmt="o", color="black", label="observed")
        upper.set(yscale="log", ylabel="events", ylim=(max(0.3, np.nanmin(np.append(low, observed)) / 3), None))
        upper.legend(loc="best")
        lower.bar(at[1:], pull[1:], 0.6, color="0.5")
        lower.axhline(0, color="0.3", linewidth=0.8)
        reach = max(3.0, float(np.nanmax(np.abs(np.append(pull, 0))) * 1.1))
        lower.set(ylabel="pull", ylim=(-reach, reach))
        lower.set_xticks(at, [one["name"] for one in regions], rotation=0 if len(regions) < 5 else 30)
    return drawing


def draw_limits(result: Mapping[str, Json], *, style: Style = "plain") -> Drawing:
    """Draw observed and expected limits on the strength of each signal."""
    limits = result["limits"]
    at = np.arange(len(limits))
    expected = np.array([one["expected"] for one in limits.values()], np.float64)  # NaN where there is none
    observed = np.array([one["observed"] for one in limits.values()], np.float64)
    with new_figure(1, 1, (max(3.5, 2 + 0.5 * len(limits)), 3.5), style=style) as (drawing, axes):
        axis = axes[0, 0]
        for low, high, color, label in _BANDS:
            axis.bar(at, expected[:, high] - expected[:, low], 0.7, bottom=expected[:, low], color=color, label=label)
        axis.hlines(expected[:, 2], at - 0.35, at + 0.35, color="0.2", linestyle="--", label="expected median")
        if np.isfinite(observed).any():
            axis.plot(at, observed, "ko", label="observed")
        axis.set(yscale="log", ylabel="upper limit on the strength, 95% CL")
        axis.set_xticks(at, [*limits], rotation=0 if len(limits) < 4 else 90)
        legend_below(drawing.figure, axis)
    return drawing


def draw_reach(result: Mapping[str, Json], *, style: Style = "plain") -> Drawing:
    """Draw the strengths that are excluded and discovered against luminosity, for each signal."""
    lumi = result["lumi_per_fb"]
    with new_figure(1, 2, (8, 3.8), style=style, sharey=True) as (drawing, axes):
        titles = {"excluded": "excluded at 95% CL", "discovered": "discovered at 5 standard deviations"}
        for axis, (name, title) in zip(axes[0], titles.items(), strict=True):
            for (signal, one), line in zip(result["limits"].items(), line_styles(), strict=False):
                at = np.array(one["reach"]["luminosity"]) * (lumi or 1.0)
                axis.plot(at, np.array(one["reach"][name], np.float64), **line, label=signal)
            unit = "luminosity / that of the data" if lumi is None else "luminosity [1/fb]"
            axis.set(xscale="log", yscale="log", xlabel=unit, title=title)
        axes[0, 0].set_ylabel("strength")
        legend_below(drawing.figure, axes[0, 0])
    return drawing


def _columns(result: Mapping[str, Json], *names: str) -> list[np.ndarray]:
    return [np.array([one[name] for one in result["regions"]], np.float64) for name in names]
