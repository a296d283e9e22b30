"""Cut: a condition on events, as text such as ``n_leptons >= 2 and 50 < met < 200``, which is parsed and never run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unmask.errors import UsageError, nearest
from unmask.events.observables import CUT_OBSERVABLES

if TYPE_CHECKING:
    from unmask.events.event_set import EventSet

#: Columns of every event that a cut may name beside the observables; the first two hold text.
EVENT_COLUMNS = ("process", "file", "label", "weight", "event_id", "row", "met_phi", "n_dropped")
_LOGIC: dict[type[ast.boolop], Callable[[Any, Any], Any]] = {ast.And: np.logical_and, ast.Or: np.logical_or}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
#: Gives the values of a column of some events by its name, which stands at a position of the text.
_Column = Callable[[str, int], npt.NDArray[Any]]
#: Characters of a cut that messages show.
_MAX_SHOWN = 200
_ACCEPTED = "and, or, not, > >= < <= == !=, + - * /, abs(), numbers, names"


class Cut:
    """A condition on observables, momenta in GeV, and on further columns of events, as they are in the file.

    >>> Cut("HLT_IsoMu24 and abs(met_phi) < 2 or Muon_pt[0] > 30").columns
    ('HLT_IsoMu24', 'Muon_pt[0]')

    A column of flags is a condition by itself; one that is unknown in an event (-1 or NaN) is not set.

    Attributes
    ----------
    text
        The condition.
    columns
        Names that are neither observables nor columns of every event: branches or further columns.
    is_of_observables
        Whether all names are observables, so that objects and MET decide.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        source = text.lstrip()
        self._offset = len(text) - len(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of digits that run into a word, by Python's tokenizer
                self._tree = ast.parse(" ".join(source.splitlines()), mode="eval").body
        except SyntaxError as error:
            raise self._error((error.offset or len(source) + 1) - 1, f"not understood; expected {_ACCEPTED}") from None
        except (ValueError, RecursionError, MemoryError):
            raise self._error(0, "nested too deeply, or not text") from None
        is_and = isinstance(self._tree, ast.BoolOp) and isinstance(self._tree.op, ast.And)
        self._terms = self._tree.values if is_and else [self._tree]  # type: ignore[attr-defined]
        self._position: dict[str, int] = {}

        def note(name: str, position: int) -> npt.NDArray[Any]:
            self._position.setdefault(name, position)
            return np.zeros(0, np.str_ if name in EVENT_COLUMNS[:2] else np.float64)

        self._evaluate(note)
        known = (*CUT_OBSERVABLES, *EVENT_COLUMNS)
        self.columns = tuple(name for name in self._position if name not in known)
        self.is_of_observables = all(name in CUT_OBSERVABLES for name in self._position)

    def passes(self, events: EventSet) -> npt.NDArray[np.bool_]:
        """Which events (n_events,) fulfill the condition."""
        return list(self.steps(events))[-1][1]

    def of_observables(self) -> list[Cut]:
        """The terms that ``and`` joins, where objects and MET decide."""
        return [term for term in (Cut(ast.unparse(one)) for one in self._terms) if term.is_of_observables]

    def steps(self, events: EventSet) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Give each term that ``and`` joins, and which events (n_events,) pass it and all before it."""

        def column(name: str, _: int) -> npt.NDArray[Any]:
            if name in CUT_OBSERVABLES:
                return CUT_OBSERVABLES[name].shown(events)
            if name in EVENT_COLUMNS:
                return np.asarray(getattr(events, name))
            if name not in events.further:
                raise self.unknown(name, events.further)
            return events.further[name]

        passed = np.ones(len(events), np.bool_)
        for term, is_kept in self._evaluate(column).items():
            passed = passed & is_kept
            yield term, passed

    def unknown(self, name: str, columns: Iterable[str]) -> UsageError:
        """The error of a name that is none of the ``columns`` either."""
        choices = nearest(name, [*CUT_OBSERVABLES, *EVENT_COLUMNS, *columns])
        return self._error(self._position[name], f"unknown name {name}; {choices}")

    def _evaluate(self, column: _Column) -> dict[str, Any]:
        try:
            with np.errstate(all="ignore"):
                return {ast.unparse(term): self._condition(term, column) for term in self._terms}
        except RecursionError:
            raise self._error(0, "nested too deeply") from None

    def _condition(self, node: ast.expr, column: _Column) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                return reduce(_LOGIC[type(op)], [self._condition(value, column) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return np.logical_not(self._condition(operand, column))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                values = [self._value(one, column) for one in (left, *comparators)]
                if len({np.asarray(value).dtype.kind == "U" for value in values}) > 1:
                    raise self._error(node.col_offset, "compares text with numbers")
                result: Any = True
                for i, sign in enumerate(ops):
                    if type(sign) not in _COMPARE:
                        raise self._refused(node)
                    result = np.logical_and(result, _COMPARE[type(sign)](values[i], values[i + 1]))
                return result
            case ast.Name() | ast.Attribute() | ast.Subscript():
                flag = self._value(node, column)
                if (name := ast.unparse(node)) not in CUT_OBSERVABLES and flag.dtype.kind != "U":
                    return flag > 0
                raise self._error(
                    node.col_offset, f"{name} is not a condition; expected a comparison, such as {name} > 2"
                )
        raise self._refused(node)

    def _value(self, node: ast.expr, column: _Column) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() as value) if isinstance(value, str) or abs(value) < 2**63:
                return value
            case ast.Name() | ast.Attribute() | ast.Subscript(slice=ast.Constant(value=int())):
                return column(ast.unparse(node), node.col_offset)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                return self._number(operand, column) * (-1 if isinstance(sign, ast.USub) else 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](self._number(left, column), self._number(right, column))
            case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
                return np.abs(self._number(argument, column))
        raise self._refused(node)

    def _number(self, node: ast.expr, column: _Column) -> npt.NDArray[np.float64]:
        value = self._value(node, column)
        if np.asarray(value).dtype.kind not in "biuf":
            raise self._refused(node)
        return np.asarray(value, np.float64)

    def _refused(self, node: ast.expr) -> UsageError:
        return self._error(node.col_offset, f"{ast.unparse(node)} cannot stand here; expected {_ACCEPTED}")

    def _error(self, position: int, message: str) -> UsageError:
        shown = self.text if len(self.text) <= _MAX_SHOWN else f"{self.text[:_MAX_SHOWN]}..."
        return UsageError(f"cut {shown!r}, character {self._offset + position + 1}: {message}")
