"""The masked variants of events, computed together: their common parts are computed once.

Without position encoding or with one that is a matter of each token alone, the variants of an event differ, before
the first layer, in one row: the masked one. So the first layer's queries, keys and values and its attention logits are
those of the tokens and of the mask; a variant leaves out its masked token and takes in the mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.networks.masked_token import PADDING_ID, MaskedTokenTransformer


@dataclass(frozen=True)
class Slots:
    """Events with equally many tokens to compute; the last slot stands for ``n_last`` equal tokens."""

    event_tokens: Tensor  # (events, sequence)
    tokens: Tensor  # (events, slots)
    positions: Tensor  # (events, slots)
    n_last: int = 1

    def with_padding(self, *, before: int = 0, after: int = 0) -> Slots:
        """Add ``before`` slots of padding in front, and behind, unless ``after`` is 0, one for ``after`` of them."""
        around = (before, min(after, 1))
        tokens, positions = (F.pad(tensor, around, value=PADDING_ID) for tensor in (self.tokens, self.positions))
        return Slots(self.event_tokens, tokens, positions, max(after, 1))


class VariantScorer:
    """Scores events of which the first ``n_masked`` slots are masked in turn.

    Tensors of variants have the shape (events, variants, slots, ...), and the masked slots are on its diagonal.
    """

    def __init__(self, network: MaskedTokenTransformer) -> None:
        self.network = network
        self.layers = network.transformer_layers
        self.shares_first_layer = len(self.layers) > 1 and not network.positional.mixes_neighbors
        first = self.layers[0]
        self.value_to_out = first.value_to_out()  # (heads, hidden, hidden)
        self.has_tables = network.position in ("none", "rotary")
        if self.has_tables:
            # The embedding is the token's alone, so the first layer maps it by a table over the vocabulary.
            weight = network.embedding.weight
            self.normed = first.attention_norm(weight)
            self.reading = self.normed @ first.query_to_key()
            self.written = (self.normed @ self.value_to_out).flatten(0, 1)  # (heads * n_embeddings, hidden)
            self.first_of_head = torch.arange(0, len(self.written), len(weight), device=weight.device)[:, None]

    def __call__(self, slots: Slots, n_masked: int) -> Tensor:
        """Losses (events, n_masked) of the tokens in the masked slots."""
        network = self.network
        n_events, n_slots = slots.tokens.shape
        *layers, last = self.layers
        if self.shares_first_layer:
            rows, layers = self.first_layer(slots, n_masked), layers[1:]
        else:
            rows = self.embedded(slots, n_masked)
        rows = rows.flatten(0, 1)  # (events * variants, slots, hidden)
        rotation = network.positional.rotation(slots.positions)
        rotation_of_row = None
        if rotation is not None:
            cos, sin = rotation
            rotation_of_row = cos[:, :n_masked].flatten(0, 1)[:, None], sin[:, :n_masked].flatten(0, 1)[:, None]
            rotation = cos.repeat_interleave(n_masked, 0), sin.repeat_interleave(n_masked, 0)
        key_bias = torch.zeros(1, 1, 1, n_slots, device=rows.device)  # (batch, heads, queries, keys)
        key_bias[..., -1] = math.log(slots.n_last)
        for layer in layers:
            rows = layer(rows, rotation, key_bias)
        row = rows.view(n_events, n_masked, n_slots, -1).diagonal(0, 1, 2).transpose(1, 2).flatten(0, 1)
        row = last.at_row(row, rows, rotation_of_row, rotation, key_bias[:, 0])
        true_tokens = slots.tokens[:, :n_masked].flatten()
        return F.cross_entropy(network.predict(row), true_tokens, reduction="none").view(n_events, n_masked)

    def embedded(self, slots: Slots, n_masked: int) -> Tensor:
        """Rows of all variants that enter the first layer."""
        network = self.network
        if network.positional.mixes_neighbors:  # so the whole sequence is embedded, and the slots are picked
            variants = slots.event_tokens.repeat_interleave(n_masked, 0)
            rows, _, _ = network.embed(network.masked(variants, slots.positions.flatten()))
            picked = slots.positions.repeat_interleave(n_masked, 0)[..., None].expand(-1, -1, rows.shape[-1])
            return rows.gather(1, picked).view(-1, n_masked, *picked.shape[1:])
        variants = slots.tokens[:, None].repeat(1, n_masked, 1)
        variants.diagonal(0, 1, 2).fill_(network.mask_id)
        embedded: Tensor = network.positional(network.embedding(variants), slots.positions[:, None])
        return embedded

    def first_layer(self, slots: Slots, n_masked: int) -> Tensor:
        """Rows of all variants after the first layer."""
        layer = self.layers[0]
        n_events, n_slots = slots.tokens.shape
        embedded, logits, written = self.shared(slots, n_masked)
        logits[..., n_slots - 1] += math.log(slots.n_last)
        weights = _attention_of_variants(logits, n_masked, n_slots)
        rows = weights.view(n_events, n_masked * n_slots, -1) @ written[:, :, : n_slots + 1].flatten(1, 2)
        rows = rows.view(n_events, n_masked, n_slots, -1)
        if written.shape[2] > n_slots + 1:  # the product above took the first slot's mask for all of them
            by_mask = (written[:, :, n_slots:] - written[:, :, n_slots : n_slots + 1]).transpose(1, 2)
            rows += weights[..., n_slots].contiguous() @ by_mask
        rows += (embedded[:, :n_slots] + layer.attention_out.bias)[:, None]
        rows.diagonal(0, 1, 2).add_((embedded[:, n_slots:] - embedded[:, :n_masked]).transpose(1, 2))
        return layer.feed_forward_(rows)

    def shared(self, slots: Slots, n_masked: int) -> tuple[Tensor, Tensor, Tensor]:
        """Parts of the first layer for the slots and, behind them, the masks of the masked slots.

        Where all masks are equal there is only one. They are the embedded rows (events, slots + masks, hidden), the
        attention logits (events, slots + masks, heads, slots + masks), and what each head adds to a row that attends to
        one row alone (events, heads, slots + masks, hidden).
        """
        network, layer = self.network, self.layers[0]
        positions = torch.cat([slots.positions, slots.positions[:, :n_masked]], 1)
        tokens = F.pad(slots.tokens, (0, 1 if self.has_tables else n_masked), value=network.mask_id)
        if self.has_tables:
            embedded, normed = network.embedding(tokens), F.embedding(tokens, self.normed)
            written = F.embedding(tokens[:, None] + self.first_of_head, self.written)
        else:
            embedded = network.positional(network.embedding(tokens), positions)
            normed = layer.attention_norm(embedded)
            written = normed[:, None] @ self.value_to_out
        if network.position == "none":
            reading = F.embedding(tokens, self.reading).view(len(tokens), -1, normed.shape[2])
            logits = reading @ normed.transpose(1, 2)
            return embedded, logits.view(len(tokens), -1, layer.n_heads, tokens.shape[1]), written
        if self.has_tables:  # equal masks, but each is turned in its own place
            normed = torch.cat([normed, normed[:, -1:].expand(-1, n_masked - 1, -1)], 1)
        rotation = network.positional.rotation(positions)
        return embedded, layer.attention_logits(normed, normed, rotation, rotation).transpose(1, 2), written


def _attention_of_variants(logits: Tensor, n_masked: int, n_slots: int) -> Tensor:
    """Attention weights (events, variants, slots, heads, slots + 1) of the first layer, from the shared logits.

    The keys of a variant are the slots, of which the masked one has weight 0, and behind them its mask; the row of
    its masked slot is that of the mask.
    """
    if logits.device.type == "cpu":  # where exponentials are dear, they are shared as well
        exponentials = (logits - logits.amax(-1, keepdim=True)).exp_()
        variants = _assemble_variants(exponentials, n_masked, n_slots, absent=0)
        total = variants.sum(-1, keepdim=True)
        if total.amin() > 1e-30:  # else a masked token had drawn all attention, and the rest is rounded to nothing
            return variants.div_(total)
    return torch.softmax(_assemble_variants(logits, n_masked, n_slots, absent=-torch.inf), dim=-1)


def _assemble_variants(shared: Tensor, n_masked: int, n_slots: int, *, absent: float) -> Tensor:
    """Put (events, slots + masks, heads, slots + masks) together to (events, variants, slots, heads, slots + 1)."""
    variants = shared[:, None, :n_slots, :, : n_slots + 1].repeat(1, n_masked, 1, 1, 1)
    variants[..., n_slots] = shared[:, :n_slots, :, n_slots:].permute(0, 3, 1, 2)
    of_mask = variants.diagonal(0, 1, 2)  # (events, heads, slots + 1, variants)
    of_mask[:, :, :n_slots] = shared[:, n_slots:, :, :n_slots].permute(0, 2, 3, 1)
    of_mask[:, :, n_slots] = shared[:, n_slots:, :, n_slots:].diagonal(0, 1, 3)
    variants.diagonal(0, 1, 4).fill_(absent)
    return variants
