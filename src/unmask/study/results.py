"""Results of a study: metrics, tables, figures and one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unmask.artifacts import Json, atomic_path
from unmask.detectors import Detector, load_detector
from unmask.evaluation.evaluate import Evaluation
from unmask.evaluation.measurement import AUC, EPS_B, eps_s
from unmask.evaluation.metrics import TOO_FEW
from unmask.evaluation.table import Cell, Row, Table
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.report.other_figures import draw_events, draw_training, draw_type_losses
from unmask.report.page import Figure, write_report
from unmask.report.runs import Run
from unmask.report.score_figures import write_score_figures
from unmask.report.style import FORMATS, Style, svg_element, write_drawings
from unmask.report.tables import markdown_document, result_files
from unmask.scores.calibration import Calibration
from unmask.scores.combination import PRODUCT
from unmask.scores.score_table import Scores
from unmask.study.published import Study
from unmask.study.token_drawings import token_drawings, token_types

#: The main tables of a study, as the terminal shows them.
SUMMARY = "summary.txt"
#: Mean losses of tokens are drawn of so many test events at most.
MAX_DRAWN_EVENTS = 10_000
CAVEAT = "published: what the paper reports, for other simulated events; compare methods, not these numbers with those"


def study_tables(evaluation: Evaluation, study: Study) -> list[Table]:
    """Test results beside published ones, where there are any, and, if there are several, results of each signal."""
    title = f"Test results: {study.description} ({evaluation.confidence:.0%} CL)"
    table = replace(evaluation.table(evaluation.main), title=title)
    if any(row.name in study.published for row in table.rows):
        rows, columns = [], (AUC, eps_s(0.01), EPS_B)
        table = evaluation.table(columns)
        for row in table.rows:
            pairs = zip(row.cells, study.published.get(row.name, ("", "", "")), strict=True)
            rows.append(replace(row, cells=tuple(cell for pair in pairs for cell in pair)))
        table = Table(title, tuple(name for column in columns for name in (column, "published")), tuple(rows))
    return [table, _signals_table(evaluation)] if len(evaluation.signals) > 1 else [table]


def published_notes(evaluation: Evaluation, study: Study) -> list[str]:
    """Remarks on the published numbers in the table."""
    names = [row.name for row in evaluation.rows_of() if row.name in study.published]
    return [CAVEAT, *(study.notes[name] for name in names if name in study.notes)] if names else []


def _signals_table(evaluation: Evaluation) -> Table:
    """AUC and signal efficiency of each detector against each signal; beside them the product of observables."""
    rows, short = [], evaluation.short
    for signal, n_events in evaluation.signals.items():
        for row in evaluation.rows_of(signal):
            if row.kind == "detector" or row.name == PRODUCT:
                cells: tuple[Cell, ...] = (signal, f"{n_events:,}", *(row.cells().get(name, TOO_FEW) for name in short))
                rows.append(Row(row.name, cells, row.kind == "untrained"))
    title = f"One background model against each signal ({evaluation.confidence:.0%} CL)"
    return Table(title, ("signal", "events", *short), tuple(rows))


def cost_table(models: Mapping[str, Path]) -> Table:
    """Parameters, epochs and seconds of training of detectors with a network (by their folders) and of VQ-VAEs."""
    rows = []
    for name, folder in models.items():
        detector = load_detector(folder)
        trained = [each for each in (detector, detector.tokenizer) if each and each.history_]
        if detector.history_:
            parameters = " + ".join(f"{each.n_parameters:,}" for each in trained)
            seconds = " + ".join(f"{sum(record.seconds for record in each.history_ or []):,.0f}" for each in trained)
            rows.append(Row(name, (parameters, str(len(detector.history_)), seconds)))
    title = "Cost of the trainings, on the machine where they ran (+: of the VQ-VAE)"
    return Table(title, ("parameters", "epochs", "seconds"), tuple(rows))


def write_results(
    folder: Path,
    study: Study,
    scores: Mapping[str, Scores],
    evaluation: Evaluation,
    costs: Table,
    calibrations: Sequence[Path],
    style: Style,
) -> None:
    """Write metrics, tables and figures of detectors to a folder."""
    verdicts = evaluation.verdict_tables()
    tables = [*study_tables(evaluation, study), *verdicts, *([costs] if costs.rows else [])]
    summary = [replace(evaluation.table(evaluation.short), title="Test results, 95% CL"), *verdicts[:1]]
    texts = {
        SUMMARY: "\n\n".join(table.terminal() for table in summary) + "\n",
        "summary.md": markdown_document(tables, [*published_notes(evaluation, study), *evaluation.notes]),
        "summary.tex": "\n".join(table.latex() for table in tables),
        **result_files(evaluation, study.channel),
    }
    with atomic_path(folder) as scratch:
        scratch.mkdir()
        for name, text in texts.items():
            (scratch / name).write_text(text, encoding="utf-8")
        write_score_figures(scratch / "figures", scores, calibrations=_load(calibrations), style=style)


def _load(calibrations: Sequence[Path]) -> dict[str, Calibration]:
    """Calibrations of detectors by their names, those of the folders."""
    return {folder.name: Calibration.load(folder) for folder in calibrations}


def write_detector_figures(folder: Path, name: str, detector: Detector, events: EventSet, style: Style) -> None:
    """Draw the training of a detector and its tokenizer, and the use of its tokens by test events."""
    tokenizer = detector.tokenizer
    histories = {"tokenizer-training": tokenizer.history_ if tokenizer else None, "training": detector.history_}
    drawings = {
        file: draw_training(history, title=f"{name}: {file}", style=style)
        for file, history in histories.items()
        if history
    }
    if tokenizer:
        drawings |= token_drawings(tokenizer, [events], style=style)
    some = events[:: -(-len(events) // MAX_DRAWN_EVENTS)]
    if tokenizer and (loss := detector.token_losses(some)) is not None:
        types = token_types(tokenizer, some)
        drawings["type-losses"] = draw_type_losses(loss, types, some.label == SIGNAL, some.weight, style=style)
    background = events[events.label == BACKGROUND]
    if (copies := detector.altered_copies(background)) is not None:
        both = EventSet.concatenate([background, copies.with_label(SIGNAL)])
        drawings["altered-copies-beside-background"] = draw_events(both, signal="altered copies", style=style)
    with atomic_path(folder) as scratch:
        scratch.mkdir()
        write_drawings(scratch, drawings, FORMATS)


def write_study_report(
    out: Path,
    study: Study,
    runs: list[Run],
    evaluation: Evaluation | None,
    figures: Mapping[str, Path],
    calibrations: Sequence[Path],
    *,
    title: str,
    style: Style,
    searches: Mapping[str, Mapping[str, Json]],
) -> None:
    """Write one HTML file on all detectors: the tables of the study first, then all that a report holds.

    ``evaluation`` is of those of ``runs`` that have signal; ``figures`` are folders by the names of detectors,
    ``calibrations`` folders, and ``searches`` contents of search.json.
    """
    notes = published_notes(evaluation, study) if evaluation else []
    # Without published numbers the first table would only repeat what a report has anyway.
    tables = study_tables(evaluation, study)[0 if notes else 1 :] if evaluation else []
    drawn = []
    for i, (name, folder) in enumerate(figures.items(), start=1):
        for path in sorted(folder.glob("*.svg")):
            caption = f"{name}: {path.stem.replace('-', ' ')}"
            drawn.append(Figure(caption, svg_element(path.read_text(), f"study-{i}-{path.stem}", caption)))
    write_report(
        runs,
        out,
        title=title,
        notes=notes,
        tables=tables,
        figures=drawn,
        style=style,
        evaluation=evaluation,
        calibrations=_load(calibrations),
        searches=searches,
    )
