"""Settings from TOML: flat tables, checked against the constructors that they are for, all mistakes listed together."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from unmask.errors import BadDataError, UsageError, nearest

#: Tables within the settings of a detector.
GROUPS = ("training", "tokenizer")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadDataError("no such file", path=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadDataError(f"is not TOML: {error}", path=path) from None


def checked_arguments(constructor: type[object], table: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Check a table against the signature of a constructor and return its arguments.

    The types and defaults of the signature are the only statement of what a setting may be. A table within the table
    changes single fields of a default that is a dataclass.

    Raises
    ------
    UsageError
        With all mistakes: unknown keys with the nearest valid one, and values of the wrong type.
    """
    arguments, mistakes = _check(constructor, table)
    if mistakes:
        raise UsageError(f"{where}: " + "; ".join(mistakes))
    return arguments


def _check(constructor: type[object], table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    from pydantic import ConfigDict, ValidationError, create_model

    hints = get_type_hints(constructor.__init__)
    parameters = inspect.signature(constructor).parameters
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in parameters:
            mistakes.append(f"{name}: unknown setting; {nearest(name, parameters)}")
            continue
        default = parameters[name].default
        if is_dataclass(default) and not isinstance(default, type) and isinstance(value, Mapping):
            inner, inner_mistakes = _check(type(default), value)
            mistakes += [f"{name}.{mistake}" for mistake in inner_mistakes]
            values[name] = default if inner_mistakes else replace(default, **inner)
        else:
            values[name] = value
    fields: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in parameters.items()
    }
    model = create_model("Settings", __config__=ConfigDict(arbitrary_types_allowed=True), **fields)
    try:
        checked = model.model_validate(values)
    except ValidationError as error:
        for item in error.errors():
            name = ".".join(str(part) for part in item["loc"])
            mistakes.append(f"{name}: {item['msg']} (got {item['input']!r})")
        return {}, mistakes
    return {name: getattr(checked, name) for name in checked.model_fields_set}, mistakes
