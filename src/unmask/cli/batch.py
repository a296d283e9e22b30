"""`unmask batch`: submit files for batch systems."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

#: What can be cut into shards.
_COMMANDS = (("score",), ("tokenizer", "encode"), ("data", "convert"))


def batch(
    context: typer.Context,
    system: Annotated[Literal["slurm", "htcondor"], typer.Argument(help="The batch system.")],
    shards: Annotated[int, typer.Option(min=1, help="Number of jobs.")],
    folder: Annotated[
        Path | None, typer.Option("--submit-files", help="Folder for the submit files (default: OUT.batch).")
    ] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores of a job.")] = 1,
    memory_gb: Annotated[int, typer.Option(min=1, help="Memory of a job in GB.")] = 4,
    hours: Annotated[int, typer.Option(min=1, help="Time limit of a job in hours.")] = 8,
) -> None:
    """Write submit files that run a command in shards: unmask batch slurm score MODEL FILES --shards 100 --out scores.

    The command is one of score, tokenizer encode and data convert, with its own options but without --shard and
    --dask. Quote patterns such as 'files/*.csv.gz': every job finds the files itself.
    """
    from unmask.cli.console import out as console
    from unmask.cluster.batch_files import Jobs, write_batch

    words = list(context.args)
    out = _parsed(words)["out"]
    submit, how = write_batch(
        system,
        Jobs(words, n_shards=shards, n_cpus=cpus, memory_gb=memory_gb, hours=hours),
        folder or out.with_name(out.name + ".batch"),
    )
    console.print(
        f"{shards:,} jobs -> {submit}\n"
        f"submit them from this folder: {how}\n"
        f"when they are done, check, and do what is missing: unmask {shlex.join(words)} --shard 1/1",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _parsed(words: list[str]) -> dict[str, Any]:
    """Parse the command as it will be parsed in each job, so that its mistakes are found before any job starts."""
    from unmask.cli import app
    from unmask.cli.reading import find_files
    from unmask.errors import BadDataError, UsageError

    name = next((name for name in _COMMANDS if tuple(words[: len(name)]) == name), None)
    if name is None:
        choices = ", ".join(" ".join(one) for one in _COMMANDS)
        raise UsageError(f"{' '.join(words[:2]) or 'no command'} cannot be run in shards; choose from {choices}")
    command: Any = typer.main.get_command(app)
    for word in name:
        command = command.commands[word]
    parsed: dict[str, Any] = command.make_context(f"unmask {' '.join(name)}", words[len(name) :]).params
    for option in ("shard", "dask"):
        if parsed[option] is not None:
            raise UsageError(f"leave out --{option}: the submit file says which job does which share")
    if parsed["out"].suffix == ".parquet":
        raise UsageError(f"{parsed['out']}: give a folder for the parts, whose name does not end in .parquet")
    for file in find_files(parsed["files"]):
        if not file.exists():
            raise BadDataError("no such file", path=file)
    return parsed
