"""A masked-token transformer for ordered tokens: each is hidden, or known to be at least so large."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UsageError
from unmask.networks.transformer import TransformerLayer

#: Bounds on a quantity of which background seldom has any count at most this many times more than their share.
_MAX_GAIN = 4.0


class LowerBoundTransformer(nn.Module):
    """Predicts the bins of all quantities of an event from lower bounds on some of them.

    A bound of 0 says nothing: the token is masked. A bound b says "in bin b or above". What is known of a quantity
    narrows its own prediction too: bins below its bound have no probability.

    Parameters
    ----------
    n_bins : number of bins of each quantity.
    hidden, n_layers, n_heads, ffn_expansion, dropout : as in the masked-token transformer.

    >>> network = LowerBoundTransformer([3, 5])
    >>> (network(torch.tensor([[0, 2]])).exp() > 0).int().tolist()
    [[[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]]
    """

    is_bin: Tensor
    place: Tensor
    bins: Tensor

    def __init__(
        self,
        n_bins: Sequence[int],
        *,
        hidden: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn_expansion: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if hidden % n_heads:
            raise UsageError(f"hidden size {hidden} cannot be shared equally by {n_heads} heads")
        n, most = len(n_bins), max(n_bins)
        # A bound adds up the steps to it, so that neighbouring bounds are alike even where few events reach them.
        self.steps = nn.Parameter(torch.randn(n, most, hidden) * 0.1)
        self.layers = nn.ModuleList(
            TransformerLayer(hidden, n_heads, ffn_expansion * hidden, dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Parameter(torch.randn(n, hidden, most) * hidden**-0.5)
        self.out_bias = nn.Parameter(torch.zeros(n, most))
        self.register_buffer("is_bin", torch.arange(most) < torch.tensor(list(n_bins))[:, None], persistent=False)
        self.register_buffer("place", torch.arange(n), persistent=False)
        self.register_buffer("bins", torch.arange(most), persistent=False)

    def forward(self, bounds: Tensor) -> Tensor:
        """Log-probabilities (batch, quantities, bins) for bounds (batch, quantities)."""
        rows = self.steps.cumsum(1)[self.place, bounds]  # (batch, quantities, hidden)
        for layer in self.layers:
            rows = layer(rows)
        logits = torch.einsum("bqh,qhk->bqk", self.norm(rows), self.out) + self.out_bias
        is_possible = self.is_bin & (self.bins >= bounds[..., None])
        return F.log_softmax(logits.masked_fill(~is_possible, -torch.inf), dim=-1)

    def draw_bounds(self, bins: Tensor, usual_bin: Tensor) -> tuple[Tensor, Tensor]:
        """Draw what is known of events in ``bins`` (batch, quantities), and how much each event counts then (batch,).

        Which quantities are bounded is drawn first, whatever the event, then a bound that holds. The weights make up
        for the bounds that would not have held: of the events that show "at least b" those further above b had more
        bounds to choose from. With them the network learns from each bound what all events above it look like.

        ``usual_bin`` (quantities,), the mean bin, only keeps the weights of different choices alike.
        """
        is_bounded = torch.rand(bins.shape, device=bins.device) < torch.rand(len(bins), 1, device=bins.device)
        bounds = 1 + (torch.rand(bins.shape, device=bins.device) * bins).long()
        least = (self.is_bin.sum(1) - 1) / _MAX_GAIN
        weight = torch.where(is_bounded, bins / torch.maximum(usual_bin, least).clamp(min=1e-3), 1.0).prod(1)
        return torch.where(is_bounded, torch.minimum(bounds, bins), 0), weight

    def loss(self, bins: Tensor, bounds: Tensor, weight: Tensor) -> Tensor:
        """Mean cross-entropy of the true bins (batch, quantities) given the bounds, of weighted events (batch,)."""
        log_probability: Tensor = self(bounds)
        cross_entropy = -log_probability.gather(-1, bins[..., None])[..., 0].mean(1)
        return (cross_entropy * weight).sum() / weight.sum().clamp(min=1e-6)


def log_tail(log_probability: Tensor, bins: Tensor, log_share: Tensor) -> Tensor:
    """Logarithm of P(this or more), (batch,), from log-probabilities (batch, bins) of one quantity.

    ``log_share`` is that of the part of the event's own bin which lies at or above it.
    """
    place = torch.arange(log_probability.shape[1], device=bins.device)
    above = log_probability.masked_fill(place <= bins[:, None], -torch.inf).logsumexp(1)
    own = log_probability.gather(1, bins[:, None])[:, 0] + log_share
    return torch.logaddexp(above, own)


def _once_each(network: LowerBoundTransformer, bounds: Tensor) -> Tensor:
    """What the network says of bounds (batch, quantities), asked only once for those that many events share."""
    n_bins = network.is_bin.sum(1)
    place_value = torch.cat([torch.ones_like(n_bins[:1]), n_bins[:-1].cumprod(0)])
    _, which = torch.unique((bounds * place_value).sum(1), return_inverse=True)
    last = torch.zeros(int(which.max()) + 1, dtype=torch.long, device=bounds.device)
    last[which] = torch.arange(len(bounds), device=bounds.device)
    log_probability: Tensor = network(bounds[last])
    return log_probability[which]


@torch.inference_mode()
def subset_log_tails(network: LowerBoundTransformer, bins: Tensor, log_share: Tensor) -> Tensor:
    """Logarithm of the probability that a background event has as much, or more, of a subset of the quantities.

    The probability of one quantity, times that of the next given a bound on the first, and so on: the same in any
    order, were the network perfect; the mean over the last factors is taken.

    Returns (batch, 2^quantities): quantity i belongs to a subset where bit i of its number is set.
    """
    n = bins.shape[1]
    total = torch.zeros(len(bins), 1 << n, device=bins.device)
    if not len(bins):
        return total
    for known in range((1 << n) - 1):
        is_known = torch.tensor([bool(known >> i & 1) for i in range(n)], device=bins.device)
        log_probability = _once_each(network, bins * is_known)
        if known:
            total[:, known] /= known.bit_count()
        for i in range(n):
            if not known >> i & 1:
                factor = log_tail(log_probability[:, i], bins[:, i], log_share[:, i])
                total[:, known | 1 << i] += total[:, known] + factor
    total[:, -1] /= n
    return total
