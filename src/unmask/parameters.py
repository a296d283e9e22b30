"""Types and limits of parameters, stated in the annotations of constructors, and the check against them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from unmask.errors import nearest


class Limit(NamedTuple):
    """A condition on a number, in its annotation."""

    holds: Callable[[float], bool]
    words: str


def at_least(low: float) -> Limit:
    """Make a lower limit."""
    return Limit(lambda number: number >= low, f"{low} or more")


def between(low: int, high: int) -> Limit:
    """Make two limits."""
    return Limit(lambda number: low <= number <= high, f"from {low} to {high:,}")


Count = Annotated[int, at_least(1)]
#: Sizes of networks that a computer can hold, and numbers of layers that do not take minutes to build.
Width = Annotated[int, between(1, 1 << 20)]
Depth = Annotated[int, between(1, 1000)]
NotNegative = Annotated[float, at_least(0)]
Positive = Annotated[float, Limit(lambda number: number > 0, "more than 0")]
Fraction = Annotated[float, between(0, 1)]
Dropout = Annotated[float, Limit(lambda number: 0 <= number < 1, "from 0 to below 1")]

#: Types of settings in words.
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Mapping: "a table",
    NoneType: "nothing",
}


def arguments_of(constructor: type[Any], table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Arguments of a constructor from a table of settings, and all mistakes in it.

    The annotations and defaults of the constructor are the only statement of what a setting may be. A table within the
    table changes single fields of a default that is a dataclass.
    """
    parameters = inspect.signature(constructor).parameters
    arguments: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in table.items():
        if name not in parameters:
            mistakes.append(f"{name}: unknown setting; {nearest(name, parameters)}")
            continue
        default = parameters[name].default
        if is_dataclass(default) and not isinstance(default, type) and isinstance(value, Mapping):
            inner, inner_mistakes = arguments_of(type(default), value)
            mistakes += [f"{name}.{mistake}" for mistake in inner_mistakes]
            value = default if inner_mistakes else replace(default, **inner)
        arguments[name] = value
    return arguments, mistakes + mistakes_in(constructor, arguments)


def mistakes_in(constructor: type[Any], arguments: Mapping[str, Any]) -> list[str]:
    """Say which arguments do not fit the annotations of a constructor."""
    hints = get_type_hints(constructor if is_dataclass(constructor) else constructor.__init__, include_extras=True)
    mistakes = []
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        fits, words = _fit(value, hint)
        if not fits:
            is_choice = get_origin(hint) is Literal
            accepted = nearest(str(value), get_args(hint)) if is_choice else f"expected {words}"
            mistakes.append(f"{name} is {value!r}; {accepted}")
    return mistakes


def _fit(value: Any, hint: Any) -> tuple[bool, str]:
    """Whether a value is of a type, and the type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner, ", ".join(inner)
    if origin in (Union, UnionType):
        each = [_fit(value, one) for one in inner]
        return any(fits for fits, _ in each), " or ".join(words for _, words in each)
    if origin is Annotated:
        is_of_type, words = _fit(value, inner[0])
        crossed = [limit.words for limit in inner[1:] if is_of_type and not limit.holds(value)]
        return is_of_type and not crossed, ", ".join(crossed) or words
    if origin in (Sequence, tuple):
        is_list = isinstance(value, list | tuple)
        return is_list and all(_fit(one, inner[0])[0] for one in value), f"some of {_fit(None, inner[0])[1]}"
    if hint in (int, float):
        is_number = not isinstance(value, bool) and isinstance(value, Integral if hint is int else Real)
        return is_number and -math.inf < value < math.inf, _WORDS[hint]
    of_class = origin or hint
    return hint is Any or isinstance(value, of_class), _WORDS.get(of_class) or f"a {of_class.__name__}"
