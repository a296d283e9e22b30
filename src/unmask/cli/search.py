"""`unmask search`: from event files to significances and limits."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli import options
from unmask.cli.console import note, note_problems, progress_bar, show, show_json, working
from unmask.errors import UsageError, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unmask.events.event_set import EventSet
    from unmask.scores.score_table import Scores
    from unmask.searches.estimate import Variation
    from unmask.workflow.sources import Sources

#: Options of reading that this command has its own of, or has no use for.
_OWN = ("files", "process", "label", "signal_process", "background", "signal", "data", "xsec", "lumi")
_SHOWN = ("observed", "expected", "p", "Z")


@functools.partial(options.reads_events, without=_OWN)
def search(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained detector.")],
    sources: Sources,
    background: Annotated[list[Path], typer.Option(help="Simulated background, not trained on (repeatable).")],
    out: options.OutFolder,
    data: Annotated[list[Path] | None, typer.Option(help="Data [default: expected results only] (repeatable).")] = None,
    signal: Annotated[list[Path] | None, typer.Option(help="Simulated signal, named as its file (repeatable).")] = None,
    edges: Annotated[
        str | None,
        typer.Option(metavar="P,P,...", help="Falling p-values between regions, control first [0.2,0.01,0.001]."),
    ] = None,
    variation: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=UP,DOWN", help="Varied files, or columns of weights; SIGNAL:NAME (repeatable)."),
    ] = None,
    lumi: Annotated[
        float | None, typer.Option(help="Luminosity of the data in 1/fb [default: that of --samples].")
    ] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Data in control and validation regions only.")] = False,
    inject: Annotated[
        list[str] | None,
        typer.Option(metavar="SIGNAL:STRENGTH", help="Signal added to data; without data these are drawn."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of toys and pseudo-data.")] = 1,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Search data for an excess over background in regions of the p-value, and set limits on signals.

    Half of the background calibrates the p-values, the other half estimates the background, normalized to data in the
    control region. OUT receives search.json, tables, workspaces for pyhf and the scores.
    """
    from unmask.artifacts import atomic_path
    from unmask.events.event_set import BACKGROUND, SIGNAL
    from unmask.io.sample import resolve
    from unmask.outputs import check_output
    from unmask.report.page import write_report
    from unmask.report.search_figures import search_figures
    from unmask.report.style import FORMATS, write_drawings
    from unmask.scores.score_table import concatenate_scores
    from unmask.searches.search import search as search_scores
    from unmask.workflow.score import Scoring

    for module in ("pyhf", "iminuit", "hepdata_lib"):  # before events are scored
        require(module, "search")
    require("matplotlib", "plot")
    chosen = [_number(text, "--edges") for text in edges.split(",")] if edges else None
    strengths = dict(_strength(text) for text in inject or [])
    pairs = dict(_pair(text) for text in variation or [])
    if len(pairs) < len(variation or []) or len(strengths) < len(inject or []):
        raise UsageError("--variation or --inject names the same thing twice; give each once")
    if sources.samples.samples:
        lumi = sources.samples.lumi if lumi is None else lumi
        sources.samples = replace(sources.samples, lumi=lumi)
    scoring = Scoring(resolve(model), device=device)

    if len({_name(path) for path in signal or []}) < len(signal or []):
        raise UsageError("two signals have files of the same name; rename one, as limits are given by this name")
    varied = [Path(one) for pair in pairs.values() for one in pair if _is_file(one)]
    check_output(
        out, ["search"], [resolve(model), *background, *(data or []), *(signal or []), *varied], overwrite=overwrite
    )
    before = _regions(out / "search.json")
    with atomic_path(out) as scratch:
        scratch.mkdir()

        def scored(name: str, files: list[Path], owner: str | None = None) -> Scores:
            of_files = sources.with_files(files)
            mine = [pair for known, pair in pairs.items() if known.rpartition(":")[0] == owner]
            columns = dict.fromkeys(one for pair in mine for one in pair if not _is_file(one))
            of_files.options = replace(sources.options, keep=tuple(dict.fromkeys([*sources.options.keep, *columns])))
            scores = scoring.read(_scaled(of_files, columns), scratch / "scores" / f"{name}.parquet", of_files.origin())
            note_problems(of_files)
            note(f"{name}: {len(scores):,} events scored")
            return scores

        of_signal = {_name(path): scored(f"signal-{_name(path)}", [path], _name(path)) for path in signal or []}
        variations: dict[str, Variation] = {}
        for name, (up, down) in pairs.items():
            one, other = (
                scored(f"variation-{name.replace(':', '-')}-{way}", [Path(text)]) if _is_file(text) else text
                for way, text in (("up", up), ("down", down))
            )
            variations[name] = (one, other)
        expected, seen = scored("background", background, ""), scored("data", data) if data else None
        with working("fitting") as progress:
            result = search_scores(
                expected,
                seen,
                of_signal,
                edges=chosen,
                variations=variations,
                lumi=lumi,
                blind=blind,
                inject=strengths,
                seed=seed,
                progress=progress,
            )
        if before and before != [[one.name, one.score_from] for one in result.regions]:
            result.notes.append("the regions are others than those of the search that this one replaces")
        result.write(scratch, model=scoring.digest, inputs=[str(path) for path in (*background, *(data or []))])
        figures = search_figures(result.to_json())
        write_drawings(scratch / "figures", figures, FORMATS)
        parts = [
            _labeled(expected, BACKGROUND, SIGNAL),
            *(_labeled(one, SIGNAL, BACKGROUND) for one in of_signal.values()),
        ]
        name, page = model.name.removeprefix("sample:"), scratch / "report.html"
        write_report({name: concatenate_scores(parts)}, page, title="Search", searches={name: result.to_json()})
    for text in result.notes:
        note(f"note: {text}")
    if json:
        show_json(result.to_json())
        return
    show(result.summary() + "\n")
    tables = result.tables()
    for table in [tables[0].only(_SHOWN), *(table.only(table.columns[:-1]) for table in tables[1:])]:
        show(table.terminal() + "\n")
    show(f"Results: {out}")


