"""Records of a search for HEPData, by hepdata_lib."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from unmask.artifacts import Json
from unmask.errors import require


def write_hepdata(result: Mapping[str, Json], folder: Path) -> None:
    """Write ``submission.yaml`` and a YAML file per table to a folder: regions, the distribution, and limits."""
    require("hepdata_lib", "search")
    folder.mkdir(parents=True)
    (folder / "submission.yaml").write_text("---\ncomment: Written by unmask\n")
    with redirect_stdout(StringIO()), warnings.catch_warnings():  # remarks of hepdata_lib, and of what it imports
        warnings.simplefilter("ignore")
        for table in _tables(result):
            table.write_output(str(folder))


def _tables(result: Mapping[str, Json]) -> list[Any]:
    from hepdata_lib import Table, Uncertainty

    regions, spectrum, limits = result["regions"], result["spectrum"], result["limits"]
    table = Table("Regions")
    table.description = "Events observed and expected in the regions of the background p-value."
    table.add_variable(_variable("Region", [one["name"] for one in regions], is_independent=True))
    table.add_variable(_variable("Observed", [one["observed"] for one in regions]))
    expected = _variable("Expected background", [one["expected"] for one in regions])
    for label, name in (("stat", "statistical_error"), ("sys", "systematic_error")):
        error = Uncertainty(label, is_symmetric=True)
        error.values = [one[name] for one in regions]
        expected.add_uncertainty(error)
    table.add_variable(expected)
    for name in ("p_value", "z"):
        table.add_variable(_variable(name, [one[name] for one in regions]))
    tables = [table]
    if spectrum:
        table = Table("Anomaly score")
        table.description = "Events by anomaly score; the last bin holds all larger scores."
        edges = [*zip(spectrum["edges"], spectrum["edges"][1:], strict=False)]
        table.add_variable(_variable("Anomaly score", edges, is_independent=True, is_binned=True))
        if spectrum["data"] is not None:
            table.add_variable(_variable("Data", spectrum["data"]))
        total = _variable(
            "Expected background", [sum(some) for some in zip(*spectrum["background"].values(), strict=True)]
        )
        error = Uncertainty("simulated statistics", is_symmetric=True)
        error.values = spectrum["background_error"]
        total.add_uncertainty(error)
        table.add_variable(total)
        for name, counts in {**spectrum["background"], **spectrum["signals"]}.items():
            table.add_variable(_variable(name, counts))
        tables.append(table)
    if limits:
        table = Table("Limits")
        table.description = "Upper limits on signal strengths at 95% CL."
        table.add_variable(_variable("Signal", [*limits], is_independent=True))
        table.add_variable(_variable("Observed limit", [one["observed"] for one in limits.values()]))
        for i, name in enumerate(("-2 sigma", "-1 sigma", "median", "+1 sigma", "+2 sigma")):
            table.add_variable(_variable(f"Expected limit, {name}", [one["expected"][i] for one in limits.values()]))
        tables.append(table)
    return tables


def _variable(name: str, values: Sequence[Json], *, is_independent: bool = False, is_binned: bool = False) -> Any:
    from hepdata_lib import Variable

    variable = Variable(name, is_independent=is_independent, is_binned=is_binned)
    variable.digits = 9
    variable.values = ["-" if one is None else one for one in values]
    return variable
