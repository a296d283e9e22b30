"""How much faster the exact scoring of the masked-token model is than a full pass for each position.

On one core of a CPU, and where there is CUDA on it too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.timing import best_times
from unmask.events.event_set import BACKGROUND
from unmask.io.sample import Study, load_sample
from unmask.networks.masked_token import PADDING_ID, MaskedTokenTransformer
from unmask.networks.masked_token_scoring import token_losses
from unmask.networks.transformer import PositionName
from unmask.tokenizers.lookup_table import LookupTableTokenizer

#: Study, position encoding, least ratio wanted on a CPU and on CUDA.
CASES: tuple[tuple[Study, PositionName, dict[str, float]], ...] = (
    ("gluino", "none", {"cpu": 12.0, "cuda": 8.0}),
    ("four-top", "none", {"cpu": 6.0, "cuda": 8.0}),
    ("gluino", "rotary", {"cpu": 2.5}),
)
N_EVENTS = 4000
#: How often the background is scored in a call; events that the reference implementation scores, and how many at once.
AMOUNTS = {"cpu": (1, 200, 64), "cuda": (64, 32_000, 2048)}


def run() -> dict[str, float]:
    """Ratios of the times per event, both ways in turn, for 456 codes; the largest difference of a loss."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures: dict[str, float] = {}
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            for study, position, targets in CASES:
                tokens, name = background_tokens(study).to(device), f"{device}, {study}, {position}"
                figures |= compare(tokens, position, name, targets.get(device))
        return figures
    finally:
        torch.set_num_threads(n_threads)


def background_tokens(study: Study) -> torch.Tensor:
    """Tokens (N_EVENTS, 20) of the background of a shipped sample, repeated as often as it takes."""
    events = load_sample(study)
    events = events[events.label == BACKGROUND]
    tokens = torch.from_numpy(LookupTableTokenizer(4).fit(events).encode(events).tokens.copy())
    return tokens.repeat(-(-N_EVENTS // len(tokens)), 1)[:N_EVENTS]


def compare(tokens: torch.Tensor, position: PositionName, name: str, target: float | None) -> dict[str, float]:
    """Time both ways of scoring ``tokens`` with a freshly made network of the published size."""
    torch.manual_seed(1)
    network = MaskedTokenTransformer(456, tokens.shape[1], ffn_expansion=2, position=position).to(tokens.device)
    n_copies, n_plain, at_once = AMOUNTS[tokens.device.type]
    many = tokens.repeat(n_copies, 1)
    few = many[:n_plain]
    plain = partial(reference_token_losses, network, few, n_events_at_once=at_once)
    difference = (token_losses(network, few) - plain()).abs().max().item()
    exact_time, plain_time = best_times(_finished(partial(token_losses, network, many)), _finished(plain))
    wanted = f" (target {target:g})" if target else ""
    return {
        f"{name}: events/s": len(many) / exact_time,
        f"{name}: times the reference implementation{wanted}": plain_time / len(few) / (exact_time / len(many)),
        f"{name}: largest difference (limit 1e-5)": difference,
    }


def reference_logits(network: MaskedTokenTransformer, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Logits (batch, n_codes + 1) at masked positions (batch,), from a full pass of the network."""
    rows, rotation, key_bias = network.embed(network.masked(tokens, position))
    for layer in network.transformer_layers:
        rows = layer(rows, rotation, key_bias)
    return network.predict(rows[torch.arange(len(rows), device=rows.device), position])


@torch.inference_mode()
def reference_token_losses(
    network: MaskedTokenTransformer, tokens: torch.Tensor, *, n_events_at_once: int = 64
) -> torch.Tensor:
    """Reference implementation of ``token_losses``: a full pass of the network for each position."""
    losses = torch.empty(tokens.shape, device=tokens.device)
    tokens = tokens.long()
    network.eval()
    for some, out in zip(tokens.split(n_events_at_once), losses.split(n_events_at_once), strict=True):
        position = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(some))
        logits = reference_logits(network, some.repeat_interleave(tokens.shape[1], 0), position)
        out.copy_(F.cross_entropy(logits, some.flatten(), reduction="none").view(some.shape))
    return losses.masked_fill_(tokens == PADDING_ID, 0) if network.padding == "ignore" else losses


def _finished(work: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """Do the work and wait for the device."""
    return lambda: work()[0, 0].item()
