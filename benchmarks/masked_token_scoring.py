"""How much faster the exact scoring of the masked-token model is than a full pass for each position, on one core."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.timing import best_times
from unmask.events.event_set import BACKGROUND
from unmask.events.sample import Study, load_sample
from unmask.networks.masked_token import MaskedTokenTransformer
from unmask.networks.masked_token_scoring import token_losses, token_losses_plain
from unmask.networks.positional_encoding import PositionName
from unmask.tokenizers.lookup_table import LookupTableTokenizer

#: Study, position encoding, least ratio wanted.
CASES: tuple[tuple[Study, PositionName, float], ...] = (
    ("gluino", "none", 12.0),
    ("four-top", "none", 6.0),
    ("gluino", "rotary", 2.5),
)
N_EVENTS, N_EVENTS_PLAIN = 4000, 200


def run() -> dict[str, float]:
    """Ratios of the times per event, both ways in turn, for 456 codes on one core; the largest difference of a loss."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures: dict[str, float] = {}
        for study, position, target in CASES:
            figures |= compare(background_tokens(study), position, f"{study}, {position}", target)
        return figures
    finally:
        torch.set_num_threads(n_threads)


def background_tokens(study: Study) -> torch.Tensor:
    """Tokens (N_EVENTS, 20) of the background of a shipped sample, repeated as often as it takes."""
    events = load_sample(study)
    events = events[events.label == BACKGROUND]
    tokens = torch.from_numpy(LookupTableTokenizer(4).fit(events).encode(events).tokens.copy())
    return tokens.repeat(-(-N_EVENTS // len(tokens)), 1)[:N_EVENTS]


def compare(tokens: torch.Tensor, position: PositionName, name: str, target: float) -> dict[str, float]:
    """Time both ways of scoring ``tokens`` with a freshly made network of the published size."""
    torch.manual_seed(1)
    network = MaskedTokenTransformer(456, tokens.shape[1], ffn_expansion=2, position=position)
    few = tokens[:N_EVENTS_PLAIN]
    difference = (token_losses(network, few) - token_losses_plain(network, few)).abs().max().item()
    exact, plain = best_times(partial(token_losses, network, tokens), partial(token_losses_plain, network, few))
    return {
        f"{name}: events/s": len(tokens) / exact,
        f"{name}: times the plain way (target {target:g})": plain / len(few) / (exact / len(tokens)),
        f"{name}: largest difference (limit 1e-5)": difference,
    }
