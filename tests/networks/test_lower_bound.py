"""Ordered tokens, hidden or bounded from below."""

import numpy as np
import pytest
import torch

from unmask.errors import UsageError
from unmask.networks.lower_bound import LowerBoundTransformer, log_tail, subset_log_tails


def two_quantities(n: int) -> torch.Tensor:
    """Bins of two quantities that come together: the second is the first or one more, at most 3."""
    rng = np.random.default_rng(0)
    first = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    return torch.from_numpy(np.stack([first, np.minimum(first + rng.integers(0, 2, n), 3)], axis=1))


@pytest.fixture(scope="module")
def trained() -> tuple[LowerBoundTransformer, torch.Tensor]:
    torch.manual_seed(0)
    bins = two_quantities(20_000)
    network = LowerBoundTransformer([4, 4], hidden=16, n_heads=2)
    usual_bin = bins.double().mean(0).float()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(1000):
        batch = bins[torch.randint(len(bins), (512,))]
        optimizer.zero_grad()
        network.loss(batch, *network.draw_bounds(batch, usual_bin)).backward()
        optimizer.step()
    return network.eval(), bins


def test_joint_tails_are_the_shares_of_events_that_have_as_much(
    trained: tuple[LowerBoundTransformer, torch.Tensor],
) -> None:
    network, bins = trained
    asked = torch.tensor([[0, 0], [1, 1], [2, 1], [1, 3], [3, 3]])
    found = subset_log_tails(network, asked, torch.zeros(asked.shape)).exp()
    for event, probability in zip(asked, found, strict=True):
        has_first, has_second = (bins >= event).T
        expected = [1, has_first, has_second, has_first & has_second]
        shares = [float(torch.as_tensor(one).double().mean()) for one in expected]
        np.testing.assert_allclose(probability[1:], shares[1:], atol=0.04)
    # They come together: the product of the two shares would be far too small.
    assert found[4, 3] > 5 * found[4, 1] * found[4, 2] / 3


def test_bins_below_a_bound_have_no_probability(trained: tuple[LowerBoundTransformer, torch.Tensor]) -> None:
    probability = trained[0](torch.tensor([[2, 0]])).detach().exp()
    assert probability[0, 0, :2].tolist() == [0, 0]
    assert float(probability[0, 1, 0]) < 0.01  # the second is never less than the first
    torch.testing.assert_close(probability.sum(-1), torch.ones(1, 2))


def test_bounds_hold_and_weights_make_up_for_looking_at_the_event() -> None:
    torch.manual_seed(1)
    network = LowerBoundTransformer([5, 3])
    bins = torch.stack([torch.randint(5, (100_000,)), torch.randint(3, (100_000,))], dim=1)
    bounds, weight = network.draw_bounds(bins, torch.tensor([2.0, 1.0]))
    assert (bounds <= bins).all()
    assert (bounds.amax(0) == torch.tensor([4, 2])).all()
    # Among the events that show "at least 2" all that are at least 2 count the same; likewise where nothing is shown.
    for bound, n_bins in ((2, 3), (0, 5)):
        shown = bounds[:, 0] == bound
        counts = torch.bincount(bins[shown, 0], weights=weight[shown], minlength=5)[-n_bins:]
        torch.testing.assert_close(counts / counts.sum(), torch.full((n_bins,), 1 / n_bins), atol=0.02, rtol=0)


def test_the_tail_counts_the_share_of_the_own_bin() -> None:
    log_probability = torch.tensor([[0.5, 0.3, 0.2]]).log()
    tail = log_tail(log_probability, torch.tensor([1]), torch.tensor([0.25]).log())
    assert float(tail.exp()) == pytest.approx(0.2 + 0.25 * 0.3)


def test_heads_must_share_the_hidden_size() -> None:
    with pytest.raises(UsageError, match="cannot be shared"):
        LowerBoundTransformer([3], hidden=10, n_heads=4)
    with pytest.raises(UsageError, match="n_heads is 0"):
        LowerBoundTransformer([3], n_heads=0)
    with pytest.raises(UsageError, match="dropout is 2"):
        LowerBoundTransformer([3], dropout=2)
