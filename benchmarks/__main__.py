"""Run all benchmarks, or those named: `python -m benchmarks [NAME...]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

PARTS = (
    "csv_reader",
    "lookup_table",
    "vqvae_encoding",
    "masked_token_scoring",
    "training_step",
    "event_network",
    "export",
    "against_reference",
    "evaluation",
    "scale",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PARTS], help=f"which parts: {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}", file=sys.stderr)
    figures = {}
    for name in arguments.names or PARTS:
        print(f"\n== {name}", flush=True)
        figures[name] = import_module(f"benchmarks.{name}").run()
        for key, value in figures[name].items():
            print(f"{key:60s} {value:>14,.4g}" if isinstance(value, float) else f"{key:60s} {value!s:>14}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
