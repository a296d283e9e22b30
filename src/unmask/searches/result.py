"""The result of a search: numbers, their JSON, tables and the line that sums it up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from unmask.artifacts import Json, atomic_path, provenance
from unmask.evaluation.table import Cell, Row, Table
from unmask.scores.flagged import Flagged
from unmask.scores.intervals import Estimate
from unmask.searches.estimate import Background, Yields
from unmask.searches.hepdata import write_hepdata

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Limit:
    """An upper limit at 95% CL by CLs, observed and expected at -2 to 2 standard deviations.

    ``lumi`` is the luminosity in fb⁻¹ by which limits on events become limits on visible cross sections.
    """

    observed: float | None
    expected: list[float]
    lumi: float | None = None

    def to_json(self) -> dict[str, Json]:
        """As JSON can hold it; null for a limit that is infinite."""
        numbers = {"observed": _finite(self.observed), "expected": [_finite(one) for one in self.expected]}
        if self.lumi is None:
            return numbers
        per_fb = {name: _scaled(value, 1 / self.lumi) for name, value in numbers.items()}
        return numbers | {"visible_cross_section_fb": per_fb}


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _scaled(value: Json, factor: float) -> Json:
    if isinstance(value, list):
        return [_scaled(one, factor) for one in value]
    return None if value is None else value * factor


@dataclass(frozen=True)
class RegionResult:
    """Data and expected background in a region; errors are of one standard deviation, the interval of 95%."""

    name: str
    p_above: float
    p_up_to: float
    score_from: float | None
    score_below: float | None
    observed: int | None
    expected: float
    expected_error: float
    statistical_error: float
    systematic_error: float
    expected_low: float
    expected_high: float
    p_value: float | None
    z: float | None
    limit: Limit | None = None

    @property
    def pull(self) -> float | None:
        """Difference of data and expectation in standard deviations of both; None without data."""
        if self.observed is None:
            return None
        return (self.observed - self.expected) / float(np.sqrt(max(self.expected, 1e-9) + self.expected_error**2))

    def text(self) -> str:
        """Data and expectation."""
        value, interval = Estimate(self.expected, self.expected_low, self.expected_high).texts()
        return f"{'no' if self.observed is None else f'{self.observed:,}'} observed, {value} {interval} expected"


@dataclass(frozen=True)
class SignalResult:
    """Results of a search for a signal; strengths are multiples of its weights.

    Attributes
    ----------
    region_z
        Median significance in each signal region alone, if the signal is there.
    reach
        Strengths excluded and discovered by luminosity, in units of that of the search.
    method
        Of limits and p-value: asymptotic, or toys.
    expected_z
        Of all regions together, by asymptotic formulae; None where these do not hold.
    strength, strength_error
        Best fit; None without data.
    """

    name: str
    yields: Yields
    workspace: dict[str, Json]
    method: str
    limit: Limit
    p_value: float | None
    z: float | None
    region_z: list[float]
    reach: dict[str, Json]
    expected_z: float | None = None
    strength: float | None = None
    strength_error: float | None = None


@dataclass(frozen=True)
class Search:
    """Regions, significances and limits of a search; ``regions`` begin with control and validation.

    ``flagged`` are the data events in the signal regions; None where these were not looked at.
    """

    regions: list[RegionResult]
    background: Background
    global_p_value: float | None
    signals: dict[str, SignalResult]
    method: str
    lumi: float | None = None
    is_blind: bool = False
    is_pseudo: bool = False
    injected: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    spectrum: dict[str, Json] = field(default_factory=dict)
    flagged: Flagged | None = None

    def __repr__(self) -> str:
        return f"Search({self.summary()})"

    @property
    def most_significant(self) -> RegionResult:
        """The signal region with the smallest p-value, or without data the last."""
        return min(reversed(self.regions[2:]), key=lambda one: 1.0 if one.p_value is None else one.p_value)

    def summary(self) -> str:
        """The result in a line."""
        if self.global_p_value is None:
            why = "blind" if self.is_blind else "no data"
            expected = "; ".join(f"{one.name}: {_expected(one)} expected" for one in self.regions[2:])
            return f"{why}: {expected}"
        one = self.most_significant
        where = f" in {one.name}" if len(self.regions) > 3 else ""
        return (
            f"{'Pseudo-data' if self.is_pseudo else 'Data'}: {one.text()}{where}, Z = {one.z:.1f}, "
            f"p = {one.p_value:.2g}; global p = {self.global_p_value:.2g}"
        )

    def tables(self) -> list[Table]:
        """Regions and, with signals, limits."""
        return search_tables(self.to_json())

    def to_json(self) -> dict[str, Json]:
        """All numbers, as search.json holds them."""
        regions = []
        for i, one in enumerate(self.regions):
            numbers = asdict(one) | {"limit": one.limit.to_json() if one.limit else None, "pull": one.pull}
            numbers["signals"] = {name: float(signal.yields.total[i]) for name, signal in self.signals.items()}
            regions.append(numbers)
        limits = {}
        for name, found in self.signals.items():
            limits[name] = found.limit.to_json() | {
                "method": found.method,
                "p_value": found.p_value,
                "z": found.z,
                "expected_z": found.expected_z,
                "expected_z_of_regions": dict(zip([one.name for one in self.regions[2:]], found.region_z, strict=True)),
                "strength": _finite(found.strength),
                "strength_error": _finite(found.strength_error),
                "reach": found.reach,
            }
        return {
            "format_version": FORMAT_VERSION,
            "summary": self.summary(),
            "is_blind": self.is_blind,
            "is_pseudo_data": self.is_pseudo,
            "injected": self.injected,
            "lumi_per_fb": self.lumi,
            "normalization": self.background.normalization,
            "regions": regions,
            "global_p_value": self.global_p_value,
            "limits": limits,
            "spectrum": self.spectrum,
            "notes": self.notes,
        }

    def write(self, folder: str | Path, **made_by: Json) -> None:
        """Write ``search.json``, tables, HEPData records, workspaces, and events to pick to a folder."""
        folder, content = Path(folder), self.to_json() | {"provenance": provenance(**made_by)}
        tables = search_tables(content)
        texts = {
            "search.json": json.dumps(content, indent=1, allow_nan=False) + "\n",
            "yields.tex": "\n".join(table.latex() for table in tables),
            "yields.md": "\n".join(table.markdown() for table in tables),
        }
        for name, found in self.signals.items():
            texts[f"workspace-{name}.json"] = json.dumps(found.workspace, indent=1) + "\n"
        if self.flagged:
            self.flagged.write(folder / "events.parquet", metadata=provenance(**made_by))
        with atomic_path(folder / "hepdata") as path:
            write_hepdata(content, path)
        for name, text in texts.items():
            with atomic_path(folder / name) as path:
                path.write_text(text, encoding="utf-8")


def _expected(one: RegionResult) -> str:
    return " ".join(Estimate(one.expected, one.expected_low, one.expected_high).texts())


def _number(value: float | None, digits: str = ".3g", missing: str = "") -> str:
    return missing if value is None else f"{value:{digits}}"


def search_tables(result: Mapping[str, Json]) -> list[Table]:
    """Tables of regions and, with signals, limits, from the content of search.json."""
    lumi, rows = result["lumi_per_fb"], []
    for i, one in enumerate(result["regions"]):
        limit = one["limit"]
        of_events = limit and (limit["observed"], limit["expected"][2])
        cells: list[Cell] = [
            f"{one['p_above']:g} to {one['p_up_to']:g}",
            "blind" if result["is_blind"] and i > 1 else _number(one["observed"], ",d"),
            Estimate(one["expected"], one["expected_low"], one["expected_high"]),
            _number(one["statistical_error"], ".2g"),
            _number(one["systematic_error"], ".2g"),
            _number(one["p_value"], ".2g"),
            _number(one["z"], ".1f"),
            *(["", ""] if not limit else [_number(each) for each in of_events]),
            *([] if lumi is None else [_number(limit and (of_events[0] or of_events[1]) / lumi)]),
        ]
        rows.append(Row(one["name"], tuple(cells)))
    columns = ["p-value", "observed", "expected", "stat.", "syst.", "p", "Z", "limit on events", "expected limit"]
    columns += [] if lumi is None else ["limit [fb]"]
    tables = [Table("Regions, 95% CL", tuple(columns), tuple(rows), first="region")]
    if result["limits"]:
        limits = []
        for name, one in result["limits"].items():
            observed = "" if result["global_p_value"] is None else _number(one["observed"], missing="none")
            expected = [_number(each, missing="none") for each in one["expected"]]
            events = sum(region["signals"][name] for region in result["regions"][2:])
            fitted = "" if one["strength"] is None else f"{one['strength']:.3g} ± {one['strength_error'] or 0:.2g}"
            band = f"[{expected[1]}, {expected[3]}]"
            cells = [_number(events), fitted, _number(one["z"], ".1f"), observed, expected[2], band]
            limits.append(Row(name, tuple(cells)))
        titles = ("events", "strength", "Z", "limit", "expected limit", "68% of expected")
        method = ", ".join(dict.fromkeys(one["method"] for one in result["limits"].values()))
        title = f"Signals: limits on strengths, 95% CL ({method})"
        tables.append(Table(title, titles, tuple(limits), first="signal"))
    return tables
