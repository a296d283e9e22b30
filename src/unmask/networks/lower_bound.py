"""A masked-token transformer for ordered tokens: each is hidden, or known to be at least so large."""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.networks.quantity_transformer import QuantityTransformer, log_of_subsets

#: Bounds on a quantity of which background seldom has any count at most this many times more than their share.
_MAX_GAIN = 4.0


class LowerBoundTransformer(QuantityTransformer):
    """Predicts the bins of all quantities of an event from lower bounds on some of them.

    A bound of 0 says nothing: the token is masked. A bound b says "in bin b or above".

    >>> network = LowerBoundTransformer([3, 5])
    >>> (network(torch.tensor([[0, 2]])).exp() > 0).int().tolist()
    [[[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]]
    """

    def _is_possible(self, tokens: Tensor) -> Tensor:
        return self.bins >= tokens[..., None]

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


def log_tail(log_probability: Tensor, bins: Tensor, log_share: Tensor) -> Tensor:
    """Logarithm of P(this or more), (batch,), from log-probabilities (batch, bins) of one quantity.

    ``log_share`` is that of the part of the event's own bin which lies at or above it.
    """
    place = torch.arange(log_probability.shape[1], device=bins.device)
    above = log_probability.masked_fill(place <= bins[:, None], -torch.inf).logsumexp(1)
    own = log_probability.gather(1, bins[:, None])[:, 0] + log_share
    return torch.logaddexp(above, own)


def subset_log_tails(network: LowerBoundTransformer, bins: Tensor, log_share: Tensor) -> Tensor:
    """Logarithm of the probability that a background event has as much, or more, of a subset of the quantities.

    (batch, 2^quantities), see :func:`~unmask.networks.quantity_transformer.log_of_subsets`.
    """
    return log_of_subsets(
        network, bins, lambda log_probability, i: log_tail(log_probability, bins[:, i], log_share[:, i])
    )
