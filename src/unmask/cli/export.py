"""`unmask export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli import options
from unmask.cli.console import note, show
from unmask.errors import require

_Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a detector, or sample:gluino-model.")]


def export(
    model: _Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="ONNX file to write.")] = Path("model.onnx"),
    calibration: Annotated[
        Path | None, typer.Option(help="Folder of a calibration of this model: adds p-values.")
    ] = None,
    max_objects: Annotated[
        int | None, typer.Option(help="Objects per event with room in the graph [default: as in training].")
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a detector as one ONNX graph, from object arrays to scores, that needs no torch.

    Before it is written, ONNX Runtime and torch must agree on some hundred events, those without objects among them.
    Some of these, with their scores, go to OUT.reference.json. `unmask score model.onnx FILE...` scores with it.
    """
    require("onnxruntime", "onnx")
    require("onnx", "onnx")
    from unmask.export.write import export as write

    differences = write(model, out, calibration=calibration, max_objects=max_objects, overwrite=overwrite)
    for name, difference in differences.items():
        note(f"{name}: ONNX Runtime and torch agree, largest difference {difference:.1e}")
    show(f"{model} -> {out}, {out.stat().st_size / 1e6:.1f} MB")
