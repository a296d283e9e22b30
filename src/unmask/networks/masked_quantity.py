"""A masked-token transformer for ordered tokens: each is hidden, or known."""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.networks.quantity_transformer import QuantityTransformer, log_of_subsets


class MaskedQuantityTransformer(QuantityTransformer):
    """Predicts the bins of the masked quantities of an event from those of the others.

    A token of 0 says nothing: the quantity is masked. A token t says "in bin t - 1".

    >>> network = MaskedQuantityTransformer([3, 5])
    >>> (network(torch.tensor([[0, 2]])).exp() > 0).int().tolist()
    [[[1, 1, 1, 0, 0], [0, 1, 0, 0, 0]]]
    """

    _n_more_tokens = 1

    def _is_possible(self, tokens: Tensor) -> Tensor:
        known = tokens[..., None]
        return (known == 0) | (self.bins == known - 1)

    def draw_tokens(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        """Draw what is known of events in ``bins`` (batch, quantities); each event counts the same (batch,).

        Any number of quantities is hidden, h of them with a probability that falls as 1/h. As all that are hidden
        count in the loss, every step of a chain from nothing known to everything known counts the same then: the
        loss is, up to a factor, minus the logarithm of the probability of the event in a random order.
        """
        n = bins.shape[1]
        falling = 1 / torch.arange(1, n + 1, device=bins.device)
        n_hidden = 1 + torch.multinomial(falling, len(bins), replacement=True)
        rank = torch.rand(bins.shape, device=bins.device).argsort(1).argsort(1)
        tokens = torch.where(rank < n_hidden[:, None], 0, bins + 1)
        return tokens, torch.ones(len(bins), device=bins.device)


def subset_log_probabilities(network: MaskedQuantityTransformer, bins: Tensor) -> Tensor:
    """Logarithm of the probability that a background event has just these bins of a subset of the quantities.

    (batch, 2^quantities), see :func:`~unmask.networks.quantity_transformer.log_of_subsets`.
    """
    return log_of_subsets(
        network, bins + 1, lambda log_probability, i: log_probability.gather(1, bins[:, i, None])[:, 0]
    )
