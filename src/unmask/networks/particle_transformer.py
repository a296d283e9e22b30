"""The Particle Transformer (arXiv:2202.03772): attention between objects with a bias from every pair of them.

A pair has angular distance, relative momentum, mass, and the coupling of the Standard Model between its objects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.kinematics import wrap_phi
from unmask.networks.transformer import softmax_over_few

#: ln dR, ln kT, ln z, ln m^2; and with couplings ln alpha.
N_PAIR_KINEMATICS = 4
# Closer than a cell of a calorimeter two objects are at one place; it also keeps logarithms and gradients finite.
_MIN_DELTA_R_SQUARED = 1e-4
_MAX_DELTA_ETA = 20.0
_LN_GEV_IN_MEV = math.log(1e3)

Z_MASS_GEV = 91.19
ALPHA_STRONG_AT_Z = 0.118
ALPHA_ELECTROMAGNETIC_AT_Z = 1 / 127.95
ALPHA_WEAK_AT_Z = ALPHA_ELECTROMAGNETIC_AT_Z / 0.2312  # sin^2 of the weak mixing angle
N_FLAVORS = 5
#: Sum of colors times squared charges of the fermions that are lighter than the Z.
_CHARGES_SQUARED = 20 / 3
# The one-loop strong coupling grows without limit below; such pairs are one jet anyway.
_MIN_SCALE_GEV = 2.0
_MAX_SCALE_GEV = 14e3
#: Stands for no coupling: far below the weakest, the electromagnetic one.
NO_COUPLING = 1e-3


SizeName = Literal["tiny", "small", "light", "published"]


class Coupling(IntEnum):
    """Interaction of two objects at a vertex of the Standard Model."""

    NONE = 0
    STRONG = 1
    ELECTROMAGNETIC = 2
    WEAK = 3


#: alpha at the Z mass and its slope b at one loop: 1 / alpha(Q^2) = 1 / alpha + b ln(Q^2 / mZ^2).
_RUNNING = {
    Coupling.STRONG: (ALPHA_STRONG_AT_Z, (33 - 2 * N_FLAVORS) / (12 * math.pi)),
    Coupling.ELECTROMAGNETIC: (ALPHA_ELECTROMAGNETIC_AT_Z, -_CHARGES_SQUARED / (3 * math.pi)),
    Coupling.WEAK: (ALPHA_WEAK_AT_Z, 19 / 6 / (4 * math.pi)),
}


def running_coupling(coupling: Coupling, scale_gev: Tensor) -> Tensor:
    """Running coupling alpha at one loop, at a scale Q between 2 GeV and 14 TeV.

    >>> running_coupling(Coupling.STRONG, torch.tensor([10.0, Z_MASS_GEV, 1000.0])).double().round(decimals=3).tolist()
    [0.173, 0.118, 0.088]
    """
    alpha, slope = _RUNNING[coupling]
    return alpha / (1 + alpha * slope * 2 * (scale_gev.clamp(_MIN_SCALE_GEV, _MAX_SCALE_GEV) / Z_MASS_GEV).log())


def log_couplings(log_mass_squared: Tensor, coupling: Tensor) -> Tensor:
    """ln alpha (batch, n_pairs) of the :class:`Coupling` of each pair at the scale of its mass; ln 0.001 for none."""
    scale_gev = (log_mass_squared.clamp(max=2 * math.log(_MAX_SCALE_GEV)) / 2).exp()
    alpha = torch.full_like(scale_gev, NO_COUPLING)
    for each in _RUNNING:
        alpha = torch.where(coupling == each, running_coupling(each, scale_gev), alpha)
    return alpha.log()


def pair_index(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions i < j of the pairs of ``n`` objects, (n_pairs,) each."""
    one, other = torch.triu_indices(n, n, 1, device=device).unbind()
    return one, other


