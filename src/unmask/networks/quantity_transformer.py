"""A small transformer on the quantities of an event, one ordered token each; what its kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.networks.transformer import TransformerLayer, check_sizes


class QuantityTransformer(nn.Module, ABC):
    """Predicts the bins of all quantities of an event from what is known of some of them.

    A token of 0 says nothing: the quantity is masked. What other tokens say is a subclass's own. It narrows the
    prediction of the quantity itself too: bins that are known to be wrong have no probability.

    Parameters
    ----------
    n_bins : number of bins of each quantity.
    hidden, n_layers, n_heads, ffn_expansion, dropout : as in the masked-token transformer.
    """

    #: Tokens that a quantity has beyond one for each bin.
    _n_more_tokens: ClassVar[int] = 0

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
        check_sizes(hidden, n_layers, n_heads, ffn_expansion, dropout)
        n, most = len(n_bins), max(n_bins)
        # A token adds up the steps to it, so that neighbouring ones are alike even where few events reach them.
        self.steps = nn.Parameter(torch.randn(n, most + self._n_more_tokens, hidden) * 0.1)
        self.layers = nn.ModuleList(
            TransformerLayer(hidden, n_heads, ffn_expansion * hidden, dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Parameter(torch.randn(n, hidden, most) * hidden**-0.5)
        self.out_bias = nn.Parameter(torch.zeros(n, most))
        self.register_buffer("is_bin", torch.arange(most) < torch.tensor(list(n_bins))[:, None], persistent=False)
        self.register_buffer("place", torch.arange(n), persistent=False)
        self.register_buffer("bins", torch.arange(most), persistent=False)

    @abstractmethod
    def _is_possible(self, tokens: Tensor) -> Tensor:
        """Which bins a quantity may have by its own token, (batch, quantities, bins)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Log-probabilities (batch, quantities, bins) for tokens (batch, quantities)."""
        table = self.steps.cumsum(1)
        # Not by indexing: its gradient adds up in whatever order threads come by, so no run would be like another.
        rows = F.embedding(tokens + self.place * table.shape[1], table.flatten(0, 1))  # (batch, quantities, hidden)
        for layer in self.layers:
            rows = layer(rows)
        logits = torch.einsum("bqh,qhk->bqk", self.norm(rows), self.out) + self.out_bias
        return F.log_softmax(logits.masked_fill(~(self.is_bin & self._is_possible(tokens)), -torch.inf), dim=-1)

    def loss(self, bins: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
        """Mean cross-entropy of the true bins (batch, quantities) given the tokens, of weighted events (batch,)."""
        log_probability: Tensor = self(tokens)
        cross_entropy = -log_probability.gather(-1, bins[..., None])[..., 0].mean(1)
        return (cross_entropy * weight).sum() / weight.sum().clamp(min=1e-6)


def _once_each(network: QuantityTransformer, tokens: Tensor) -> Tensor:
    """What the network says of tokens (batch, quantities), asked only once for those that many events share."""
    n_tokens = network.steps.shape[1]
    place_value = n_tokens ** torch.arange(tokens.shape[1], device=tokens.device)
    _, which = torch.unique((tokens * place_value).sum(1), return_inverse=True)
    last = torch.zeros(int(which.max()) + 1, dtype=torch.long, device=tokens.device)
    last[which] = torch.arange(len(tokens), device=tokens.device)
    log_probability: Tensor = network(tokens[last])
    return log_probability[which]


@torch.inference_mode()
def log_of_subsets(network: QuantityTransformer, tokens: Tensor, log_factor: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Logarithm of the probability of what every subset of the quantities of an event is.

    The probability of one quantity, times that of the next where the first is known, and so on: the same in any order,
    were the network perfect; the mean over the last factors is taken.

    Parameters
    ----------
    tokens : (batch, quantities), what is known of a quantity once it is.
    log_factor : from log-probabilities (batch, bins) of a quantity, and its number, to the logarithm (batch,) of the
        probability of what it is.

    Returns
    -------
    (batch, 2^quantities): quantity i belongs to a subset where bit i of its number is set.
    """
    n = tokens.shape[1]
    total = torch.zeros(len(tokens), 1 << n, device=tokens.device)
    if not len(tokens):
        return total
    for known in range((1 << n) - 1):
        is_known = torch.tensor([bool(known >> i & 1) for i in range(n)], device=tokens.device)
        log_probability = _once_each(network, tokens * is_known)
        if known:
            total[:, known] /= known.bit_count()
        for i in range(n):
            if not known >> i & 1:
                total[:, known | 1 << i] += total[:, known] + log_factor(log_probability[:, i], i)
    total[:, -1] /= n
    return total