def _scaled(sources: Sources, columns: Iterable[str]) -> Iterator[EventSet]:
    """Events whose columns of weights are normalized as their weights are."""
    for file, events in sources.by_file(bar=progress_bar):
        scale = sources.options_of.get(file.absolute(), sources.options).scale
        yield replace(events, further=events.further | {name: scale * events.further[name] for name in columns})


def _regions(path: Path) -> list[list[object]] | None:
    """Names and first scores of the regions of an earlier search, such as a blind one."""
    from json import loads

    return [[one["name"], one["score_from"]] for one in loads(path.read_text())["regions"]] if path.exists() else None


def _labeled(scores: Scores, label: int, other: int) -> Scores:
    import numpy as np

    kept = scores[scores.label != other]
    return replace(kept, label=np.full(len(kept), label, np.int8))


def _name(path: Path) -> str:
    return path.name.split(":")[-1].split(".")[0]


def _is_file(text: str) -> bool:
    return "/" in text or Path(text).suffix[1:2].isalpha() or Path(text).exists()


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a number") from None


def _strength(text: str) -> tuple[str, float]:
    name, colon, strength = text.rpartition(":")
    if not (name and colon):
        raise UsageError(f"--inject {text!r}: expected SIGNAL:STRENGTH, such as gluino:0.5")
    return name, _number(strength, f"--inject {text}")


def _pair(text: str) -> tuple[str, tuple[str, str]]:
    name, equals, values = text.partition("=")
    pair = values.split(",")
    if not (name and equals and len(pair) == 2 and all(pair)):
        raise UsageError(f"--variation {text!r}: expected NAME=UP,DOWN, such as jes=up.root,down.root")
    return name, (pair[0], pair[1])
