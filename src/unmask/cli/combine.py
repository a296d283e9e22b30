"""`unmask combine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def combine(
    scores: Annotated[
        list[Path], typer.Argument(metavar="SCORES...", help="Scores files of the same events, one per detector.")
    ],
    background: Annotated[
        list[Path] | None,
        typer.Option(help="Background scores by the same detectors, such as of validation events (one per SCORES)."),
    ] = None,
    rule: Annotated[
        Literal["average", "and", "or", "product"],
        typer.Option(help="How p-values are combined; and: all must be small; or: one is enough."),
    ] = "product",
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write.")] = Path("combined.parquet"),
) -> None:
    """Combine scores of several detectors into one score per event.

    Each score becomes its p-value in background: in the events of --background, or else in about half of the background
    of SCORES, which is then left out of OUT.
    """
    import hashlib
    import json

    from unmask.artifacts import provenance
    from unmask.cli.console import out as console
    from unmask.errors import UsageError
    from unmask.scores.calibration import ScoredBy
    from unmask.scores.combination import combine as combine_scores
    from unmask.scores.score_table import read_scores, write_scores

    if out.resolve() in {path.resolve() for path in [*scores, *(background or [])]}:
        raise UsageError(f"{out} would overwrite a scores file; choose another name")
    pairs = zip(scores, background, strict=False) if background else ((path,) for path in scores)
    scored_by = [vars(ScoredBy.of_files(pair)) for pair in pairs]
    read, calibrating = ({str(path): read_scores(path) for path in paths or []} for paths in (scores, background))
    found = combine_scores(read, calibrating or None, rule=rule)
    # Combinations that are calibrated alike are one detector to unmask calibrate and unmask flag.
    model = hashlib.sha256(json.dumps([rule, scored_by]).encode())
    for one in (calibrating or read).values():
        model.update(one.score.tobytes())
    facts = provenance(detector="combination", model=model.hexdigest(), score=rule, combined=scored_by)
    n_left_out = len(next(iter(read.values()))) - len(found)
    n_calibrating = len(next(iter(calibrating.values()))) if calibrating else n_left_out
    write_scores(out, [found], provenance=facts)
    facts_of_it = f"{rule} of {len(read)} scores, calibrated on {n_calibrating:,} background events"
    console.print(f"{facts_of_it}: {len(found):,} events -> {out}", highlight=False, soft_wrap=True)
