"""The report of one or more runs: a single HTML file, which needs no network, and no script for numbers and figures."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from unmask.artifacts import Json, atomic_path, provenance
from unmask.errors import UsageError, require
from unmask.evaluation.evaluate import Evaluation
from unmask.report.event_list import browser_data, event_lists
from unmask.report.measurements import Figure, Row, Table, measure
from unmask.report.runs import Run, read_runs
from unmask.report.style import Style

__all__ = ["Figure", "Row", "Table", "render_report", "write_report"]


def write_report(
    runs: Iterable[str | Path],
    out: str | Path,
    *,
    title: str = "Anomaly report",
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
    style: Style = "plain",
    evaluation: Evaluation | None = None,
) -> list[Run]:
    """Write the report on scores files, or on folders of them, to the HTML file ``out`` and return what was read.

    Further ``notes`` and ``tables`` stand before those that are measured, ``figures`` after them; ``style`` is that of
    the others. Notes follow the first table, warnings precede it. The ``evaluation`` of the scores with signal and
    background is made if it is not given.

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
    read = read_runs(runs)
    page = render_report(
        read, title=title, notes=notes, tables=tables, figures=figures, style=style, evaluation=evaluation
    )
    with atomic_path(out) as scratch:
        scratch.write_text(page, encoding="utf-8")
    return read


def render_report(
    runs: list[Run],
    *,
    title: str = "Anomaly report",
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
    style: Style = "plain",
    evaluation: Evaluation | None = None,
) -> str:
    """Give the report as the text of an HTML page; see :func:`write_report`."""
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
    made_by = provenance()
    measured = measure({run.name: run.scores for run in runs}, style=style, evaluation=evaluation)
    measured.notes[:0] = notes
    measured.tables[:0] = tables
    measured.figures += figures
    return environment.get_template("report.html").render(
        title=title,
        style=rules,
        script=script,
        # Whatever the data hold: a browser runs no other script than this one, and fetches nothing.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        scored=[(run.name, len(run.scores)) for run in runs],
        created=made_by["created"],
        version=made_by["packages"]["unmask"],
        runs=[(run.name, list(_facts(_settings(run)))) for run in runs],
        measured=measured,
        lists=event_lists(runs),
        data=browser_data(runs),
    )


def _settings(run: Run) -> dict[str, Json]:
    """What is known of the detector of a run, then of its scores."""
    detector = {"settings": "not known: the model is not beside the scores"} | run.detector
    kind, fitted_on = (detector.pop(name, None) for name in ("kind", "fitted_on"))
    return {"detector": kind, **detector, "scores": run.path.name, **run.provenance, "fitted on": fitted_on}


def _facts(value: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows of a table.

    >>> list(_facts({"training": {"seed": 1}, "inputs": ["a", "b"]}))
    [('training seed', '1'), ('inputs 1', 'a'), ('inputs 2', 'b')]
    """
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value, start=1)
        for key, part in items:
            yield from _facts(part, f"{name} {key}".strip())
    elif value is not None:
        yield name, str(value)
