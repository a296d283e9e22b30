"""Copies of events with objects replaced: what changes, and what must not give them away."""

import pytest
import torch

from unmask import load_sample
from unmask.detectors.inputs import EVENT_TYPE, EventTensors, event_tensors
from unmask.detectors.momenta import log_mass_factor, pushed, transverse, visible
from unmask.detectors.replacer import Replacer
from unmask.networks.backbones import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.pair_features import wrapped

JET = 1


@pytest.fixture(scope="module")
def events() -> EventTensors:
    sample = load_sample("gluino")
    return event_tensors(sample[(sample.label == 0) & (sample.n_objects <= 10)][:4000])


@pytest.fixture(scope="module")
def copies(events: EventTensors) -> EventTensors:
    torch.manual_seed(1)
    return Replacer(events)(events)


def _differ(some: EventTensors, others: EventTensors) -> torch.Tensor:
    return ((some.kinematics - others.kinematics).abs() > 1e-3).flatten(1).any(1)


def n_of(events: EventTensors, *tags: int) -> torch.Tensor:
    return sum(((events.types == tag).sum(1) for tag in tags), start=torch.zeros(len(events.types)))


def masses_of_the_first_two(events: EventTensors) -> torch.Tensor:
    objects = events.kinematics[:, 1:3].double()
    pt, along = objects[..., LOG_PT].exp() / 1e3, objects[..., ETA].sinh()
    x, y, z = pt * objects[..., PHI].cos(), pt * objects[..., PHI].sin(), pt * along
    energy = objects[..., LOG_ENERGY].exp() / 1e3
    squared = energy.sum(1) ** 2 - x.sum(1) ** 2 - y.sum(1) ** 2 - z.sum(1) ** 2
    return squared[events.types[:, 2] != 0].clamp_min(0).sqrt()


def assert_as_balanced(changed: EventTensors, events: EventTensors, share: float = 0.85) -> None:
    """Only where the missing energy would be less than the selection allows may the sum of all momenta differ."""
    before, after = (visible(e.kinematics, e.types) for e in (events, changed))  # with what is missing
    assert ((after - before).norm(dim=-1) < 0.01).float().mean() > share


def test_every_event_is_changed_and_each_type_comes_in(events: EventTensors, copies: EventTensors) -> None:
    is_changed = (copies.types != events.types).any(1) | _differ(copies, events)
    assert is_changed.float().mean() > 0.98  # what became what it was is rare
    for tag in range(1, 8):
        assert n_of(copies, tag).sum() > n_of(events, tag).sum()
    assert (copies.types[:, 0] == EVENT_TYPE).all()
    # Some are added in the place of jets, of which there are few.
    more = n_of(copies, *range(1, 8)) - n_of(events, *range(1, 8))
    assert 0.3 < (more > 0).float().mean() < 0.6
    assert more.max() == 8
    assert more.min() >= 0


def test_copies_are_within_the_limits_of_their_types(events: EventTensors, copies: EventTensors) -> None:
    for tag in range(1, EVENT_TYPE):
        mine, theirs = (e.kinematics[e.types == tag] for e in (events, copies))
        above_least = theirs[:, LOG_PT] - mine[:, LOG_PT].min()
        assert above_least.min() >= -1e-5
        assert (above_least < 1e-5).sum() <= 2  # none is put there, only the softest of background is copied
        assert theirs[:, ETA].abs().max() <= mine[:, ETA].abs().max() + 1e-5
        assert log_mass_factor(theirs).min() >= -1e-4
        assert log_mass_factor(theirs).max() <= log_mass_factor(mine).max() + 1e-4
    assert copies.kinematics[:, 0, LOG_PT].min() >= events.kinematics[:, 0, LOG_PT].min()  # as the selection has it
    assert (copies.kinematics[copies.types == 0] == 0).all()


def test_copies_are_as_balanced_as_events(events: EventTensors, copies: EventTensors) -> None:
    assert_as_balanced(copies, events, 0.93)
    no_met_needed = event_tensors(load_sample("four-top")[:2000])
    assert_as_balanced(Replacer(no_met_needed)(no_met_needed), no_met_needed, 0.999)


