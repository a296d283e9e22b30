"""Altered copies of events: what changes, and what must not give them away."""

from typing import Any

import pytest
import torch

from tests.detectors.odd_events import added
from unmask import load_sample
from unmask.detectors.alterations import Alterations, AlteredCopies
from unmask.detectors.contrast import ContrastDetector
from unmask.detectors.copies import CopiesTask, with_tensors
from unmask.detectors.decays import drawn_decays
from unmask.detectors.momenta import boost_transverse, log_mass_factor, transverse, visible
from unmask.errors import UsageError
from unmask.events.cuts import Cut
from unmask.events.objects import MET_TYPE
from unmask.kinematics import wrap_phi
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.event_tensors import EventTensors, event_tensors

JET = 1


@pytest.fixture(scope="module")
def events() -> EventTensors:
    sample = load_sample("gluino")
    return event_tensors(sample[(sample.label == 0) & (sample.n_objects <= 10)][:4000])


@pytest.fixture(scope="module")
def generator(events: EventTensors) -> AlteredCopies:
    return AlteredCopies(Alterations(), events)


@pytest.fixture(scope="module")
def copies(generator: AlteredCopies, events: EventTensors) -> EventTensors:
    torch.manual_seed(1)
    return generator(events)


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


def test_most_events_are_changed_and_each_type_comes_in(
    generator: AlteredCopies, events: EventTensors, copies: EventTensors
) -> None:
    is_changed = (copies.types != events.types).any(1) | _differ(copies, events)
    assert is_changed.float().mean() > 0.9  # events without jets have none to lose
    assert (generator.weights(events, copies)[~is_changed] == 0).all()
    for tag in range(2, 8):
        assert n_of(copies, tag).sum() > n_of(events, tag).sum()
    assert (copies.types[:, 0] == MET_TYPE).all()


def test_only_more_changes_without_removal_and_decays(events: EventTensors) -> None:
    torch.manual_seed(1)
    copies = AlteredCopies(Alterations(fewer_jets=0, decays=0, max_added=5), events)(events)
    # Some are added in the place of jets, of which there are few.
    more = n_of(copies, *range(1, 8)) - n_of(events, *range(1, 8))
    assert 0.3 < (more > 0).float().mean() < 0.6
    assert more.max() == 5
    assert more.min() >= 0


def test_jets_are_removed_and_the_rest_recoils(generator: AlteredCopies, events: EventTensors) -> None:
    torch.manual_seed(1)
    fewer = generator.with_fewer_jets(events)
    lost = n_of(events, 1, 2) - n_of(fewer, 1, 2)
    assert lost.min() == 0
    assert 0.3 < float(lost.sum() / n_of(events, 1, 2).sum()) < 0.7
    for tag in range(3, 8):
        assert torch.equal(n_of(fewer, tag), n_of(events, tag))
    unchanged = lost == 0
    assert (generator.weights(events, fewer)[unchanged] == 0).all()
    assert_as_balanced(fewer, events, 0.8)


def test_decays_have_the_masses_of_their_particles(generator: AlteredCopies, events: EventTensors) -> None:
    torch.manual_seed(1)
    objects, types, invisible = drawn_decays(4000, (30, 1500), generator)
    assert objects.shape == (4000, 6, 4)
    padded = torch.cat([torch.zeros(4000, 1, 4), objects], 1)  # where the missing energy of an event stands
    mass = masses_of_the_first_two(EventTensors(padded, torch.cat([torch.zeros(4000, 1), types], 1)))
    is_pair = (types[:, 0] > 0) & (types[:, 1] > 0) & (types[:, 2] == 0)
    leptons = mass[(is_pair & (types[:, 0] > 2) & (types[:, 0] < 7))[types[:, 1] != 0]]
    assert len(leptons) > 100
    assert (leptons - 91.2).abs().median() < 0.1  # Z to two leptons, of one flavour and opposite charge
    assert ((types[:, 0] - types[:, 1]).abs()[is_pair & (types[:, 0] > 2) & (types[:, 0] < 7)] == 1).all()
    assert (invisible.norm(dim=-1) > 20).float().mean() > 0.2  # neutrinos
    assert_as_balanced(generator.with_decays(events), events, 0.9)


def test_copies_fail_a_veto_that_all_background_passed() -> None:
    sample = load_sample("gluino")
    events = event_tensors(sample.cut("n_b_jets < 1")[:4000])
    generator = AlteredCopies(Alterations(), events)
    torch.manual_seed(3)
    copies = generator(events)
    has_b_jet = (copies.types == 2).any(1)
    assert has_b_jet.any()
    assert (generator.weights(events, copies)[has_b_jet] == 0).all()


def test_copies_that_fail_the_selection_do_not_count(generator: AlteredCopies, events: EventTensors) -> None:
    least_met = events.kinematics[:, 0, LOG_PT].min()
    is_lepton = (events.types >= 3) & (events.types <= 6)
    assert is_lepton.sum(1).min() == 2  # what these events were selected on
    torch.manual_seed(2)
    copies = generator(events)
    weight = generator.weights(events, copies)
    n_leptons = ((copies.types >= 3) & (copies.types <= 6)).sum(1)
    assert (n_leptons < 2).any()
    assert (weight[n_leptons < 2] == 0).all()
    assert weight[n_leptons >= 2].mean() > 0.75
    assert copies.kinematics[:, 0, LOG_PT].min() >= least_met


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fewer_jets": 0.7, "decays": 0.5}, "fewer_jets is 0.7; expected a fraction"),
        ({"scale": -1}, "scale is -1; expected 0 or more"),
        ({"added_pt_gev": (50, 20)}, "added_pt_gev is 50, 20; expected two momenta"),
    ],
)
def test_impossible_alterations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Alterations(**changes)


