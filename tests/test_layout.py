"""Who may import whom: data flows one way, and light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unmask"
FOUNDATION = {"errors", "artifacts", "tables"}
MAY_IMPORT = {
    "events": FOUNDATION | {"events"},
    "networks": {"errors", "artifacts", "networks"},
    "training": {"errors", "artifacts", "training"},
    "tokenizers": FOUNDATION | {"events", "networks", "training", "tokenizers"},
    "detectors": FOUNDATION | {"events", "networks", "training", "tokenizers", "detectors"},
    "evaluation": FOUNDATION | {"events", "detectors", "evaluation"},
    "workflow": FOUNDATION | {"events", "tokenizers", "detectors", "workflow"},
    "tuning": FOUNDATION
    | {"events", "networks", "training", "tokenizers", "detectors", "evaluation", "studies", "tuning"},
}


def imported_parts(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("unmask.")}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_data_flows_one_way(part: str) -> None:
    files = list((SOURCE / part).rglob("*.py"))
    assert files
    for file in files:
        wrong = imported_parts(file) - MAY_IMPORT[part]
        assert not wrong, f"{file.relative_to(SOURCE)} imports {wrong}"


@pytest.mark.parametrize("part", ["events", "evaluation", "cli"])
def test_light_parts_do_not_import_what_takes_long(part: str) -> None:
    modules = [
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in (SOURCE / part).rglob("*.py")
        if file.stem != "training_bar"
    ]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "scipy.stats"} & set(result.stdout.split())


def test_public_names_can_be_imported() -> None:
    import unmask

    for name in unmask.__all__:
        assert getattr(unmask, name) is not None
    assert set(unmask.__all__) == set(unmask._HOME)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        unmask.Nothing  # noqa: B018