def test_nothing_is_closer_than_in_background(events: EventTensors, copies: EventTensors) -> None:
    def share_of_close_jets(which: EventTensors) -> float:
        eta, phi = (which.kinematics[:, 1:, i, None] - which.kinematics[:, None, 1:, i] for i in (ETA, PHI))
        is_jet = which.types[:, 1:] == JET
        is_pair = is_jet[:, :, None] & is_jet[:, None] & ~torch.eye(is_jet.shape[1], dtype=torch.bool)
        return float((torch.hypot(eta, wrapped(phi))[is_pair] < 0.6).float().mean())

    assert share_of_close_jets(events) == 0  # jets are that wide
    assert share_of_close_jets(copies) < 0.01


def test_what_is_added_is_balanced(events: EventTensors) -> None:
    types = torch.full((len(events.types), 2), JET)
    torch.manual_seed(1)
    added = Replacer(events).added(events, types, pt_gev=300)
    assert n_of(added, JET).float().mean() == pytest.approx(float(n_of(events, JET).float().mean()) + 2, abs=0.05)
    # Two jets of 300 GeV more; the missing energy hardly knows.
    assert_as_balanced(added, events)
    met = [e.kinematics[:, 0, LOG_PT].exp().median() / 1e3 for e in (events, added)]
    assert met[1] < met[0] + 40


def test_an_invisible_particle_makes_the_rest_recoil(events: EventTensors) -> None:
    types = torch.zeros((len(events.types), 0), dtype=torch.long)
    torch.manual_seed(1)
    changed = Replacer(events).added(events, types, pt_gev=0, met_gev=300)
    assert torch.equal(changed.types.sort(1).values, events.types.sort(1).values)
    met = [e.kinematics[:, 0, LOG_PT].exp().median() / 1e3 for e in (events, changed)]
    assert met[1] > met[0] + 100
    visible_gev = [visible(e.kinematics[:, 1:], e.types[:, 1:]).norm(dim=-1).median() for e in (events, changed)]
    assert visible_gev[1] > visible_gev[0] + 60
    assert_as_balanced(changed, events)


def test_pushed_events_have_the_momentum_and_their_masses(events: EventTensors) -> None:
    torch.manual_seed(1)
    push = 60 * torch.randn(len(events.types), 2)
    moved = events._replace(kinematics=pushed(events.kinematics, events.types.long(), push))
    total = [visible(e.kinematics[:, 1:], e.types[:, 1:]) + transverse(e.kinematics[:, 0]) for e in (events, moved)]
    error = (total[1] - total[0] - push).norm(dim=-1)
    assert error.quantile(0.99) < 0.1
    mass = [masses_of_the_first_two(e) for e in (events, moved)]
    torch.testing.assert_close(mass[1], mass[0], rtol=1e-3, atol=0.1)
    still = pushed(events.kinematics, events.types.long(), torch.zeros_like(push))
    torch.testing.assert_close(still[..., LOG_PT], events.kinematics[..., LOG_PT], atol=1e-4, rtol=1e-4)


def test_jets_make_way_the_softest_first(events: EventTensors) -> None:
    types = torch.full((len(events.types), 1), 7)
    torch.manual_seed(1)
    changed = Replacer(events).added(events, types, pt_gev=30, n_gone=1)
    n_jets = n_of(events, JET)
    assert torch.equal(n_of(changed, JET), (n_jets - 1).clamp_min(0))
    assert_as_balanced(changed, events)
    hardest = [torch.where(e.types == JET, e.kinematics[..., LOG_PT], 0).amax(1) for e in (events, changed)]
    assert (hardest[1] - hardest[0])[n_jets > 1].abs().median() < 0.3


def test_full_events_stay_full_and_none_is_none(events: EventTensors) -> None:
    torch.manual_seed(1)
    full = events.at(slice(0, 200))
    replacer = Replacer(events)
    for _ in range(4):
        full = replacer.added(full, torch.full((200, 8), JET), pt_gev=50)
    assert (full.types != 0).sum(1).float().mean() > 17
    assert torch.isfinite(replacer(full).kinematics).all()
    assert len(replacer(events.at(slice(0, 0))).types) == 0