def pair_kinematics(log_pt_mev: Tensor, eta: Tensor, phi: Tensor) -> Tensor:
    """ln dR, ln(kT / GeV), ln z and ln(m^2 / GeV^2) of all pairs, (batch, n_pairs, 4), of objects (batch, n).

    kT is the smaller pT times dR, z the smaller pT over the sum, and m the mass of the pair with both objects massless,
    which single precision gives without cancellation: m^2 = 4 pT pT' (sinh^2(deta / 2) + sin^2(dphi / 2)).
    The first position is the MET, which has no direction along the beam: its pairs are measured in the transverse
    plane, so that dR is the difference in phi and m the transverse mass. Distances below 0.01 count as 0.01.

    >>> back_to_back = torch.tensor([[0.0, 0.0, math.pi]])  # the MET, and two objects of 50 GeV
    >>> pairs = pair_kinematics(torch.full((1, 3), math.log(50e3)), torch.zeros(1, 3), back_to_back)
    >>> (pairs[0, 2] / torch.tensor([1, 1, 1, 2])).exp().double().round(decimals=2).tolist()  # dR, kT, z, m
    [3.14, 157.08, 0.5, 100.0]
    """
    i, j = pair_index(eta.shape[1], eta.device)
    delta_eta = (eta[:, i] - eta[:, j]).clamp(-_MAX_DELTA_ETA, _MAX_DELTA_ETA) * (i > 0)
    delta_phi = wrap_phi(phi[:, i] - phi[:, j])
    log_pt = log_pt_mev - _LN_GEV_IN_MEV
    one, other = log_pt[:, i], log_pt[:, j]
    # The clamp stands before the logarithm (and there is no square root), so that gradients at 0 are 0.
    log_delta_r = (delta_eta.square() + delta_phi.square()).clamp_min(_MIN_DELTA_R_SQUARED).log() / 2
    opening = (delta_eta / 2).sinh().square() + (delta_phi / 2).sin().square()
    log_mass_squared = math.log(4) + one + other + opening.clamp_min(_MIN_DELTA_R_SQUARED / 4).log()
    log_z = -F.softplus((one - other).abs())
    return torch.stack([log_delta_r, torch.minimum(one, other) + log_delta_r, log_z, log_mass_squared], -1)


@dataclass(frozen=True)
class Size:
    """Widths and depths; the plain transformer has as many layers as the others have of both kinds."""

    hidden: int
    n_heads: int
    ffn_width: int
    n_layers: int
    n_class_layers: int
    embedding: tuple[int, ...]
    pair_embedding: tuple[int, ...]
    mlp: tuple[int, ...]


SIZES: dict[SizeName, Size] = {
    "tiny": Size(16, 2, 32, 1, 1, (), (8,), (32, 32)),
    "small": Size(24, 2, 48, 1, 1, (), (8,), (64, 64)),
    "light": Size(64, 4, 128, 4, 2, (64, 128), (32, 32), (256, 256, 256)),
    "published": Size(128, 8, 512, 8, 2, (128, 512), (64, 64, 64), (512, 512, 512)),
}


class AttentionBlock(nn.Module):
    """Attention and feed-forward network, each normalized before and within, and added to the rows.

    The same block serves the objects, which attend to each other, and the class token, which attends to all.
    """

    def __init__(self, hidden: int, n_heads: int, ffn_width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm = nn.LayerNorm(hidden)
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * hidden)
        self.attention_out = nn.Linear(hidden, hidden)
        self.norm_of_attended = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, ffn_width),
            nn.GELU(),
            nn.LayerNorm(ffn_width),
            nn.Dropout(dropout),
            nn.Linear(ffn_width, hidden),
            nn.Dropout(dropout),
        )

    def forward(self, rows: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        """Let ``rows`` (batch, n, hidden) attend to ``seen`` (batch, m, hidden).

        ``bias`` is added to the attention logits; its shape broadcasts to (batch, heads, n, m).
        """
        normed = self.norm(rows)
        query = self._heads(self.query(normed))
        key_value = self.key_value(normed if seen is rows else self.norm(seen))
        key, value = (self._heads(part) for part in key_value.chunk(2, -1))
        if rows.device.type == "cpu":  # several times as fast as the fused kernel where objects are few
            logits = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1])) + bias
            attended = softmax_over_few(logits) @ value
        else:
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        attended = self.attention_out(attended.transpose(1, 2).reshape(rows.shape))
        rows = rows + self.dropout(self.norm_of_attended(attended))
        out: Tensor = rows + self.feed_forward(rows)
        return out

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], self.n_heads, -1).transpose(1, 2)  # (batch, heads, n, hidden / heads)


