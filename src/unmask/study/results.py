"""Results of a study: metrics, tables, figures and one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unmask.artifacts import atomic_path
from unmask.detectors import Detector
from unmask.evaluation.evaluate import AUC, EPS_S, Evaluation
from unmask.evaluation.table import Table
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.report.other_figures import draw_events, draw_training, draw_type_losses
from unmask.report.page import Figure, write_report
from unmask.report.runs import Run
from unmask.report.score_figures import write_score_figures
from unmask.report.style import FORMATS, Style, svg_element, write_drawings
from unmask.report.tables import markdown_document, result_files
from unmask.scores.score_table import Scores
from unmask.study.published import Study
from unmask.study.tables import published_notes, study_tables
from unmask.study.token_drawings import token_drawings, token_types

#: The main tables of a study, as the terminal shows them.
SUMMARY = "summary.txt"
#: Mean losses of tokens are drawn of so many test events at most.
MAX_DRAWN_EVENTS = 10_000


def write_results(
    folder: Path, study: Study, scores: Mapping[str, Scores], evaluation: Evaluation, costs: Table, style: Style
) -> None:
    """Write metrics, tables and figures of detectors to a folder."""
    verdicts = evaluation.verdict_tables()
    tables = [*study_tables(evaluation, study), *verdicts, *([costs] if costs.rows else [])]
    summary = [replace(evaluation.table().only((AUC, EPS_S)), title="Test results, 95% CL"), *verdicts[:1]]
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
        write_score_figures(scratch / "figures", scores, style=style)


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
    *,
    title: str,
    style: Style,
) -> None:
    """Write one HTML file on all detectors: the tables of the study first, then all that a report holds.

    ``evaluation`` is of those of ``runs`` that have signal; ``figures`` are folders by the names of detectors.
    """
    notes = published_notes(evaluation, study) if evaluation else []
    # Without published numbers the first table would only repeat what a report has anyway.
    tables = study_tables(evaluation, study)[0 if notes else 1 :] if evaluation else []
    drawn = []
    for i, (name, folder) in enumerate(figures.items(), start=1):
        for path in sorted(folder.glob("*.svg")):
            caption = f"{name}: {path.stem.replace('-', ' ')}"
            drawn.append(Figure(caption, svg_element(path.read_text(), f"study-{i}-{path.stem}", caption)))
    write_report(runs, out, title=title, notes=notes, tables=tables, figures=drawn, style=style, evaluation=evaluation)
