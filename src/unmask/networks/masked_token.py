"""The masked-token transformer: predicts the token at the masked position of an event."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UsageError
from unmask.networks.transformer import PositionalEncoding, PositionName, Rotation, TransformerLayer

Padding = Literal["predict", "ignore"]
PADDING_ID = 0


class MaskedTokenTransformer(nn.Module):
    """Transformer encoder that predicts the token at one masked position of each event.

    Token 0 is padding, 1 to ``n_codes`` are the vocabulary, ``n_codes + 1`` is the mask. Predicted classes are padding
    and the vocabulary; the mask is never predicted.

    Parameters
    ----------
    n_codes
        Size of the vocabulary, padding not counted.
    hidden, n_layers, n_heads, ffn_expansion
        Embedding size, layers, attention heads, feed-forward width in units of ``hidden``.
    padding
        "predict": padding is a token like any other. "ignore": it is never attended to, masked or scored.

    Examples
    --------
    >>> network = MaskedTokenTransformer(n_codes=8, sequence_length=4)
    >>> tokens = torch.tensor([[1, 2, 0, 8], [3, 0, 0, 7]])
    >>> network(tokens, masked_position=torch.tensor([1, 0])).shape
    torch.Size([2, 9])
    """

    def __init__(
        self,
        n_codes: int,
        sequence_length: int,
        *,
        hidden: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn_expansion: int = 1,
        dropout: float = 0.05,
        position: PositionName = "none",
        padding: Padding = "predict",
    ) -> None:
        super().__init__()
        if hidden % n_heads:
            raise UsageError(f"hidden size {hidden} cannot be shared equally by {n_heads} heads")
        self.n_codes = n_codes
        self.position: PositionName = position
        self.padding: Padding = padding
        self.mask_id = n_codes + 1
        # Ignored padding is embedded as zero and stays so, as beyond the ends of the sequence.
        self.embedding = nn.Embedding(n_codes + 2, hidden, padding_idx=PADDING_ID if padding == "ignore" else None)
        self.positional = PositionalEncoding(
            position, sequence_length=sequence_length, hidden=hidden, head_size=hidden // n_heads
        )
        self.layers = nn.ModuleList(
            TransformerLayer(hidden, n_heads, ffn_expansion * hidden, dropout) for _ in range(n_layers)
        )
        self.final_norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, n_codes + 1)
        self.register_buffer("positions", torch.arange(sequence_length), persistent=False)

    def forward(self, tokens: Tensor, masked_position: Tensor) -> Tensor:
        """Logits (batch, n_codes + 1) of ``tokens`` (batch, sequence) at one masked position (batch,) of each event."""
        rows, rotation, key_bias = self.embed(self.masked(tokens, masked_position))
        *layers, last = self.transformer_layers
        for layer in layers:
            rows = layer(rows, rotation, key_bias)
        # Nothing reads the other rows of the last layer.
        row = rows[torch.arange(len(rows), device=rows.device), masked_position]
        rotation_of_row = self.positional.rotation(masked_position[:, None])
        key_bias_of_row = None if key_bias is None else key_bias[:, 0]
        return self.predict(last.at_row(row, rows, rotation_of_row, rotation, key_bias_of_row))

    def predict(self, rows: Tensor) -> Tensor:
        """Logits (..., n_codes + 1) from rows (..., hidden) after all layers."""
        logits: Tensor = self.head(self.final_norm(rows))
        return logits

    def loss(self, tokens: Tensor, masked_position: Tensor) -> Tensor:
        """Mean cross-entropy of the true tokens at the masked positions; ignored padding does not count."""
        true_token = tokens.gather(1, masked_position[:, None])[:, 0]
        ignored = PADDING_ID if self.padding == "ignore" else -100
        return F.cross_entropy(self(tokens, masked_position), true_token, ignore_index=ignored)

    def draw_masked_position(self, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one position (batch,) per event, uniformly: of all, or of the real tokens if padding is ignored."""
        batch, sequence = tokens.shape
        if self.padding == "predict":
            return torch.randint(sequence, (batch,), generator=generator, device=tokens.device)
        drawn = torch.rand(tokens.shape, generator=generator, device=tokens.device)
        return drawn.masked_fill(tokens == PADDING_ID, -1).argmax(1)

    def masked(self, tokens: Tensor, masked_position: Tensor) -> Tensor:
        """``tokens`` with the mask at one position per event."""
        return tokens.scatter(1, masked_position[:, None], self.mask_id)

    def embed(self, tokens: Tensor) -> tuple[Tensor, Rotation | None, Tensor | None]:
        """Rows (batch, sequence, hidden) that enter the first layer, their rotation and the key bias."""
        positions = self.get_buffer("positions")
        rows = self.positional(self.embedding(tokens), positions)
        key_bias = None
        if self.padding == "ignore":
            key_bias = torch.zeros_like(tokens, dtype=rows.dtype).masked_fill(tokens == PADDING_ID, -torch.inf)
            key_bias = key_bias[:, None, None]  # (batch, heads, queries, keys)
        return rows, self.positional.rotation(positions), key_bias

    @property
    def transformer_layers(self) -> list[TransformerLayer]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]
