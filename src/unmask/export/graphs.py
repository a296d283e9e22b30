"""Detectors as torch code that :mod:`unmask.export.tracing` turns into a graph: from object arrays to scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unmask.artifacts import Json
from unmask.detectors import Detector
from unmask.detectors.contrast import ContrastDetector
from unmask.detectors.copies import in_order
from unmask.detectors.event_detector import EventDetector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.detectors.momenta import boost_transverse, transverse
from unmask.detectors.observable_tail import IN_TAIL
from unmask.errors import UsageError
from unmask.events.objects import IS_B_JET, MET_TYPE
from unmask.export.token_graphs import MaskedTokenGraph
from unmask.networks.event_network import LOG_PT, FlatNetwork
from unmask.networks.event_tensors import MET_FLOOR_MEV
from unmask.scores.p_values import BackgroundTail, Survival

Values = Any  # a torch tensor, or what stands for one
#: Observables (n, 1) of MET in MeV (n,), types (n, objects) and pT in MeV (n, objects) that is 0 at padding.
_OBSERVABLES: dict[str, Callable[[Values, Values, Values], Values]] = {
    "n_objects": lambda _met, types, _pt: (types != 0).double().sum(-1, keepdim=True),
    "met": lambda met, _types, _pt: met.double()[:, None],
    "n_b_jets": lambda _met, types, _pt: torch.tensor(IS_B_JET)[types].double().sum(-1, keepdim=True),
    "sum_pt": lambda _met, _types, pt: pt.double().sum(-1, keepdim=True),
}


def event_tensors(
    tag: Values, energy: Values, pt: Values, eta: Values, phi: Values, met: Values, met_phi: Values
) -> Any:
    """Kinematics and types of events as of :func:`unmask.networks.event_tensors.event_tensors`, from object arrays."""
    tag = tag.long()
    is_object = (tag != 0)[..., None]
    objects = torch.where(is_object, torch.stack([energy, pt, eta, phi], -1), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    floored = met.clamp_min(MET_FLOOR_MEV)
    event = torch.stack([floored, floored, torch.zeros_like(met), met_phi], -1)[:, None]
    columns: Values = torch.cat([event, objects], 1)
    met_type = torch.full((met.shape[0], 1), MET_TYPE)
    return torch.cat([columns[..., :2].log(), columns[..., 2:]], -1), torch.cat([met_type, tag], 1)


class NetworkGraph:
    """The score of a network on whole events."""

    def __init__(self, detector: EventDetector) -> None:
        self.detector, self.network = detector, detector.network_.cpu().eval()

    def __call__(self, *arrays: Values) -> dict[str, Values]:
        kinematics, types = event_tensors(*arrays)
        return {"score": self.outputs(kinematics, types).double()}

    def words(self) -> dict[str, Json]:
        """Numbers that explanations need beside the outputs of the graph."""
        return {}

    def explain(self, outputs: dict[str, Values], *arrays: Values) -> dict[str, Values]:  # noqa: ARG002
        """Further outputs that explain the score; none."""
        return {}

    def outputs(self, kinematics: Values, types: Values) -> Values:
        """(n_events,): what the detector makes of the outputs of its network."""
        return self.detector.score_tensors(self.network, kinematics, types)


class ContrastGraph(NetworkGraph):
    """The default: network and tail term of observables, and the drop in score without each object."""

    def __init__(self, detector: ContrastDetector) -> None:
        super().__init__(detector)
        observables = detector.observables_
        self.names = list(observables.of_observable)
        if unknown := [name for name in self.names if name not in _OBSERVABLES]:
            raise UsageError(f"observable {unknown[0]} cannot be exported; choose from {', '.join(_OBSERVABLES)}")
        tails = [detector.logits_, *observables.of_observable.values()]
        self.first, self.beyond = PiecewiseLinear(tails), [tail.beyond for tail in tails]
        self.second = PiecewiseLinear(list(observables.of_rule.values()))
        self.weights = detector.network_weight_, detector.tail_weight

    def __call__(self, *arrays: Values) -> dict[str, Values]:
        tag, _, pt, _, _, met, _ = arrays
        kinematics, types = event_tensors(*arrays)
        score, minus_log_p = self.score(kinematics, types, met, torch.where(tag != 0, pt, 0.0))
        return {"score": score, "minus_log_p": minus_log_p}

    def words(self) -> dict[str, Json]:
        """Names of the observables, and -ln p of the network and of each of them beyond which nothing was measured."""
        return {"observables": self.names, "beyond": self.beyond}

    def explain(self, outputs: dict[str, Values], *arrays: Values) -> dict[str, Values]:
        """Contributions (n_events, objects): the drop in score without each object, 0 at padding."""
        kinematics, types = event_tensors(*arrays)
        _, n, width = kinematics.shape
        removed = transverse(kinematics[:, 1:]).flatten(0, 1)
        types = types[:, None] * (1 - torch.eye(n, dtype=torch.int64)[1:])
        copies = kinematics[:, None].expand(-1, n - 1, -1, -1).flatten(0, 1)
        types = types.flatten(0, 1)
        kinematics = boost_transverse(copies, types, removed)
        if isinstance(self.network, FlatNetwork):  # which alone knows an order
            kinematics, types = in_order(kinematics[:, :1], kinematics[:, 1:], types[:, 1:], n - 1)
            types = types.long()
        momenta = kinematics[..., LOG_PT].exp()
        floored = torch.cat([torch.maximum(kinematics[:, :1], _floor(width)), kinematics[:, 1:]], 1)
        without, _ = self.score(floored, types, momenta[:, 0], torch.where(types[:, 1:] != 0, momenta[:, 1:], 0.0))
        drop = outputs["score"][:, None] - without.unflatten(0, (-1, n - 1))
        return {"contribution": torch.where(arrays[0] != 0, drop, 0.0)}

    def score(self, kinematics: Values, types: Values, met: Values, pt: Values) -> tuple[Values, Values]:
        """Scores (n_events,), and -ln p (n_events, 1 + observables) of the network and of each observable."""
        observables = [_OBSERVABLES[name](met, types[:, 1:], pt) for name in self.names]
        minus_log_p = self.first(torch.cat([self.outputs(kinematics, types).double()[:, None], *observables], -1))
        of_all = minus_log_p[:, 1:]
        in_tail = of_all[:, torch.tensor([self.names.index(name) for name in IN_TAIL])]
        combined = in_tail.amax(-1, keepdim=True), in_tail.sum(-1, keepdim=True), of_all.sum(-1, keepdim=True)
        rules = self.second(torch.cat(combined, -1))
        weight, of_tail = self.weights
        in_tail, all_together = rules[:, :2].amax(-1) * (weight * of_tail), rules[:, 2] * (2 * (1 - weight) * of_tail)
        return minus_log_p[:, 0] * weight + in_tail + all_together, minus_log_p


def _floor(width: int) -> Values:
    """Lower limits of the kinematics of a MET: its floor, and nothing for its angles."""
    return torch.tensor([math.log(MET_FLOOR_MEV)] * 2 + [-math.inf] * (width - 2))


class Steps:
    """Finds between which of some rising numbers values are: by comparison with every k-th, then with k of them."""

    def __init__(self, tables: Sequence[Values]) -> None:
        n = max(map(len, tables))
        self.k = max(2, math.isqrt(n) + 1)  # with room behind the last number
        self.table = torch.full((len(tables), self.k**2), math.inf, dtype=torch.float64)
        for row, values in zip(self.table, tables, strict=True):
            row[: len(values)] = torch.as_tensor(values)

    def below(self, values: Values, *, or_equal: bool = True) -> Values:
        """Count the numbers of each table below values (n_events, n_tables), and give the place behind them."""
        n_tables, first = len(self.table), torch.arange(len(self.table)) * self.k
        blocks = self.table.view(n_tables, self.k, self.k)
        values = values[..., None]

        def counted(numbers: Values) -> Values:
            return (values >= numbers if or_equal else values > numbers).sum(-1)

        block = counted(blocks[:, 1:, 0]) + first
        return counted(blocks.flatten(0, 1)[block]) + block * self.k


class PiecewiseLinear:
    """-ln p of several background tails at once: ``BackgroundTail.minus_log_p_of``."""

    def __init__(self, tails: Sequence[BackgroundTail]) -> None:
        self.steps = Steps([tail.value for tail in tails])
        self.intercept, self.slope = (torch.zeros_like(self.steps.table) for _ in range(2))
        for i, tail in enumerate(tails):
            value, height = (torch.as_tensor(one, dtype=torch.float64) for one in (tail.value, tail.minus_log_p))
            slope = torch.cat([height.diff() / value.diff(), torch.tensor([1 / tail.scale], dtype=torch.float64)])
            self.slope[i, 1 : len(value) + 1] = slope
            self.intercept[i, 1 : len(value) + 1] = height - slope * value

    def __call__(self, values: Values) -> Values:
        """(n_events, n_tails)."""
        place = self.steps.below(values)
        return self.intercept.flatten()[place] + self.slope.flatten()[place] * values


class PValue:
    """P-value of a score: ``Survival.p_values``."""

    def __init__(self, survival: Survival) -> None:
        self.steps = Steps([survival.score])
        self.p = torch.as_tensor(survival.p_value.copy())

    def __call__(self, score: Values) -> Values:
        return self.p[self.steps.below(score[:, None], or_equal=False)[:, 0]]


def graph_of(detector: Detector) -> NetworkGraph | MaskedTokenGraph:
    """The torch code of a detector; raises UsageError for a kind without one."""
    if isinstance(detector, ContrastDetector):
        return ContrastGraph(detector)
    if isinstance(detector, EventDetector):
        return NetworkGraph(detector)
    if isinstance(detector, MaskedTokenDetector):
        return MaskedTokenGraph(detector)
    raise UsageError(f"a detector of kind {detector.kind} cannot be exported")
