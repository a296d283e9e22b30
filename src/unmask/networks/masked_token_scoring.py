"""Scores of the masked-token model: every position of every event masked in turn, exactly and fast.

The reference implementation runs the network once for each position of an event. Most of that work is the same each
time, or is never read. What :func:`token_losses` leaves out changes nothing but the last digits:

- Events are sorted by their number of tokens, so nothing is spent on ignored padding.
- Without position encoding equal tokens are interchangeable: the padding of an event is one token that is attended
  to as often as it occurs, and one masked padding stands for all.
- The variants of an event enter the first layer with the same tokens but one, so its attention is computed once for
  all of them (:mod:`unmask.networks.masked_variants`).
- Of the last layer only the masked row is read, so only that row is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from unmask.networks.masked_token import PADDING_ID, MaskedTokenTransformer
from unmask.networks.masked_variants import Slots, VariantScorer

Reduction = Literal["mean", "mean-real", "sum", "max"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)

#: Rows (masked variants times tokens) computed at once: on a CPU what stays near its caches, on a GPU what fills it.
CPU_ROWS, GPU_ROWS = 1 << 13, 1 << 20


def reduced_losses(token_losses: Tensor, is_counted: Tensor, is_real: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Reduce the losses of an event's tokens to one score (n_events,), 0 if none is counted; larger is more anomalous.

    Parameters
    ----------
    is_counted, is_real
        (n_events, sequence). With predicted padding all positions count, with ignored padding only the real tokens.
    reduction
        "mean" of the counted positions, the score of the paper; "mean-real" of the real tokens, even where padding is
        counted; "sum" over the counted positions, minus a pseudo-log-likelihood; "max", the largest of them.

    Examples
    --------
    >>> losses, is_real = torch.tensor([[1.0, 4.0, 0.5, 0.5]]), torch.tensor([[True, True, False, False]])
    >>> reduced_losses(losses, is_counted=is_real | True, is_real=is_real)
    tensor([1.5000])
    >>> reduced_losses(losses, is_counted=is_real | True, is_real=is_real, reduction="mean-real")
    tensor([2.5000])
    """
    if reduction == "mean-real":
        is_counted = is_real
    counted = token_losses * is_counted
    if reduction == "max":
        return counted.amax(1)  # losses are never negative
    return counted.sum(1) if reduction == "sum" else counted.sum(1) / is_counted.sum(1).clamp(min=1)


@torch.inference_mode()
def token_losses(network: MaskedTokenTransformer, tokens: Tensor, *, max_rows: int | None = None) -> Tensor:
    """Cross-entropy (n_events, sequence) of each token of each event when it alone is masked; 0 at ignored padding.

    The network is left in evaluation mode, without dropout.

    Parameters
    ----------
    tokens
        (n_events, sequence), on the device of the network; the more events in one call, the better it is used.
    max_rows
        Rows (masked variants times tokens) computed at once; bounds the memory, to some 4 kB per row.
    """
    tokens = tokens.long()
    sequence = tokens.shape[1]
    merges_padding = network.padding == "predict" and network.position == "none"
    has_slot = tokens != PADDING_ID  # a slot is a token that is computed for itself
    if network.padding == "predict" and not merges_padding:
        has_slot = torch.ones_like(has_slot)
    n_slots, order = has_slot.sum(1).sort()
    tokens, has_slot = tokens[order], has_slot[order]
    slot_tokens, slot_positions = tokens[has_slot], network.get_buffer("positions").expand_as(tokens)[has_slot]
    slot_losses = torch.empty(slot_tokens.shape, device=tokens.device)
    padding_loss = torch.zeros(len(tokens), 1, device=tokens.device)
    network.eval()
    score = VariantScorer(network)
    max_rows = max_rows or (CPU_ROWS if tokens.device.type == "cpu" else GPU_ROWS)
    for n, events, places in _parts(torch.bincount(n_slots, minlength=sequence + 1).tolist(), max_rows):
        shape = (events.stop - events.start, n)
        slots = Slots(tokens[events], slot_tokens[places].view(shape), slot_positions[places].view(shape))
        n_padding = sequence - n if merges_padding else 0
        if n:
            slot_losses[places] = score(slots.with_padding(after=n_padding), n).flatten()
        if n_padding:
            padding_loss[events] = score(slots.with_padding(before=1, after=n_padding - 1), 1)
    losses = torch.empty(tokens.shape, device=tokens.device)
    losses[order] = padding_loss.expand_as(losses).masked_scatter(has_slot, slot_losses)
    return losses


@torch.inference_mode()
def token_probabilities(network: MaskedTokenTransformer, tokens: Tensor) -> Tensor:
    """Probabilities (n_events, sequence, n_codes + 1) of padding (0) and the vocabulary at masked positions."""
    tokens = tokens.long()
    n_events, sequence = tokens.shape
    positions = torch.arange(sequence, device=tokens.device).repeat(n_events)
    logits: Tensor = network.eval()(tokens.repeat_interleave(sequence, 0), positions)
    return logits.softmax(-1).view(*tokens.shape, -1)


def _parts(n_events_with: list[int], max_rows: int) -> Iterator[tuple[int, slice, slice]]:
    """Cut sorted events, ``n_events_with[n]`` with n slots, into parts of equal n: give n, the events, their slots."""
    event = slot = 0
    for n, n_events in enumerate(n_events_with):
        at_once = max(1, max_rows // (n + 1) ** 2)
        for start in range(0, n_events, at_once):
            count = min(at_once, n_events - start)
            yield n, slice(event, event + count), slice(slot, slot + n * count)
            event, slot = event + count, slot + n * count
