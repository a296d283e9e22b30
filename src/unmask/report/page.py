"""The report on scores: one HTML file, which needs no network, and no script for numbers and figures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np

from unmask.artifacts import Json, atomic_path, provenance
from unmask.errors import BadDataError, UsageError, require
from unmask.evaluation.evaluate import Evaluation, evaluate, notes_on
from unmask.evaluation.table import Row, Table
from unmask.events.event_set import BACKGROUND, LABEL_NAMES, SIGNAL, UNKNOWN
from unmask.report.event_list import event_lists
from unmask.report.runs import Run, read_runs
from unmask.report.score_figures import score_figures_svg
from unmask.report.search_figures import search_figures
from unmask.report.style import Drawing, Style, new_figure
from unmask.scores.calibration import Calibration
from unmask.scores.score_table import Scores
from unmask.searches.result import search_tables

#: In points (of 1/72 inch): figures with one panel are narrower.
_WIDE = 500


@dataclass(frozen=True)
class Figure:
    """A figure as an SVG element."""

    title: str
    svg: str

    @property
    def is_wide(self) -> bool:
        """Whether it has panels side by side, and so needs the width of the page."""
        box = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', self.svg)
        # A long legend makes it high, but no narrower.
        return box is not None and float(box[1]) > min(_WIDE, 1.6 * float(box[2]))


@dataclass(frozen=True)
class Section:
    """The search with a detector: its result in a line, tables, figures and notes."""

    name: str
    summary: str
    tables: list[Table]
    figures: list[Figure]
    notes: list[str]

    @classmethod
    def of(cls, name: str, result: Mapping[str, Json], number: int, style: Style) -> Section:
        """Show the content of a search.json."""
        drawings = search_figures(result, style).items()
        figures = [Figure(title, drawing.svg(f"search-{number}-{title}", title)) for title, drawing in drawings]
        return cls(name, result["summary"], search_tables(result), figures, result["notes"])


@dataclass
class Content:
    """Searches, which come first, tables, figures and what the reader must be told besides.

    Without ``warnings`` numbers would be misread, or missed; ``notes`` are remarks.
    """

    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    searches: list[Section] = field(default_factory=list)


def write_report(
    scores: str | Path | Iterable[str | Path | Run] | Mapping[str, Scores],
    out: str | Path,
    *,
    title: str = "Anomaly report",
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
    style: Style = "plain",
    evaluation: Evaluation | None = None,
    calibrations: Mapping[str, Calibration] | None = None,
    searches: Mapping[str, Mapping[str, Json]] | None = None,
) -> list[Run]:
    """Write a report to the HTML file ``out`` and return what was read for it.

    Parameters
    ----------
    scores
        Scores files, or folders of them, with the explanations beside them, or runs already read; or scores by the
        names of detectors.
    notes, tables
        Further ones, before those that are measured. Notes follow the first table, warnings precede it.
    figures
        Further ones, after those of the scores.
    style
        Style of the figures of scores.
    evaluation
        Of the scores with signal and background; by default it is made.
    calibrations
        Those of detectors, by their names: their thresholds are in the figures.
    searches
        Contents of ``search.json`` by the names of detectors; they open the report.

    Raises
    ------
    UsageError
        If ``out`` is not named as an HTML file, or there are no scores.
    BadDataError
        If scores, or explanations beside them, cannot be used.
    """
    out = Path(out)
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: the file to write must end in .html")
    runs = read_runs(scores)
    content = _measured({run.name: run.scores for run in runs}, style, evaluation, calibrations)
    content.notes[:0] = notes
    content.tables[:0] = tables
    content.figures += figures
    numbered = enumerate((searches or {}).items(), start=1)
    content.searches = [Section.of(name, result, number, style) for number, (name, result) in numbered]
    with atomic_path(out) as scratch:
        scratch.write_text(_render(runs, content, title), encoding="utf-8")
    return runs


def _render(runs: list[Run], content: Content, title: str) -> str:
    require("jinja2", "plot")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("unmask.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    templates = files("unmask.report") / "templates"
    rules, script = ((templates / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    lists, data = event_lists(runs)
    made_by, unknown = provenance(), {"settings": "not known: unmask did not write these scores"}
    return environment.get_template("report.html").render(
        title=title,
        style=rules,
        script=script,
        # Whatever the data hold: a browser runs no other script than this one, and fetches nothing.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        scored=[(run.name, len(run.scores)) for run in runs],
        created=made_by["created"],
        version=made_by["packages"]["unmask"],
        runs=[(run.name, list(_flat({"scores": run.path.name} | (run.provenance or unknown)))) for run in runs],
        content=content,
        lists=lists,
        data=data,
    )


def _flat(value: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows of a table.

    >>> list(_flat({"training": {"seed": 1}, "inputs": ["a", "b"]}))
    [('training seed', '1'), ('inputs 1', 'a'), ('inputs 2', 'b')]
    """
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value, start=1)
        for key, part in items:
            yield from _flat(part, f"{name} {key}".strip())
    elif value is not None:
        yield name, str(value)


