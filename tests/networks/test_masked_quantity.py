"""Ordered tokens, hidden or known."""

from itertools import product

import numpy as np
import pytest
import torch

from unmask.networks.masked_quantity import MaskedQuantityTransformer, subset_log_probabilities

N_BINS = [4, 4, 2]
Trained = tuple[MaskedQuantityTransformer, torch.Tensor]


def three_quantities(n: int) -> torch.Tensor:
    """Bins of three quantities: the second is the first or one more, at most 3; the third is on its own."""
    rng = np.random.default_rng(0)
    first = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    columns = [first, np.minimum(first + rng.integers(0, 2, n), 3), rng.choice(2, n, p=[0.7, 0.3])]
    return torch.from_numpy(np.stack(columns, axis=1))


@pytest.fixture(scope="module")
def trained() -> Trained:
    torch.manual_seed(0)
    bins = three_quantities(20_000)
    network = MaskedQuantityTransformer(N_BINS, hidden=16, n_heads=2, n_layers=1)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, 600)
    for _ in range(600):
        batch = bins[torch.randint(len(bins), (512,))]
        optimizer.zero_grad()
        network.loss(batch, *network.draw_tokens(batch)).backward()
        optimizer.step()
        rate.step()
    return network.eval(), bins


def test_probabilities_of_every_subset_are_shares_of_events_and_add_up_to_one(trained: Trained) -> None:
    network, bins = trained
    everything = torch.tensor(list(product(*map(range, N_BINS))))
    found = subset_log_probabilities(network, everything).exp().numpy()
    for subset in range(1, 8):
        members = [i for i in range(3) if subset >> i & 1]
        others = int(np.prod([N_BINS[i] for i in range(3) if i not in members]))
        assert found[:, subset].sum() / others == pytest.approx(1, abs=0.03)
        for event, probability in zip(everything, found[:, subset], strict=True):
            share = float((bins[:, members] == event[members]).all(1).double().mean())
            assert probability == pytest.approx(share, abs=0.02)
    # They come together: the product of the two shares would be far too small.
    both_highest = found[-1]
    assert both_highest[3] > 3 * both_highest[1] * both_highest[2]


def test_one_quantity_adds_up_exactly_whatever_was_learnt() -> None:
    torch.manual_seed(3)
    network = MaskedQuantityTransformer([5, 3])
    events = torch.tensor([[i, 0] for i in range(5)])
    assert float(subset_log_probabilities(network, events)[:, 1].exp().sum()) == pytest.approx(1, abs=1e-5)


def test_any_number_is_hidden_and_every_step_of_a_chain_counts_the_same() -> None:
    torch.manual_seed(1)
    network = MaskedQuantityTransformer([3, 3, 3, 3])
    bins = torch.randint(3, (60_000, 4))
    tokens, weight = network.draw_tokens(bins)
    is_hidden = tokens == 0
    assert torch.equal(tokens[~is_hidden], bins[~is_hidden] + 1)
    # Of each event h quantities count. With h times the share of such events all chains are used alike.
    counted = torch.bincount(is_hidden.sum(1), weights=weight, minlength=5) * torch.arange(5)
    torch.testing.assert_close(counted[1:] / counted.sum(), torch.full((4,), 0.25), atol=0.01, rtol=0)
    torch.testing.assert_close(is_hidden.double().mean(0), is_hidden.double().mean().expand(4), atol=0.01, rtol=0)


def test_what_is_known_costs_nothing() -> None:
    torch.manual_seed(2)
    network = MaskedQuantityTransformer([3, 4])
    bins = torch.tensor([[2, 3], [0, 1]])
    assert float(network.loss(bins, bins + 1, torch.ones(2)).detach()) == 0
