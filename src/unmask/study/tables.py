"""Tables of a study: measured beside published numbers, one model against many signals, and costs of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from unmask.detectors import load_detector
from unmask.evaluation.evaluate import AUC, EPS_S, MAIN, Evaluation
from unmask.evaluation.table import Cell, Row, Table
from unmask.evaluation.untrained import FISHER
from unmask.study.published import Study

CAVEAT = "published: what the paper reports, for other simulated events; compare methods, not these numbers with those"


def study_tables(evaluation: Evaluation, study: Study) -> list[Table]:
    """Test results beside published ones, where there are any, and, if there are several, results of each signal."""
    title = f"Test results: {study.description} ({evaluation.confidence:.0%} CL)"
    table = replace(evaluation.table().only(MAIN), title=title)
    if any(row.name in study.published for row in table.rows):
        rows = []
        for row in table.rows:
            pairs = zip(row.cells, study.published.get(row.name, ("", "", "")), strict=True)
            rows.append(replace(row, cells=tuple(cell for pair in pairs for cell in pair)))
        table = Table(title, tuple(name for column in MAIN for name in (column, "published")), tuple(rows))
    return [table, _signals_table(evaluation)] if len(evaluation.signals) > 1 else [table]


def published_notes(evaluation: Evaluation, study: Study) -> list[str]:
    """What must be said about the published numbers in the table."""
    names = [row.name for row in evaluation.rows_of() if row.name in study.published]
    return [CAVEAT, *(study.notes[name] for name in names if name in study.notes)] if names else []


def _signals_table(evaluation: Evaluation) -> Table:
    """AUC and signal efficiency of each detector against each signal; beside them Fisher's combination."""
    rows = []
    for signal, n_events in evaluation.signals.items():
        for row in evaluation.rows_of(signal):
            if row.kind == "detector" or row.name == FISHER:
                cells: tuple[Cell, ...] = (signal, f"{n_events:,}", row.cells()[AUC], row.cells()[EPS_S])
                rows.append(Row(row.name, cells, row.kind == "untrained"))
    title = f"One background model against each signal ({evaluation.confidence:.0%} CL)"
    return Table(title, ("signal", "events", AUC, EPS_S), tuple(rows))


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
