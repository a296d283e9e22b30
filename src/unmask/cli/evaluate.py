"""`unmask evaluate`: how well scores tell signal from background."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from unmask.cli.reading import JsonOption

if TYPE_CHECKING:
    from unmask.evaluation.evaluate import Evaluation
    from unmask.report.score_figures import ScoredEvents
    from unmask.report.style import Style
    from unmask.scores.score_table import Scores

ScoresArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="SCORES...",
        help="Files that unmask score wrote, or Parquet or CSV files with columns score and label; one a detector.",
    ),
]
NameOption = Annotated[
    list[str] | None, typer.Option("--name", help="Name of a detector, one for each file (default: the file's name).")
]


def evaluate(
    scores: ScoresArgument,
    name: NameOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for metrics.json, table.md, table.tex, leaderboard.csv, figures."),
    ] = None,
    style: Annotated[
        Literal["plain", "atlas", "cms"] | None, typer.Option(help="Look of the figures (default: plain).")
    ] = None,
    formats: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Formats of the figures (default: png,pdf,svg).")
    ] = None,
    channel: Annotated[
        Literal["1", "2a", "2b", "3"] | None, typer.Option(help="Dark Machines channel to name in leaderboard.csv.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure how well scores tell signal from background, beside untrained baseline scores, with 95 % intervals.

    Several files are compared in pairs and must hold the same events. The terminal shows the main numbers, --json and
    --out all of them.
    """
    from unmask.artifacts import atomic_path
    from unmask.cli.console import emit_json, note
    from unmask.errors import UsageError
    from unmask.report.score_figures import drawable
    from unmask.report.style import FORMATS, check_format
    from unmask.report.tables import result_files

    names = _names(scores, name)
    if (style or formats or channel) and not out:
        raise UsageError("--style, --formats and --channel are of files that are written to a folder: give --out")
    wanted = [one.strip() for one in formats.split(",")] if formats else FORMATS
    for one in wanted:
        check_format(one, f"--formats {formats}")
    read = _read(scores, names)
    found = _evaluate(read)
    if out:
        texts = result_files(found, channel or "")
        for file, text in texts.items():
            with atomic_path(out / file) as path:
                path.write_text(text, encoding="utf-8")
        note(f"wrote {', '.join(texts)} -> {out}")
        drawn = drawable(read)
        if drawn:
            _draw(drawn, out / "figures", style or "plain", wanted)
        else:
            note("no figures: negative weights")
    if json:
        emit_json(found.to_json())
    else:
        _show(found)


def _names(scores: list[Path], given: list[str] | None) -> list[str]:
    from unmask.errors import UsageError

    names = given or [path.stem for path in scores]
    if len(names) != len(scores):
        raise UsageError(f"{len(scores)} scores files and {len(names)} names: give --name once for each file")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"two detectors are called {twice[0]!r}: give each a --name")
    return names


def _read(scores: list[Path], names: list[str]) -> dict[str, Scores]:
    from unmask.cli.console import working
    from unmask.scores.score_table import read_scores

    found = {}
    with working(f"reading {len(scores)} scores file{'s' if len(scores) > 1 else ''}") as progress:
        for name, path in zip(names, scores, strict=True):
            found[name] = read_scores(path)
            progress(len(found) / len(scores))
    return found


def _evaluate(scores: dict[str, Scores]) -> Evaluation:
    from unmask.cli.console import note, working
    from unmask.evaluation.evaluate import evaluate

    n_events = len(next(iter(scores.values())))
    with working(f"measuring scores of {n_events:,} events") as progress:
        found = evaluate(scores, progress=progress)
    for text in found.notes:
        note(f"note: {text}")
    return found


def _draw(scores: dict[str, ScoredEvents], folder: Path, style: Style, formats: Sequence[str]) -> None:
    from unmask.cli.console import note, working
    from unmask.errors import MissingExtraError
    from unmask.report.score_figures import write_score_figures

    try:
        with working("drawing figures") as progress:
            paths = write_score_figures(folder, scores, style=style, formats=formats, progress=progress)
        note(f"wrote {len(paths)} files -> {folder}")
    except MissingExtraError as error:
        note(f"no figures: {error}")


def _show(found: Evaluation) -> None:
    from unmask.cli.console import out
    from unmask.evaluation.evaluate import AUC, EPS_S

    n_metrics = len(found.selections)
    tables = found.tables()
    for table in [*(each.only((AUC, EPS_S)) for each in tables[:n_metrics]), *tables[n_metrics:]]:
        out.print(table.terminal() + "\n", highlight=False, markup=False, soft_wrap=True)
