"""Who may import whom: data flows one way, light rooms stay light, and no module grows beyond a few screens."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unmask"
#: A module imports from its own room and from rooms to its left.
ORDER = """errors kinematics outputs artifacts tables parameters events model_card fitted io scores evaluation
           searches report networks training tokenizers detectors export workflow study tuning cli""".split()  # noqa: SIM905
#: Rooms that load without torch.
LIGHT = [*ORDER[: ORDER.index("networks")], "cli"]
MAX_LINES = 350
#: Attributes of others that begin with an underscore: of the standard library.
PRIVATE = {"_exit"}


def modules() -> Iterator[tuple[str, Path, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room not in ("__init__", "__main__"):
            yield room, file.relative_to(SOURCE), ast.parse(file.read_text())


def test_every_module_is_in_a_room_of_the_plan() -> None:
    assert {room for room, _, _ in modules()} <= set(ORDER)


def test_imports_point_to_the_left() -> None:
    wrong = [
        (str(file), node.module)
        for room, file, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unmask.")
        if ORDER.index(str(node.module).split(".")[1]) > ORDER.index(room)
    ]
    assert not wrong


def test_nothing_private_is_used_by_others() -> None:
    wrong = []
    for _, file, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unmask"):
                wrong += [(str(file), alias.name) for alias in node.names if alias.name.startswith("_")]
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                is_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
                if not (is_own or is_super or node.attr in PRIVATE):
                    wrong.append((str(file), node.attr))
    assert not wrong


def test_modules_are_short() -> None:
    lines = {str(file): len((SOURCE / file).read_text().splitlines()) for _, file, _ in modules()}
    assert {file: n for file, n in lines.items() if n > MAX_LINES} == {}


def test_light_rooms_do_not_import_what_takes_long() -> None:
    names = [
        ".".join(("unmask", *file.with_suffix("").parts)).removesuffix(".__init__")
        for room, file, _ in modules()
        if room in LIGHT
    ]
    code = f"import sys, importlib\nfor m in {names!r}: importlib.import_module(m)\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "scipy.stats"} & set(result.stdout.split())


def test_public_names_can_be_imported() -> None:
    import unmask

    for name in unmask.__all__:
        assert getattr(unmask, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        unmask.Nothing  # noqa: B018
