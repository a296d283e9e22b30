"""Networks that read whole events, by name and size, with the same input for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.events.objects import MET_TYPE
from unmask.events.schema import EventSchema
from unmask.kinematics import wrap_phi
from unmask.networks.event_tensors import couplings_of_types
from unmask.networks.particle_transformer import (
    N_PAIR_KINEMATICS,
    SIZES,
    ParticleTransformer,
    Size,
    SizeName,
    log_couplings,
    pair_index,
    pair_kinematics,
)
from unmask.networks.transformer import TransformerLayer

BackboneName = Literal["part-noint", "part-pairs", "part-sm", "transformer", "mlp"]

#: log E, log pT, eta, phi of a position.
N_KINEMATICS = 4
LOG_ENERGY, LOG_PT, ETA, PHI = range(N_KINEMATICS)
# Pair features are scaled to unit width on this many events at most.
_EVENTS_FOR_PAIR_SCALE = 4096
#: On a CPU so many events go through a network at a time, without the padding that all of them have.
_EVENTS_OF_A_LENGTH = 512


class EventNetwork(nn.Module, ABC):
    """From events to ``n_out`` numbers each; :func:`make_event_network` makes one.

    An event is a row of positions, the MET first and then the objects: kinematics (batch, n, 4), log(E / MeV),
    log(pT / MeV), eta and phi, and types (batch, n), 0 for padding, tags for objects and ``MET_TYPE`` for the MET.
    :meth:`standardize` turns them into *inputs* of about unit width, on the scale that :meth:`measure` stores. The
    content of padding never matters.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, width: int, n_out: int, biases: bool, scale: tuple[int, ...]) -> None:
        super().__init__()
        self.body = body
        # A norm would bound the output, and what is far from everything could not be told from the rest.
        self.norm = nn.LayerNorm(width) if biases else nn.Identity()
        self.head = nn.Linear(width, n_out)
        self.register_buffer("mean", torch.zeros(scale))
        self.register_buffer("std", torch.ones(scale))
        if not biases:
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.LayerNorm):
                    module.register_parameter("bias", None)

    @abstractmethod
    def measure(self, kinematics: Tensor, types: Tensor) -> None:
        """Measure the scale of the inputs on training events."""

    @abstractmethod
    def standardize(self, kinematics: Tensor, types: Tensor) -> Tensor:
        """Inputs (batch, ...) of events."""

    @abstractmethod
    def is_free(self, types: Tensor) -> Tensor:
        """Which of the inputs are numbers that can be changed, neither types nor padding."""

    @abstractmethod
    def of_inputs(self, inputs: Tensor, types: Tensor) -> Tensor:
        """Outputs (batch, n_out) of inputs, which need not be those of any event."""

    def forward(self, kinematics: Tensor, types: Tensor) -> Tensor:
        """Outputs (batch, n_out) of events."""
        return self.of_inputs(self.standardize(kinematics, types), types)


