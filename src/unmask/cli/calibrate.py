"""`unmask calibrate` and `unmask flag`: from scores to background p-values and the events to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli.reading import JsonOption


def calibrate(
    scores: Annotated[
        list[Path],
        typer.Argument(metavar="BACKGROUND_SCORES...", help="Scores of held-out background, or of a control region."),
    ],
    background_efficiency: Annotated[
        float, typer.Option(help="Share of the background that may be above the threshold.")
    ] = 0.01,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("calibration"),
    json: JsonOption = False,
) -> None:
    """Choose the threshold for a wanted background efficiency, and keep what turns scores into p-values.

    The events must be neither those that the detector was trained on nor those that will be flagged.
    """
    from unmask.artifacts import check_can_save
    from unmask.cli.console import emit_json, note
    from unmask.cli.console import out as console
    from unmask.scores.calibration import ScoredBy
    from unmask.scores.calibration import calibrate as calibrate_scores
    from unmask.scores.score_table import concatenate_scores, read_scores

    check_can_save(out)
    scored_by = ScoredBy.of_files(scores)
    events = concatenate_scores([read_scores(path) for path in scores])
    found = calibrate_scores(events, background_efficiency=background_efficiency, scored_by=scored_by)
    if events.n_trained_on:
        note(
            f"warning: the detector was trained on {events.n_trained_on:,} of these {len(events):,} events: p-values "
            "come out wrong"
        )
    if found.n_repeated:
        note(f"warning: {found.n_repeated:,} events are given more than once: the interval is too narrow")
    found.save(out)
    facts = {"threshold": found.threshold, "n_events": len(events), "background_efficiency": vars(found.measured)}
    if json:
        emit_json(facts)
        return
    console.print(
        f"threshold {found.threshold:.6g}: background efficiency {found.measured} of {len(events):,} events -> {out}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def flag(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="Folder that unmask calibrate wrote.")],
    scores: Annotated[list[Path], typer.Argument(metavar="SCORES...", help="Files that unmask score wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write.")] = Path("flagged.parquet"),
    csv: Annotated[bool, typer.Option("--csv", help="Also write the same as text, next to OUT.")] = False,
    json: JsonOption = False,
) -> None:
    """Write the events above the calibrated threshold with their p-values, the least likely first."""
    import pyarrow as pa
    from pyarrow.csv import write_csv

    from unmask.artifacts import MANIFEST, atomic_path, provenance, sha256_of_file
    from unmask.cli.console import emit_json, note
    from unmask.cli.console import out as console
    from unmask.errors import UsageError
    from unmask.scores.calibration import Calibration

    if out.suffix != ".parquet":
        raise UsageError(f"{out}: a Parquet file is written; let its name end in .parquet (--csv adds it as text)")
    if out.resolve() in {path.resolve() for path in scores}:
        raise UsageError(f"{out} would overwrite a scores file; choose another name")
    known = Calibration.load(calibration)
    found = known.flag(scores)
    for text in found.notes:
        note(f"warning: {text}")
    if known.scored_by.model is None:
        note("warning: the calibration does not say of which model its scores are; make sure that it is the same")
    files = [path.name for path in scores]
    found.write(out, metadata=provenance(calibration=sha256_of_file(calibration / MANIFEST), scores=files))
    if csv:
        columns = {
            name: column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
            for name, column in found.columns().items()
        }
        with atomic_path(out.with_suffix(".csv")) as path:
            write_csv(pa.table(columns), path)
    # The efficiency is one of weights; in data, where these are 1, of events.
    flagged_weight, expected = float(found.scores.weight.sum()), known.measured.value * found.weight
    if json:
        emit_json(
            {
                "n_events": found.n_events,
                "n_flagged": len(found.scores),
                "weight_flagged": flagged_weight,
                "weight_expected_of_background": expected,
            }
        )
        return
    console.print(
        f"{len(found.scores):,} of {found.n_events:,} events flagged -> {out}\n"
        f"sum of their weights {flagged_weight:,.1f}; {expected:,.1f} expected if all events are background",
        highlight=False,
        soft_wrap=True,
    )
