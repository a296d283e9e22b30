"""Traces torch code on whole events into ONNX nodes, so that the formulas of networks have one place.

A :class:`Traced` stands for a tensor: torch functions that get one emit ONNX nodes, and are computed for empty events
too, for shapes and types. Functions of constants alone are only computed. The batch is ``BATCH`` in shapes; in the
graph it is dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from torch import Tensor

from unmask.errors import UsageError

#: Stands for the number of events in shapes: a prime of which no width of a network is a multiple.
BATCH = 127
_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.int64: TensorProto.INT64,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
}


#: Functions in terms of others, and those that are nodes: of a graph, the result for empty events, and the arguments.
#: :mod:`unmask.export.operators` fills both.
COMPOSED: dict[str, Callable[..., Any]] = {}
NODES: dict[str, Callable[..., Any]] = {}


class Graph:
    """Nodes and constants of a graph while it is built; equal nodes are emitted once."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: dict[tuple[Any, ...], TensorProto] = {}
        self.inputs: list[ValueInfoProto] = []
        self._known: dict[Any, list[str]] = {}
        self._n_names = 0

    def input(self, name: str, dtype: torch.dtype, *shape: int, text: str) -> Traced:
        """Add an input (batch, ...)."""
        value = Traced(self, torch.zeros(BATCH, *shape, dtype=dtype), name)
        self.inputs.append(self.info(value, text=text))
        return value

    def flag(self, name: str, text: str) -> None:
        """Add an input that is false if it is left out."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.BOOL, [], text))
        self.initializers[name,] = numpy_helper.from_array(np.array(False), name)

    def info(self, value: Traced, name: str | None = None, *, text: str = "") -> ValueInfoProto:
        """Type and shape of a value, on request by another name."""
        shape = ["batch" if is_batch(size) else size for size in value.shape]
        return helper.make_tensor_value_info(name or value.name, _TYPES[value.dtype], shape, text)

    def emit(self, op: str, *inputs: str, n: int = 1, **attributes: Any) -> Any:
        """Emit a node and return the name of its output, or a list of names if there are ``n``."""
        key = op, inputs, n, str(attributes)
        if key not in self._known:
            self._known[key] = [f"{op.lower()}_{self._n_names + i}" for i in range(n)]
            self._n_names += n
            names = self._known[key]
            self.nodes.append(helper.make_node(op, list(inputs), names, names[0], **attributes))
        return self._known[key] if n > 1 else self._known[key][0]

    def name(self, value: Any, dtype: torch.dtype) -> Any:
        """Name of a value as an input of this type; of a constant that is equal for all events, one is kept."""
        if isinstance(value, Traced):
            return value.name if value.dtype == dtype else self.emit("Cast", value.name, to=_TYPES[dtype])
        tensor = torch.as_tensor(value).detach().to(dtype)
        if tensor.ndim and is_batch(len(tensor)) and bool((tensor == tensor[:1]).all()):
            tensor = tensor[:1]
        array = tensor.contiguous().numpy()
        key = array.dtype.char, array.shape, array.tobytes()
        if key not in self.initializers:
            self.initializers[key] = numpy_helper.from_array(array, f"constant_{len(self.initializers)}")
        return self.initializers[key].name

    def integers(self, *values: int) -> Any:
        """Name of a list of integers; multiples of the batch are computed."""
        if not any(map(is_batch, values)):
            return self.name(values, torch.int64)
        batch = self.emit("Shape", self.inputs[0].name, end=1)
        parts = [
            self.integers(size)
            if not is_batch(size)
            else batch
            if size == BATCH
            else self.emit("Mul", batch, self.integers(size // BATCH))
            for size in values
        ]
        return self.emit("Concat", *parts, axis=0)

    @contextmanager
    def branch(self) -> Iterator[list[NodeProto]]:
        """Emit into a list of nodes of its own, of a branch."""
        nodes, known = self.nodes, self._known
        self.nodes, self._known = [], dict(known)
        try:
            yield self.nodes
        finally:
            self.nodes, self._known = nodes, known


class _Device(str):
    """Constants beside a traced value are on the CPU; for anything else it is no CPU, whose shortcuts are not taken."""

    type = "onnx"


class Traced:
    """A value of a graph, in place of a tensor."""

    def __init__(self, graph: Graph, example: Tensor, name: str) -> None:
        self.graph, self.example, self.name = graph, example, name
        self.shape, self.dtype, self.ndim, self.device = example.shape, example.dtype, example.ndim, _Device("cpu")

    def __len__(self) -> int:
        return len(self.example)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(name)
        return lambda *args, **options: _emitted(getattr(Tensor, name), (self, *args), options)

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, args: Any = (), options: Any = None) -> Any:
        return _emitted(function, args, options or {})


def _method(name: str) -> Callable[..., Any]:
    return lambda *args: _emitted(getattr(Tensor, name), args, {})


_OPERATORS = "add sub mul truediv mod pow matmul radd rsub rmul rtruediv neg eq ne lt gt le ge and or invert getitem"
for _name in (*(f"__{one}__" for one in _OPERATORS.split()), "logaddexp", "hypot"):
    setattr(Traced, _name, _method(_name))


def is_batch(size: int) -> bool:
    return size > 0 and size % BATCH == 0


def _emitted(function: Any, args: Any, options: dict[str, Any]) -> Any:
    """Emit what a torch function does."""
    name = function.__name__.strip("_")
    if name in COMPOSED:
        return COMPOSED[name](*args, **options)
    if name not in NODES:
        raise UsageError(f"this detector cannot be exported: its network needs {name}, which has no ONNX form here")
    graph = next(value.graph for value in _flat(args) if isinstance(value, Traced))
    out = function(*examples(args), **options)
    names = NODES[name](graph, out, *args, **options)
    if isinstance(out, Tensor):
        return names if isinstance(names, Tensor) else Traced(graph, out, names)
    return tuple(Traced(graph, example, each) for example, each in zip(out, names, strict=True))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, list | tuple) else [value]


def examples(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return type(values)(examples(value) for value in values)
    return values.example if isinstance(values, Traced) else values
