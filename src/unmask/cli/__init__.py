"""The `unmask` command: parse, call the library, print. Heavy modules are imported inside the commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from unmask.cli import calibrate, data, evaluate, model, study, tokenizer, tune

app = typer.Typer(
    name="unmask",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Options of a command: `unmask COMMAND --help`. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad data.",
)
app.add_typer(data.app, name="data")
app.add_typer(tokenizer.app, name="tokenizer")
app.command()(model.train)
app.command()(model.score)
app.command()(calibrate.combine)
app.command()(evaluate.evaluate)
app.command()(calibrate.calibrate)
app.command()(calibrate.flag)
app.command()(evaluate.report)
app.add_typer(study.app, name="study")
app.command()(tune.tune)
app.command("list")(model.list_)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        import unmask as package

        typer.echo(f"unmask {package.__version__}")
        raise typer.Exit


@app.callback()
def unmask(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Anomaly detection for LHC events without a signal model.

    unmask trains on background, scores each event, calibrates p-values and explains the most anomalous events. The
    default detector separates background from altered copies; the published masked-token method is the second one.
    """


def main() -> None:
    """Run the command line; every foreseen error becomes one message and its exit code."""
    from unmask.errors import UnmaskError

    # Threads that spin while they wait steal the cores of those that work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except SystemExit as end:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not end.code:
            # One of several processes that trained together: its work is on disk, and taking apart the connections
            # to the others at the interpreter's end now and then aborts ("terminate called without ...").
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        raise
    except UnmaskError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output is gone (as in `unmask ... | head`): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}", 1)


def _fail(message: str, exit_code: int) -> None:
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {message}", err=True)
    sys.exit(exit_code)
