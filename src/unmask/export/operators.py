"""Torch functions as ONNX nodes; a function that is missing here is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UsageError
from unmask.export.tracing import COMPOSED, NODES, Graph, Traced, examples, is_batch

COMPOSED |= {
    "radd": lambda x, y: x + y,
    "rmul": lambda x, y: x * y,
    "rsub": lambda x, y: -x + y,
    **dict.fromkeys(("rtruediv", "rdiv"), lambda x, y: x.pow(-1) * y),
    "ne": lambda x, y: ~(x == y),
    "square": lambda x: x * x,
    "rsqrt": lambda x: x.sqrt().pow(-1),
    "hypot": lambda x, y: (x * x + y * y).sqrt(),
    "mod": lambda x, by: x - (x / by).floor() * by,
    "logaddexp": lambda x, y: torch.maximum(x, y) + F.softplus(-(x - y).abs()),
    "gelu": lambda x, **_: ((x / math.sqrt(2)).erf() + 1) * x * 0.5,
    "masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    "linear": lambda x, weight, bias=None: x @ weight.t() if bias is None else x @ weight.t() + bias,
    "embedding": lambda tokens, weight, *_, **__: weight[tokens],
    "stack": lambda parts, dim=0: torch.cat([one.unsqueeze(dim) for one in parts], dim),
    "unbind": lambda x, dim=0: tuple(x.select(dim, i) for i in range(x.shape[dim])),
    "repeat_interleave": lambda x, n, _dim: x.unsqueeze(1).expand(-1, n, *x.shape[1:]).flatten(0, 1),
}


def _composed(function: Callable[..., Any]) -> Callable[..., Any]:
    COMPOSED[function.__name__.strip("_")] = function
    return function


@_composed
def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    x = x if min is None else x.clamp_min(min)
    return x if max is None else x.clamp_max(max)


@_composed
def _scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, **_: Any) -> Any:
    logits = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-1, -2)
    return (logits if attn_mask is None else logits + attn_mask).softmax(-1) @ value


@_composed
def _atan2(y: Any, x: Any) -> Any:
    """Twice the arc tangent of y / (r + x), or of (r - x) / y where x is negative; 0 at the origin."""
    size, is_right = torch.hypot(x, y), x >= 0
    below = torch.where(is_right, (size + x).clamp_min(1e-30), y)
    return (torch.where(is_right, y, size - x) / below).atan() * 2


@_composed
def _index_copy(x: Tensor, dim: int, index: Tensor, source: Any) -> Any:
    if x.any():
        raise UsageError("only a copy into zeros can be exported")
    place = torch.full((x.shape[dim],), source.shape[dim])
    place[index] = torch.arange(source.shape[dim])
    return F.pad(source, (0, 1)).index_select(dim, place)


@_composed
def _getitem(x: Any, index: Any) -> Any:
    parts = list(index) if isinstance(index, tuple) else [index]
    if not isinstance(x, Traced):  # a table of constants
        place = parts[0]
        for part, size in zip(parts[1:], x.shape[1:], strict=False):
            place = place * size + part
        table = x.flatten(0, len(parts) - 1)
        name = place.graph.emit("Gather", place.graph.name(table, table.dtype), place.graph.name(place, torch.int64))
        return Traced(place.graph, table[place.example.long()], name)
    if any(part is Ellipsis for part in parts):
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (x.ndim - sum(part is not None for part in parts) + 1)
    axis = 0
    for part in parts:
        if isinstance(part, int):
            x = x.select(axis, part)
            continue
        if part is None:
            x = x.unsqueeze(axis)
        elif isinstance(part, Tensor):
            x = x.index_select(axis, part)
        elif (ends := part.indices(x.shape[axis])) != (0, x.shape[axis], 1):
            x = x.narrow(axis, ends[0], ends[1] - ends[0])
        axis += 1
    return x


def _elementwise(op: str) -> Callable[..., Any]:
    def node(graph: Graph, out: Tensor, *values: Any, **_: Any) -> Any:
        dtype = out.dtype
        if dtype == torch.bool and len(values) == 2:  # a comparison, in the type of both
            dtype = torch.result_type(*examples(values))
        return graph.emit(op, *(graph.name(value, dtype) for value in values))

    return node


def _reduced(op: str) -> Callable[..., Any]:
    def node(graph: Graph, out: Tensor, x: Traced, dim: Any, keepdim: bool = False) -> Any:
        dims, name = [dim] if isinstance(dim, int) else list(dim), graph.name(x, out.dtype)
        if op == "ReduceSum":  # alone of opset 17 takes them as an input
            return graph.emit(op, name, graph.integers(*dims), keepdims=int(keepdim))
        return graph.emit(op, name, axes=dims, keepdims=int(keepdim))

    return node


def _reshape(graph: Graph, out: Tensor, x: Traced, *_: Any, **__: Any) -> Any:
    shape = [-1 if is_batch(size) else size for size in out.shape]
    return x.name if out.shape == x.shape else graph.emit("Reshape", x.name, graph.integers(*shape))


def _expand(graph: Graph, out: Tensor, x: Traced, *_: Any) -> Any:
    before = [1] * (out.ndim - x.ndim) + list(x.shape)
    shape = [1 if size == old else size for size, old in zip(out.shape, before, strict=True)]
    return x.name if before == list(out.shape) else graph.emit("Expand", x.name, graph.integers(*shape))


def _transpose(name: str) -> Callable[..., Any]:
    def node(graph: Graph, _out: Tensor, x: Traced, *args: Any) -> Any:
        sizes = getattr(torch.empty(*range(1, x.ndim + 1)), name)(*args).shape
        return graph.emit("Transpose", x.name, perm=[size - 1 for size in sizes])

    return node


def _cat(graph: Graph, out: Tensor, parts: Sequence[Any], dim: int = 0) -> Any:
    names = [graph.name(part, out.dtype) for part in parts]
    for i, part in enumerate(parts):
        if isinstance(part, Tensor) and is_batch(part.shape[0]):
            names[i] = graph.emit("Expand", names[i], graph.integers(out.shape[0], *[1] * (out.ndim - 1)))
    return graph.emit("Concat", *names, axis=dim % out.ndim)


def _split(graph: Graph, out: Sequence[Tensor], x: Traced, _size: Any, dim: int = 0) -> Any:
    sizes = graph.integers(*(part.shape[dim] for part in out))
    return graph.emit("Split", x.name, sizes, n=len(out), axis=dim % x.ndim)


def _at(op: str) -> Callable[..., Any]:
    def node(graph: Graph, _out: Tensor, x: Traced, axis: int, i: Any) -> Any:
        return graph.emit(op, x.name, graph.name(i, torch.int64), axis=axis % x.ndim)

    return node


def _slice(graph: Graph, _out: Tensor, x: Traced, axis: int, start: int, length: int) -> Any:
    return graph.emit("Slice", x.name, *map(graph.integers, (start, start + length, axis)))


def _pad(graph: Graph, out: Tensor, x: Traced, around: Sequence[int], *_: Any, **__: Any) -> Any:
    empty = [0] * (x.ndim - 1)
    ends = graph.integers(*empty, around[0], *empty, around[1])
    return graph.emit("Pad", x.name, ends, graph.name(0, out.dtype))


def _layer_norm(graph: Graph, _out: Tensor, x: Traced, _shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    inputs = [graph.name(one, x.dtype) for one in (weight, bias) if one is not None]
    return graph.emit("LayerNormalization", x.name, *inputs, axis=-1, epsilon=eps)


def _convolution(graph: Graph, _out: Tensor, x: Traced, weight: Tensor, bias: Tensor, *rest: Any) -> Any:
    half, names = weight.shape[-1] // 2, [graph.name(one, x.dtype) for one in (weight, bias)]
    return graph.emit("Conv", x.name, *names, pads=[half, half], group=rest[-1])


_BY_ONNX_NAME = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "truediv div", "Pow": "pow", "Neg": "neg", "Exp": "exp",
    "Log": "log", "Abs": "abs", "Sin": "sin", "Cos": "cos", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Tanh": "tanh", "Sqrt": "sqrt", "Floor": "floor", "Sign": "sign", "Atan": "atan", "Erf": "erf", "Equal": "eq",
    "Less": "lt", "Greater": "gt", "LessOrEqual": "le", "GreaterOrEqual": "ge", "And": "and", "Or": "or",
    "Not": "invert", "Max": "maximum clamp_min", "Min": "minimum clamp_max", "Relu": "relu", "Softplus": "softplus",
}  # fmt: skip
NODES |= {
    **{name: _elementwise(op) for op, names in _BY_ONNX_NAME.items() for name in names.split()},
    **dict.fromkeys(("to", "float", "double", "long"), lambda graph, out, x, *_, **__: graph.name(x, out.dtype)),
    **dict.fromkeys(("new_zeros", "zeros_like", "full_like"), lambda _graph, out, *_, **__: out),
    **dict.fromkeys(("reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze"), _reshape),
    "expand": _expand,
    **{name: _transpose(name) for name in ("transpose", "permute")},
    **dict.fromkeys(("chunk", "split"), _split),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _reduced("ReduceL2")),
    "sum": _reduced("ReduceSum"),
    "mean": _reduced("ReduceMean"),
    "amax": _reduced("ReduceMax"),
    "dropout": lambda _graph, _out, x, *_, **__: x.name,
    "where": lambda graph, out, is_first, *values: graph.emit(
        "Where", graph.name(is_first, torch.bool), *(graph.name(value, out.dtype) for value in values)
    ),
    "cat": _cat,
    "narrow": _slice,
    "pad": _pad,
    "select": _at("Gather"),
    "index_select": _at("Gather"),
    "gather": _at("GatherElements"),
    # Equal ones keep their order.
    "argsort": lambda graph, _out, x, dim=-1, **_: graph.emit(
        "TopK", x.name, graph.integers(x.shape[dim]), n=2, axis=dim % x.ndim, largest=0
    )[1],
    "matmul": lambda graph, out, *values: graph.emit("MatMul", *(graph.name(value, out.dtype) for value in values)),
    "softmax": lambda graph, _out, x, dim, **_: graph.emit("Softmax", x.name, axis=dim % x.ndim),
    "log_softmax": lambda graph, _out, x, dim, **_: graph.emit("LogSoftmax", x.name, axis=dim % x.ndim),
    "layer_norm": _layer_norm,
    "conv1d": _convolution,
}