class ParticleTransformer(nn.Module):
    """One row (batch, hidden) for a set of objects, whatever their order.

    Parameters
    ----------
    n_features, n_pair_features
        Inputs of an object and of a pair; without pair features nothing biases attention.
    size
        Widths and depths; ``embedding`` and ``pair_embedding`` are widths between features and hidden rows or heads.
    dropout
        In the layers between objects; there is none in the class layers.
    biases
        False for a network without learned constants: the class token starts from the sum of the objects' rows, and the
        embedding is not normalized, so that the rows are not bounded. The caller removes the biases of the layers.
    """

    def __init__(self, n_features: int, n_pair_features: int, size: Size, *, dropout: float, biases: bool) -> None:
        super().__init__()
        widths = (size.hidden, size.n_heads, size.ffn_width)
        self.embedding = _embedding((n_features, *size.embedding, size.hidden), norms=biases)
        self.pair_embedding = (
            _embedding((n_pair_features, *size.pair_embedding, size.n_heads), norms=False) if n_pair_features else None
        )
        self.layers = nn.ModuleList(AttentionBlock(*widths, dropout) for _ in range(size.n_layers))
        self.class_layers = nn.ModuleList(AttentionBlock(*widths, 0.0) for _ in range(size.n_class_layers))
        self.class_token = nn.Parameter(0.02 * torch.randn(size.hidden)) if biases else None

    def forward(self, features: Tensor, is_real: Tensor, pairs: Tensor | None = None) -> Tensor:
        """Summarize objects: ``features`` (batch, n, n_features), ``pairs`` (batch, n_pairs, n_pair_features).

        Only those that are real (batch, n) count; every event needs one.
        """
        rows = self.embedding(features)
        unseen = torch.zeros_like(is_real, dtype=rows.dtype).masked_fill(~is_real, -torch.inf)[:, None, None]
        bias = unseen
        if self.pair_embedding is not None and pairs is not None:
            n = features.shape[1]
            one, other = pair_index(n, features.device)
            embedded = self.pair_embedding(pairs).transpose(1, 2)  # (batch, heads, n_pairs)
            square = embedded.new_zeros(*embedded.shape[:2], n * n).index_copy(2, one * n + other, embedded)
            square = square.view(*embedded.shape[:2], n, n)
            bias = square + square.transpose(2, 3) + unseen  # (batch, heads, n, n)
        for layer in self.layers:
            rows = layer(rows, rows, bias)
        if self.class_token is None:
            token: Tensor = (rows * is_real[..., None]).sum(1, keepdim=True)
        else:
            token = self.class_token.expand(rows.shape[0], 1, -1).to(rows.dtype)
        unseen = F.pad(unseen, (1, 0))  # the token sees itself
        for layer in self.class_layers:
            token = layer(token, torch.cat([token, rows], 1), unseen)
        return token[:, 0]


def _embedding(widths: Sequence[int], *, norms: bool) -> nn.Sequential:
    """Linear layers with GELUs between them, on request normalized before each but the first."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        if layers:
            layers.append(nn.GELU())
            if norms:
                layers.append(nn.LayerNorm(n_in))
        layers.append(nn.Linear(n_in, n_out))
    return nn.Sequential(*layers)
