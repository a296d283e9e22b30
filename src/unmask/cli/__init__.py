"""The `unmask` command: parse, call the library, print. Heavy modules are imported inside the commands."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from unmask.cli import calibrate, data, evaluate, explain, export, model, monitor, search, study, tokenizer, tune
from unmask.cli.console import IS_ALONE, IS_FIRST_PROCESS, note, printable
from unmask.errors import Interrupted, UnmaskError

app = typer.Typer(
    name="unmask",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Options of a command: `unmask COMMAND --help`. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 bad data, "
    "128 + N stopped by signal N.",
)
app.add_typer(data.app, name="data")
app.add_typer(tokenizer.app, name="tokenizer")
app.command()(model.train)
app.command()(model.score)
app.command()(monitor.monitor)
app.command()(calibrate.combine)
app.command()(evaluate.evaluate)
app.command()(calibrate.calibrate)
app.command()(calibrate.flag)
app.command()(search.search)
app.command()(evaluate.report)
app.command()(explain.explain)
app.command()(export.export)
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
    # Threads that spin while they wait steal the cores of those that work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["MPLBACKEND"] = "agg"  # figures go to files
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _stopping_on_signals(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: note(f"warning: {message}")
            app()
    except SystemExit as end:
        if not IS_ALONE and not end.code:
            # One of several processes that trained together: its work is on disk, and taking apart the connections
            # to the others at the interpreter's end now and then aborts ("terminate called without ...").
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        raise
    except UnmaskError as error:
        _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        _fail("torch is not installed, and this command needs it; run: pip install 'unmask[train]'", 2)
    except BrokenPipeError:
        # The reader of our output is gone (as in `unmask ... | head`): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Interrupted as stop:
        _fail(f"stopped by {stop}", 128 + stop.number)
    except OSError as error:
        _fail(f"{error.filename or 'file system'}: {error.strerror or error}", 1)
    except UnicodeEncodeError as error:
        _fail(f"{error.object!r}: a name that is not UTF-8 text; rename it", 3)
    except (MemoryError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, RecursionError) or text.startswith("Symlink loop"):
            _fail(f"{text}: a file that is nested too deeply, or a loop of links", 3)
        if isinstance(error, RuntimeError) and not re.search("alloc|out of memory|Storage size|Overflow", text):
            raise
        advice = "make the network, training.batch_size or --chunk-events smaller"
        _fail(f"not enough memory ({text or 'allocation failed'}); {advice}", 1)


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """End the program cleanly on Ctrl-C and on what batch systems send; a second signal ends it at once."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if IS_FIRST_PROCESS:  # not through a buffer, at which the signal may have come
            os.write(2, f"\n{signal.Signals(number).name}: stopping; send it again to stop at once\n".encode())
        raise Interrupted(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fail(message: str, exit_code: int) -> None:
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {printable(message)}", err=True)
    sys.exit(exit_code)
