"""Files of an evaluation for people and programs: JSON, Markdown, LaTeX, and the Dark Machines results format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable

from unmask.evaluation.evaluate import ALL_SIGNAL, Evaluation
from unmask.evaluation.metrics import BACKGROUND_EFFICIENCIES
from unmask.evaluation.table import Table, markdown_text
from unmask.tables import plain_text


def result_files(evaluation: Evaluation, channel: str = "") -> dict[str, str]:
    """Everything that is written of an evaluation besides figures: texts by the names of their files."""
    tables = evaluation.tables(evaluation.main)
    return {
        "metrics.json": json.dumps(evaluation.to_json(), indent=1) + "\n",
        "table.md": markdown_document(tables, evaluation.notes),
        "table.tex": "\n".join(table.latex() for table in tables),
        "leaderboard.csv": leaderboard(evaluation, channel),
    }


def markdown_document(tables: Iterable[Table], notes: Iterable[str] = ()) -> str:
    """Tables under their titles, then notes."""
    sections = [f"## {markdown_text(table.title)}\n\n{table.markdown()}" for table in tables]
    listed = "".join(f"- {markdown_text(note)}\n" for note in notes)
    return "\n".join([*sections, *([f"## Notes\n\n{listed}"] if listed else [])])


def leaderboard(evaluation: Evaluation, channel: str) -> str:
    """Rows in the Dark Machines results format: a signal process and a detector each; empty what is not supported."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("Signal", "Model", "Chan", "AUC", "1e-2", "1e-3", "1e-4"))
    for row in evaluation.rows:
        if row.kind == "untrained" or (row.signal == ALL_SIGNAL and len(evaluation.signals) > 1):
            continue
        signal = next(iter(evaluation.signals)) if row.signal == ALL_SIGNAL else row.signal
        numbers = (row.metrics.auc, *map(row.metrics.signal_efficiency.get, BACKGROUND_EFFICIENCIES))
        writer.writerow(
            [*map(plain_text, (signal, row.name, channel)), *(f"{one.value:.6g}" if one else "" for one in numbers)]
        )
    return text.getvalue()
