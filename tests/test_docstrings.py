"""Docstrings render: parameters and attributes appear by their names, with what is said of them, and not as types."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layout import SOURCE

napoleon = pytest.importorskip("sphinx.ext.napoleon")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings() -> Iterator[tuple[Path, Documented, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield file.relative_to(SOURCE), node, text


def fields_of(text: str) -> list[tuple[str, str]]:
    """Kind and name of each field that Sphinx is given: parameters, attributes and their types."""
    config = napoleon.Config(napoleon_use_ivar=True)
    return re.findall(r"^:(param|ivar|type|vartype) ([^:]*):", str(napoleon.NumpyDocstring(text, config)), re.MULTILINE)


def names_of(node: Documented) -> set[str]:
    """Names that a docstring may describe: parameters of a function; attributes and constructor's of a class."""
    names = {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}
    names |= {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
    return names | {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def test_descriptions_do_not_render_as_types() -> None:
    """What stands behind a colon would be taken for the type; types come from the annotations."""
    wrong = [
        f"{file}: {name}"
        for file, _, text in docstrings()
        for kind, name in fields_of(text)
        if kind in ("type", "vartype")
    ]
    assert wrong == []


def test_what_is_described_exists() -> None:
    wrong = [
        f"{file}: {name}"
        for file, node, text in docstrings()
        for kind, names in fields_of(text)
        for name in re.split(r",\s*", names.replace("\\", "").replace("*", ""))
        if kind in ("param", "ivar") and name not in names_of(node)
    ]
    assert wrong == []


def test_docstrings_open_with_what_a_thing_is_or_does() -> None:
    wrong = [f"{file}: {text[:60]}" for file, _, text in docstrings() if re.match(r"(What|How|Why)\b", text)]
    assert wrong == []