def _measured(
    scores: Mapping[str, Scores],
    style: Style,
    evaluation: Evaluation | None,
    calibrations: Mapping[str, Calibration] | None,
) -> Content:
    """Measure scores against their labels where there are signal and background, else by their distributions."""
    content = Content()
    labeled = {}
    without: dict[str, list[str]] = {}
    for number, (name, one) in enumerate(scores.items(), start=1):
        missing = [label for label in (SIGNAL, BACKGROUND) if not (one.label == label).any()]
        if missing:
            why = "have a label" if len(missing) == 2 else f"are labeled {LABEL_NAMES[missing[0]]}"
            without.setdefault(f"no events {why}", []).append(name)
        else:
            labeled[name] = one[one.label != UNKNOWN]
            n_unknown = len(one) - len(labeled[name])
            if n_unknown:
                text = f"{name}: {n_unknown:,} of {len(one):,} events have no label; metrics leave them out"
                content.warnings.append(text)
        if missing:
            title = f"Scores of {name}"
            svg = _histogram(one, style).svg(f"distribution-{number}", title)
            content.figures.append(Figure(title, svg))
    content.warnings += [f"no metrics of {', '.join(names)}: {why}" for why, names in without.items()]
    known = notes_on({**scores, **labeled})
    content.warnings += known
    for each in [evaluation] if evaluation else _evaluations(labeled, content.warnings):
        content.notes += [note for note in each.notes if note not in known]
        content.tables += each.tables()
    drawn = score_figures_svg(labeled, calibrations=calibrations, style=style)
    content.figures += [Figure(title, svg) for title, svg in drawn.items()]
    content.tables.append(_events_table(scores))
    return content


def _evaluations(labeled: Mapping[str, Scores], warnings: list[str]) -> list[Evaluation]:
    """One evaluation of all, paired; or, if they are not of the same events, one of each and a note of why."""
    try:
        return [evaluate(labeled)] if labeled else []
    except BadDataError as error:
        if len(labeled) == 1:
            raise
        warnings.append(f"measured one by one, not compared: {error}")
        return [evaluate({name: one}) for name, one in labeled.items()]


def _histogram(scores: Scores, style: Style) -> Drawing:
    """The weighted distribution of scores of which no efficiencies are known."""
    with new_figure(1, 1, (5.5, 4), style=style) as (drawing, axes):
        axis = axes[0, 0]
        axis.hist(scores.score, bins=100, weights=scores.weight, histtype="stepfilled", color="0.6")
        axis.set(xlabel="anomaly score", ylabel="sum of weights")
        if (scores.weight >= 0).all():
            axis.set_yscale("log")
    return drawing


def _events_table(scores: Mapping[str, Scores]) -> Table:
    """Events of each label, and quantiles of their scores."""
    labels = [label for label in LABEL_NAMES if any((one.label == label).any() for one in scores.values())]
    rows = []
    for name, one in scores.items():
        counts = (len(one), *(np.count_nonzero(one.label == label) for label in labels))
        quantiles = np.quantile(one.score, [0, 0.5, 1])
        rows.append(Row(name, (*(f"{n:,}" for n in counts), *(f"{at:.4g}" for at in quantiles))))
    columns = ("events", *(LABEL_NAMES[label] for label in labels), "lowest score", "median", "highest")
    return Table("Events", columns, tuple(rows))
