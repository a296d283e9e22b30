"""Simulate LHC events: `python -m simulation run stop_t --masses 600,100 --out stop.csv.gz`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from simulation.processes import CARDS, load
    from simulation.samples import SELECTIONS, Job, library, run_jobs
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; in a clone: pip install '.[sim]'")

#: Events per mass point of the library.
LIBRARY_EVENTS = {"dilepton": 200, "same-sign": 120}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--cards", type=Path, default=CARDS, help="TOML file of process cards [default: %(default)s]")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the processes")
    run = commands.add_parser("run", help="simulate one process")
    run.add_argument("process", help="name of a process card")
    run.add_argument("--masses", help="masses in GeV, in the order of the card, such as 600,100")
    run.add_argument("--events", type=int, default=1000, help="selected events [default: %(default)s]")
    run.add_argument("--selection", choices=SELECTIONS, default="dilepton", help="[default: %(default)s]")
    run.add_argument("--detector", default="atlas", help="atlas, cms, or a TOML file [default: %(default)s]")
    run.add_argument("--lhe", type=Path, help="Les Houches file of hard processes, in place of Pythia's own")
    run.add_argument("--seed", type=int, default=1, help="seed of Pythia and of the detector [default: %(default)s]")
    run.add_argument("--out", type=Path, help="file to write [default: NAME__MASSES.csv.gz]")
    every = commands.add_parser("library", help="simulate the library of theories; what is there is kept")
    every.add_argument("out", type=Path, help="folder to write to")
    every.add_argument("--processes", type=int, default=1, help="samples at a time [default: %(default)s]")
    every.add_argument("--only", help="begin of the names of processes")
    arguments = parser.parse_args()
    try:
        failed = {"list": _list, "run": _run, "library": _library}[arguments.command](arguments)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; samples that are not whole were not written")
    sys.exit(1 if failed else 0)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _list(arguments: argparse.Namespace) -> None:
    for name, process in load(arguments.cards).items():
        masses = f" (masses: {', '.join(process.masses)})" if process.masses else ""
        print(f"{name:24} {process.family:28} {process.description}{masses}")


def _run(arguments: argparse.Namespace) -> None:
    processes = load(arguments.cards)
    if arguments.process not in processes:
        raise ValueError(f"unknown process {arguments.process!r}; see: python -m simulation list")
    if arguments.events < 1:
        raise ValueError(f"--events is {arguments.events}; expected 1 or more")
    process = processes[arguments.process]
    if arguments.masses:
        process = process.at(*map(float, arguments.masses.split(",")))
    out = arguments.out or Path(f"{process.label}.csv.gz")
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out {out}: {'is a' if out.is_dir() else 'lies in no'} folder")
    more = (arguments.selection, arguments.events, arguments.seed, out, arguments.detector, arguments.lhe)
    _tell(Job(process, *more).run(_tell))


def _library(arguments: argparse.Namespace) -> list[object]:
    processes = load(arguments.cards)
    chosen = {name: one for name, one in processes.items() if name.startswith(arguments.only or "")}
    jobs = library(chosen, arguments.out, LIBRARY_EVENTS, digits=5)
    return [*run_jobs(jobs, arguments.processes, _tell)]


if __name__ == "__main__":
    main()