class SetNetwork(EventNetwork):
    """A network that knows no order of the objects, and no direction about the beam but that of the MET.

    The inputs are (batch, n, 4 + n_types): the kinematics, then the type as one-hot.
    """

    is_used: Tensor
    pair_mean: Tensor
    pair_std: Tensor
    couplings: Tensor
    type_numbers: Tensor

    def __init__(
        self, backbone: BackboneName, size: Size, n_out: int, schema: EventSchema, dropout: float, biases: bool
    ) -> None:
        n_positions, n_types = 1 + schema.max_objects, len(schema.types) + 1
        n_pair_features = {"part-pairs": N_PAIR_KINEMATICS, "part-sm": N_PAIR_KINEMATICS + 1}.get(backbone, 0)
        n_features = N_KINEMATICS + 1 + n_types  # phi as cosine and sine
        body: nn.Module
        if backbone == "transformer":
            body = _PlainTransformer(n_features, size, dropout, biases)
        else:
            body = ParticleTransformer(n_features, n_pair_features, size, dropout=dropout, biases=biases)
        super().__init__(body, size.hidden, n_out, biases, (n_positions, N_KINEMATICS))
        self.n_pair_features = n_pair_features
        self.has_couplings = backbone == "part-sm"
        self.register_buffer("couplings", couplings_of_types(), persistent=False)
        tags = torch.tensor([one.tag for one in schema.types])
        self.register_buffer("type_numbers", torch.cat([tags, torch.tensor([MET_TYPE])]), persistent=False)
        # The MET has no energy of its own beside its magnitude, and no eta.
        is_used = torch.ones(n_positions, N_KINEMATICS, dtype=torch.bool)
        is_used[0, LOG_ENERGY] = is_used[0, ETA] = False
        self.register_buffer("is_used", is_used, persistent=False)
        self.register_buffer("pair_mean", torch.zeros(n_pair_features))
        self.register_buffer("pair_std", torch.ones(n_pair_features))

    @torch.no_grad()
    def measure(self, kinematics: Tensor, types: Tensor) -> None:
        for i, values in ((slice(0, 1), kinematics[:, 0]), (slice(1, None), kinematics[:, 1:][types[:, 1:] != 0])):
            self.mean[i], self.std[i] = _mean_and_std(values)
        if self.n_pair_features:
            # From all parts of the file, which may be sorted by process.
            step = -(-len(types) // _EVENTS_FOR_PAIR_SCALE)
            kinematics, types = kinematics[::step], types[::step]
            one, other = pair_index(types.shape[1], types.device)
            pairs = self.pair_features(kinematics, types)[(types[:, one] != 0) & (types[:, other] != 0)]
            self.pair_mean[:], self.pair_std[:] = _mean_and_std(pairs)

    def standardize(self, kinematics: Tensor, types: Tensor) -> Tensor:
        n = types.shape[1]
        scaled = (kinematics - self.mean[:n]) / self.std[:n] * self.is_used[:n]
        one_hot = (types[..., None] == self.type_numbers).to(scaled.dtype)
        return torch.cat([scaled, one_hot], -1).masked_fill((types == 0)[..., None], 0)

    def is_free(self, types: Tensor) -> Tensor:
        free = (types != 0)[..., None] & self.is_used
        return torch.cat([free, free.new_zeros(*types.shape, len(self.type_numbers))], -1)

    def of_inputs(self, inputs: Tensor, types: Tensor) -> Tensor:
        if types.device.type != "cpu":
            return self.of_padded_inputs(inputs, types)
        # On a CPU padding costs as much as objects: events of about the same length go together.
        n_used = ((types != 0) * torch.arange(1, types.shape[1] + 1)).amax(1).clamp_min(1)
        order = n_used.argsort(stable=True)
        parts = [
            self.of_padded_inputs(inputs[some, : n_used[some[-1]]], types[some, : n_used[some[-1]]])
            for some in torch.split(order, _EVENTS_OF_A_LENGTH)
        ]
        return torch.cat(parts)[order.argsort()]

    def of_padded_inputs(self, inputs: Tensor, types: Tensor) -> Tensor:
        """The same for all events at once, with their padding."""
        is_real = types != 0
        n = types.shape[1]
        kinematics = inputs[..., :N_KINEMATICS] * self.std[:n] + self.mean[:n]
        kinematics = kinematics.masked_fill(~is_real[..., None], 0)
        phi = kinematics[..., PHI] - kinematics[:, :1, PHI]  # from the direction of the MET
        angles = torch.stack([phi.cos(), phi.sin()], -1)
        features = torch.cat([inputs[..., :PHI], angles, inputs[..., N_KINEMATICS:]], -1)
        features = features.masked_fill(~is_real[..., None], 0)
        pairs: tuple[Tensor, ...] = ()
        if self.n_pair_features:  # those of padding do not matter
            pairs = ((self.pair_features(kinematics, types) - self.pair_mean) / self.pair_std,)
        out: Tensor = self.head(self.norm(self.body(features, is_real, *pairs)))
        return out

    def pair_features(self, kinematics: Tensor, types: Tensor) -> Tensor:
        """Features (batch, n_pairs, n_pair_features) of all pairs."""
        features = pair_kinematics(kinematics[..., LOG_PT], kinematics[..., ETA], kinematics[..., PHI])
        if not self.has_couplings:
            return features
        i, j = pair_index(types.shape[1], types.device)
        coupling = self.couplings[types[:, i].long(), types[:, j].long()]
        return torch.cat([features, log_couplings(features[..., -1], coupling)[..., None]], -1)


class FlatNetwork(EventNetwork):
    """A multilayer perceptron on the event as one row of columns, in the given order of the objects.

    The inputs are (batch, 2 + 5 (n - 1)): MET and its phi, then type, E, pT, eta and phi (from that of MET) of each
    object, 0 at padding; every column is standardized on its own, with padding counted, so that an object where there
    are seldom any lies far out.
    """

    def __init__(self, size: Size, n_out: int, schema: EventSchema, dropout: float, biases: bool) -> None:
        n_columns = 2 + (N_KINEMATICS + 1) * schema.max_objects
        layers: list[nn.Module] = []
        for n_in, n_hidden in pairwise((n_columns, *size.mlp)):
            layers += [nn.Linear(n_in, n_hidden), nn.GELU(), nn.Dropout(dropout)]
        super().__init__(nn.Sequential(*layers), size.mlp[-1], n_out, biases, (n_columns,))

    @torch.no_grad()
    def measure(self, kinematics: Tensor, types: Tensor) -> None:
        self.mean[:], self.std[:] = _mean_and_std(_columns(kinematics, types))

    def standardize(self, kinematics: Tensor, types: Tensor) -> Tensor:
        return (_columns(kinematics, types) - self.mean) / self.std

    def is_free(self, types: Tensor) -> Tensor:
        return torch.ones(len(types), len(self.mean), dtype=torch.bool, device=types.device)

    def of_inputs(self, inputs: Tensor, types: Tensor) -> Tensor:  # noqa: ARG002 (the inputs hold the types)
        out: Tensor = self.head(self.norm(self.body(inputs)))
        return out


def make_event_network(
    backbone: BackboneName,
    size: SizeName,
    n_out: int,
    schema: EventSchema = EventSchema(),
    *,
    dropout: float = 0.0,
    biases: bool = True,
) -> EventNetwork:
    """Make a network for whole events.

    >>> network = make_event_network("part-sm", "tiny", n_out=1, schema=EventSchema(max_objects=2))
    >>> network(torch.zeros(5, 3, 4), torch.tensor([[MET_TYPE, 1, 0]]).expand(5, 3)).shape
    torch.Size([5, 1])

    Parameters
    ----------
    backbone
        "part-noint" (Particle Transformer without pair features), "part-pairs" (with ln dR, ln kT, ln z and ln m^2),
        "part-sm" (and with the coupling between the two), "transformer" (plain, with a mean over positions) or "mlp"
        (on the event as one row of columns).
    size
        "published"; "light", of about 0.2 million parameters; "small", of about 10,000; "tiny", of about 5,000.
    n_out
        Outputs per event.
    schema
        Known object types, and maximum number of objects per event.
    biases
        False for a network without learned constants (no biases of layers and norms, no class token), whose output is
        not bounded and grows with the number of objects, which a mean over them would hide.
    """
    if backbone == "mlp":
        return FlatNetwork(SIZES[size], n_out, schema, dropout, biases)
    return SetNetwork(backbone, SIZES[size], n_out, schema, dropout, biases)


class _PlainTransformer(nn.Module):
    """Linear, pre-norm layers, mean over the positions that are real; without biases their sum."""

    def __init__(self, n_features: int, size: Size, dropout: float, biases: bool) -> None:
        super().__init__()
        self.is_mean = biases
        self.into = nn.Linear(n_features, size.hidden)
        self.layers = nn.ModuleList(
            TransformerLayer(size.hidden, size.n_heads, size.ffn_width, dropout)
            for _ in range(size.n_layers + size.n_class_layers)
        )

    def forward(self, features: Tensor, is_real: Tensor) -> Tensor:
        rows = self.into(features)
        unseen = torch.zeros_like(is_real, dtype=rows.dtype).masked_fill(~is_real, -torch.inf)[:, None, None]
        for layer in self.layers:
            rows = layer(rows, key_bias=unseen)
        total: Tensor = (rows * is_real[..., None]).sum(1)
        return total / is_real.sum(1, keepdim=True).clamp_min(1) if self.is_mean else total


def _columns(kinematics: Tensor, types: Tensor) -> Tensor:
    """The columns of flat events: momenta in GeV."""
    met, objects = kinematics[:, 0], kinematics[:, 1:]
    phi = wrap_phi(objects[..., PHI] - met[:, None, PHI])
    momenta = objects[..., : LOG_PT + 1].exp() / 1e3
    columns = torch.cat([types[:, 1:, None].to(phi.dtype), momenta, objects[..., ETA, None], phi[..., None]], -1)
    columns = columns.masked_fill((types[:, 1:] == 0)[..., None], 0)
    return torch.cat([met[:, LOG_PT, None].exp() / 1e3, met[:, PHI, None], columns.flatten(1)], 1)


def _mean_and_std(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of columns, 1 for a constant one."""
    std, mean = torch.std_mean(values.double(), 0, correction=0)
    return mean.float(), torch.where(std > 1e-6, std, torch.ones_like(std)).float()
