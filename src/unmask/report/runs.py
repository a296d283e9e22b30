"""Inputs of a report: scores with their provenance and explanations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unmask.artifacts import Json
from unmask.errors import BadDataError, UsageError
from unmask.outputs import METADATA_KEY
from unmask.scores.explanations import Explanations, explained_path, read_explanations
from unmask.scores.intervals import check_finite
from unmask.scores.score_table import SCORES_TABLE, Scores, origin_of_file, read_scores
from unmask.tables import parts_in, table_files


@dataclass(frozen=True)
class Run:
    """The scores of one detector, under a name that no other of the report has, and its explained events, if any."""

    name: str
    path: Path
    scores: Scores
    provenance: dict[str, Json] = field(default_factory=dict)
    explanations: Explanations | None = None


def read_runs(scores: str | Path | Iterable[str | Path | Run] | Mapping[str, Scores]) -> list[Run]:
    """Read scores files, and all scores files in folders (of a study: in its ``scores``), with their explanations.

    What has been read already comes first.

    Raises
    ------
    UsageError
        If there are no scores, or the same file twice.
    BadDataError
        If scores are not finite, or explanations are not of the scores beside them.
    """
    if isinstance(scores, Mapping):
        runs = [Run(name, Path(name), one) for name, one in scores.items()]
    else:
        paths = [scores] if isinstance(scores, str | Path) else list(scores)
        known = [one for one in paths if isinstance(one, Run)]
        files = [file for path in paths if not isinstance(path, Run) for file in _scores_files(Path(path))]
        repeated = [file for file, n in Counter(file.resolve() for file in files).items() if n > 1]
        if repeated:
            raise UsageError(f"{repeated[0]} is given twice")
        runs = known + [_read_run(file, name) for file, name in zip(files, _names(files), strict=True)]
    if not runs:
        raise UsageError("no scores to report on; give scores files, or folders that hold some")
    return runs


def _scores_files(path: Path) -> list[Path]:
    if not path.is_dir() or parts_in(path):  # a file, or a folder of the parts of one table
        return [path]
    if (path / "scores").is_dir():
        return _scores_files(path / "scores")
    files = [file for file in sorted(path.glob("*.parquet")) if _holds_scores(file)]
    if not files:
        raise UsageError(f"{path}: holds no scores files (*.parquet)")
    return files


def _holds_scores(file: Path) -> bool:
    """Whether a Parquet file is one of scores; a damaged one counts, so that reading it says what is wrong."""
    try:
        metadata = json.loads((pq.read_schema(file).metadata or {}).get(METADATA_KEY, b"{}"))
    except (pa.ArrowException, ValueError):
        return True
    return bool(metadata.get("kind") == SCORES_TABLE.name)


def _names(files: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell the files apart.

    >>> _names([Path("a/scores.parquet"), Path("b/scores.parquet")])
    ['a/scores', 'b/scores']
    """
    parts = [file.resolve().with_name(file.name.removesuffix(".parquet")).parts for file in files]
    ends = (["/".join(part[-n:]) for part in parts] for n in range(1, max(map(len, parts), default=0) + 1))
    return next((names for names in ends if len(set(names)) == len(names)), [str(file) for file in files])


def _read_run(path: Path, name: str) -> Run:
    scores = read_scores(path)
    try:
        check_finite(scores.score)
    except BadDataError as error:
        raise BadDataError(str(error), path=path) from None
    provenance = origin_of_file(table_files(path)[0])
    explained = explained_path(path)
    explanations = read_explanations(explained) if explained.is_file() else None
    if not explanations or not explanations.events:
        return Run(name, path, scores, provenance)
    # They may have stayed behind when the scores beside them were written again.
    events = {(event.file, event.row, event.score) for event in explanations.events}
    some = scores[np.isin(scores.row, [row for _, row, _ in events])]
    known = zip(some.file.tolist(), some.row.tolist(), some.score.tolist(), strict=True)
    if not events <= set(known) or explanations.n_scored != len(scores):
        reason = "explains other scores than those beside it; run unmask score with --explain again, or remove it"
        raise BadDataError(reason, path=explained)
    return Run(name, path, scores, provenance, explanations)
