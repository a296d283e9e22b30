"""`unmask calibrate`, `unmask flag` and `unmask combine`: from scores to background p-values and flagged events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unmask.cli import options
from unmask.cli.console import note, show, show_json

ScoresFiles = Annotated[list[Path], typer.Argument(metavar="SCORES...", help="Files that unmask score wrote.")]


def calibrate(
    scores: Annotated[
        list[Path], typer.Argument(metavar="SCORES...", help="Scores of held-out background, or of a control region.")
    ],
    background_efficiency: Annotated[float, typer.Option(help="Background efficiency above the threshold.")] = 0.01,
    out: options.OutFolder = Path("calibration"),
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Choose the threshold for a background efficiency, and keep what turns scores into p-values.

    The events must be neither those that the detector was trained on nor those that will be flagged.
    """
    from unmask.outputs import check_output
    from unmask.scores.calibration import KIND, ScoredBy
    from unmask.scores.calibration import calibrate as calibrate_scores
    from unmask.scores.score_table import concatenate_scores, read_scores

    check_output(out, [KIND], scores, overwrite=overwrite)
    scored_by = ScoredBy.of_files(scores)
    events = concatenate_scores([read_scores(path) for path in scores])
    calibration = calibrate_scores(events, background_efficiency=background_efficiency, scored_by=scored_by)
    if n_seen := events.n_trained_on:
        note(f"warning: the detector was trained on {n_seen:,} of these {len(events):,} events: p-values are wrong")
    if events.n_repeated:
        note(f"warning: {events.n_repeated:,} events are given more than once: the interval is too narrow")
    calibration.save(out)
    threshold, measured = calibration.threshold, calibration.measured
    if json:
        show_json({"threshold": threshold, "n_events": len(events), "background_efficiency": vars(measured)})
    else:
        show(f"threshold {threshold:.6g}: background efficiency {measured} of {len(events):,} events -> {out}")


def flag(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="Folder that unmask calibrate wrote.")],
    scores: ScoresFiles,
    out: options.OutFile = Path("flagged.parquet"),
    csv: Annotated[bool, typer.Option("--csv", help="The same as text, next to OUT.")] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write the events above the calibrated threshold with their p-values, the least likely first.

    Where run numbers are known, lists to pick the events by are written beside OUT: run:lumi:event and run event.
    """
    import pyarrow as pa
    from pyarrow.csv import write_csv

    from unmask.artifacts import MANIFEST, atomic_path, provenance, sha256_of_file
    from unmask.outputs import check_output
    from unmask.scores.calibration import Calibration
    from unmask.scores.flagged import FLAGGED_TABLE, pick_list_paths
    from unmask.tables import plain_text

    check_output(out, [FLAGGED_TABLE.name], [*scores, calibration], endings=(".parquet",), overwrite=overwrite)
    if csv:
        check_output(out.with_suffix(".csv"), [FLAGGED_TABLE.name], scores, overwrite=overwrite)
    for path in pick_list_paths(out):
        check_output(path, ["pick list"], scores, overwrite=overwrite)
    known = Calibration.load(calibration)
    flagged = known.flag(scores)
    for text in flagged.notes:
        note(f"warning: {text}")
    if known.scored_by.model is None:
        note("warning: the calibration does not name the model of its scores; make sure that it is the same")
    files = [path.name for path in scores]
    picked = flagged.write(out, metadata=provenance(calibration=sha256_of_file(calibration / MANIFEST), scores=files))
    if csv:
        words = (pa.DictionaryArray, pa.StringArray)
        columns = {
            name: pa.array(map(plain_text, column.to_pylist()), pa.string()) if isinstance(column, words) else column
            for name, column in flagged.columns().items()
        }
        with atomic_path(out.with_suffix(".csv")) as path:
            write_csv(pa.table(columns), path)
    for path in picked:
        note(f"pick list -> {path}")
    if len(flagged.scores) and not picked:
        note("no pick list: the events have no run numbers; they are known by their file and row")
    # The efficiency is one of weights; in data, where these are 1, of events.
    numbers = {
        "n_events": flagged.n_events,
        "n_flagged": len(flagged.scores),
        "weight_flagged": float(flagged.scores.weight.sum()),
        "weight_expected_of_background": known.measured.value * flagged.weight,
    }
    if json:
        show_json(numbers)
    else:
        show(
            "{n_flagged:,} of {n_events:,} events flagged -> {out}\nsum of their weights {weight_flagged:,.1f}; "
            "{weight_expected_of_background:,.1f} expected if all events are background".format(out=out, **numbers)
        )


def combine(
    scores: ScoresFiles,
    background: Annotated[
        list[Path] | None, typer.Option(help="Background scores, such as of validation events, one per SCORES.")
    ] = None,
    rule: Annotated[
        Literal["average", "and", "or", "product"],
        typer.Option(help="Rule for p-values; and: all must be small; or: one is enough."),
    ] = "product",
    out: options.OutFile = Path("combined.parquet"),
    overwrite: options.Overwrite = False,
) -> None:
    """Combine scores of several detectors into one score per event.

    Each score becomes its background p-value, from half of the events of --background, by default of the background
    of SCORES. Without --background that half is omitted from OUT, so that the rest can be calibrated.
    """
    import hashlib
    import json

    from unmask.artifacts import provenance
    from unmask.events.event_set import BACKGROUND
    from unmask.outputs import check_output
    from unmask.scores.calibration import ScoredBy
    from unmask.scores.combination import combine as combine_scores
    from unmask.scores.combination import gives_terms
    from unmask.scores.score_table import SCORES_TABLE, read_scores, write_scores

    inputs = [*scores, *(background or [])]
    check_output(out, [SCORES_TABLE.name], inputs, endings=(".parquet",), overwrite=overwrite)
    pairs = zip(scores, background, strict=False) if background else ((path,) for path in scores)
    scored_by = [vars(ScoredBy.of_files(pair)) for pair in pairs]
    read, calibrating = ({str(path): read_scores(path) for path in paths or []} for paths in (scores, background))
    combined = combine_scores(read, calibrating or None, rule=rule)
    # Combinations of p-values from the same events are one detector to unmask calibrate and unmask flag.
    model = hashlib.sha256(json.dumps([rule, scored_by]).encode())
    halves = [
        one[gives_terms(one) & ((one.label == BACKGROUND) | bool(calibrating))]
        for one in (calibrating or read).values()
    ]
    for one in halves:
        model.update(one.score.tobytes())
    record = provenance(detector="combination", model=model.hexdigest(), score=rule, combined=scored_by)
    write_scores(out, [combined], provenance=record)
    show(
        f"{rule} of {len(read)} scores, p-values from {len(halves[0]):,} background events: {len(combined):,} events "
        f"-> {out}"
    )