def test_copies_are_within_the_limits_of_their_types(events: EventTensors, copies: EventTensors) -> None:
    for tag in events.types[:, 1:].unique()[1:]:
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
    assert_as_balanced(AlteredCopies(Alterations(), no_met_needed)(no_met_needed), no_met_needed, 0.999)


def test_nothing_is_closer_than_in_background(events: EventTensors, copies: EventTensors) -> None:
    def share_of_close_jets(which: EventTensors) -> float:
        eta, phi = (which.kinematics[:, 1:, i, None] - which.kinematics[:, None, 1:, i] for i in (ETA, PHI))
        is_jet = which.types[:, 1:] == JET
        is_pair = is_jet[:, :, None] & is_jet[:, None] & ~torch.eye(is_jet.shape[1], dtype=torch.bool)
        return float((torch.hypot(eta, wrap_phi(phi))[is_pair] < 0.6).float().mean())

    assert share_of_close_jets(events) == 0  # jets are that wide
    assert share_of_close_jets(copies) < 0.02


def test_what_is_added_is_balanced(generator: AlteredCopies, events: EventTensors) -> None:
    torch.manual_seed(1)
    more = added(generator, events, [JET, JET], pt_gev=300)
    assert n_of(more, JET).float().mean() == pytest.approx(float(n_of(events, JET).float().mean()) + 2, abs=0.05)
    # Two jets of 300 GeV more; the missing energy hardly knows.
    assert_as_balanced(more, events)
    met = [e.kinematics[:, 0, LOG_PT].exp().median() / 1e3 for e in (events, more)]
    assert met[1] < met[0] + 40


def test_an_invisible_particle_makes_the_rest_recoil(generator: AlteredCopies, events: EventTensors) -> None:
    torch.manual_seed(1)
    changed = added(generator, events, [], pt_gev=1, met_gev=300)
    assert torch.equal(changed.types.sort(1).values, events.types.sort(1).values)
    met = [e.kinematics[:, 0, LOG_PT].exp().median() / 1e3 for e in (events, changed)]
    assert met[1] > met[0] + 100
    visible_gev = [visible(e.kinematics[:, 1:], e.types[:, 1:]).norm(dim=-1).median() for e in (events, changed)]
    assert visible_gev[1] > visible_gev[0] + 60
    assert_as_balanced(changed, events)


def test_boosted_events_have_the_momentum_and_their_masses(events: EventTensors) -> None:
    torch.manual_seed(1)
    delta_pt = 60 * torch.randn(len(events.types), 2)
    moved = events._replace(kinematics=boost_transverse(events.kinematics, events.types.long(), delta_pt))
    total = [visible(e.kinematics[:, 1:], e.types[:, 1:]) + transverse(e.kinematics[:, 0]) for e in (events, moved)]
    error = (total[1] - total[0] - delta_pt).norm(dim=-1)
    assert error.quantile(0.99) < 0.1
    mass = [masses_of_the_first_two(e) for e in (events, moved)]
    torch.testing.assert_close(mass[1], mass[0], rtol=1e-3, atol=0.1)
    still = boost_transverse(events.kinematics, events.types.long(), torch.zeros_like(delta_pt))
    torch.testing.assert_close(still[..., LOG_PT], events.kinematics[..., LOG_PT], atol=1e-4, rtol=1e-4)


def test_full_events_stay_full_and_none_is_none(generator: AlteredCopies, events: EventTensors) -> None:
    torch.manual_seed(1)
    full = events.at(slice(0, 200))
    for _ in range(4):
        full = added(generator, full, [JET] * 8, pt_gev=50)
    assert (full.types != 0).sum(1).float().mean() > 17
    assert torch.isfinite(generator(full).kinematics).all()
    assert len(generator(events.at(slice(0, 0))).types) == 0


def test_copies_lie_where_their_events_lie() -> None:
    events = EventTensors(torch.zeros(2, 19, 4, device="meta"), torch.zeros(2, 19, dtype=torch.uint8, device="meta"))
    task = CopiesTask(None, events, events, None, seed=0, identity="")  # type: ignore[arg-type]
    assert {tensor.device.type for tensor in task.train} == {"meta"}


def test_copies_pass_the_cut_that_events_were_selected_with() -> None:
    """Terms on other columns than observables are those of the unchanged event."""
    sample = load_sample("gluino")
    cut = Cut("n_jets <= 2 and met > 80 and (leading_electron_pt > 30 or n_muons >= 1)")
    events = event_tensors(sample[(sample.label == 0) & cut.passes(sample)][:2000])
    torch.manual_seed(1)
    copies = AlteredCopies(Alterations(), events)(events)
    passed = torch.from_numpy(cut.passes(with_tensors(sample[: len(copies.types)], copies)))
    before, after = (
        AlteredCopies(Alterations(), events, text).weights(events, copies) > 0
        for text in ("process == 'ttbar' and HLT_any", f"{cut.text} and HLT_any")
    )
    assert (after == (before & passed)).all()
    assert 0.1 < (before & ~passed).float().mean() < 0.9
    with pytest.raises(UsageError, match=r"cut 'n_jets <', character"):
        ContrastDetector(cut="n_jets <").check()
