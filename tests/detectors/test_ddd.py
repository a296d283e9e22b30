"""Distorted copies of events: what changes, what stays, and what must not give them away."""

import math
from itertools import pairwise

import pytest
import torch

from unmask import load_sample
from unmask.detectors.ddd import DDDDetector, Distorter
from unmask.detectors.momenta import log_mass_factor
from unmask.errors import UsageError
from unmask.events.objects import MET_TYPE
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.event_tensors import EventTensors, event_tensors

NOTHING = {"smear": 0.0, "add": 0.0, "remove": 0.0, "retag": 0.0, "recoil": False}


@pytest.fixture(scope="module")
def events() -> EventTensors:
    return event_tensors(load_sample("four-top")[::10])


def distorted(events: EventTensors, **strengths: float | bool) -> EventTensors:
    torch.manual_seed(3)
    return Distorter(DDDDetector(**(NOTHING | strengths)), events)(events)  # type: ignore[arg-type]


def n_objects(events: EventTensors) -> torch.Tensor:
    return (events.types[:, 1:] != 0).sum(1)


def test_smearing_changes_all_momenta_and_no_type(events: EventTensors) -> None:
    smeared = distorted(events, smear=0.3)
    # Of a type the order by pT may change.
    assert torch.equal(smeared.types, events.types)
    is_object = events.types[:, 1:] != 0
    for i in (LOG_PT, ETA, PHI):
        changed = smeared.kinematics[:, 1:, i] != events.kinematics[:, 1:, i]
        assert changed[is_object].float().mean() > 0.99
    spread = (smeared.kinematics - events.kinematics)[:, 0, LOG_PT].std()
    assert float(spread) == pytest.approx(0.3, rel=0.1)


def test_adding_takes_objects_of_other_events(events: EventTensors) -> None:
    more = distorted(events, add=0.3)
    gained = n_objects(more) - n_objects(events)
    assert gained.min() >= 1  # none of these events is full
    assert 1 < gained.float().mean() < 5
    known = {tuple(row) for row in events.kinematics[:, 1:].reshape(-1, 4).tolist()}
    assert all(tuple(row) in known for row in more.kinematics[:50, 1:].reshape(-1, 4).tolist())
    torch.testing.assert_close(more.kinematics[:, 0], events.kinematics[:, 0])


def test_what_is_added_comes_from_all_training_events(events: EventTensors) -> None:
    torch.manual_seed(3)
    first = events.at(slice(0, 20))  # such as those of one process, in a file that is sorted by it
    more = Distorter(DDDDetector(**(NOTHING | {"add": 0.3})), events)(first)  # type: ignore[arg-type]
    mine = {tuple(row) for row in first.kinematics[:, 1:].reshape(-1, 4).tolist()}
    found = [tuple(row) for row in more.kinematics[:, 1:].reshape(-1, 4).tolist()]
    assert len([row for row in found if row not in mine]) >= 20


def test_removing_leaves_a_part_of_the_event(events: EventTensors) -> None:
    fewer = distorted(events, remove=0.2)
    lost = n_objects(events) - n_objects(fewer)
    assert lost.min() >= 1
    share = lost.sum() / n_objects(events).sum()
    assert 0.15 < float(share) < 0.3
    for i in range(20):
        mine = {tuple(row) for row in events.kinematics[i].tolist()}
        assert {tuple(row) for row in fewer.kinematics[i].tolist()} <= mine | {(0.0, 0.0, 0.0, 0.0)}


def test_retagging_changes_types_and_not_directions(events: EventTensors) -> None:
    retagged = distorted(events, retag=0.2)
    torch.testing.assert_close(n_objects(retagged), n_objects(events))
    n_changed = sum(
        ((retagged.types == tag).sum(1) != (events.types == tag).sum(1)).float().mean() for tag in range(1, 8)
    )
    assert n_changed > 1.5  # types of an event whose number has changed
    for old, new in zip(events.kinematics[:100, 1:, PHI], retagged.kinematics[:100, 1:, PHI], strict=True):
        torch.testing.assert_close(old.sort().values, new.sort().values)


@pytest.mark.parametrize("recoil", [True, False])
def test_nothing_but_the_distortion_gives_them_away(events: EventTensors, recoil: bool) -> None:
    made = distorted(events, smear=0.5, add=0.5, remove=0.3, retag=0.3, recoil=recoil)
    assert torch.isfinite(made.kinematics).all()
    assert made.kinematics.dtype == events.kinematics.dtype
    assert made.types.dtype == events.types.dtype
    assert (made.types[:, 0] == MET_TYPE).all()
    # Order by type, then by falling pT, padding last and zero.
    for types, log_pt in zip(made.types[:200, 1:].tolist(), made.kinematics[:200, 1:, LOG_PT].tolist(), strict=True):
        keys = [(tag or 99, -value) for tag, value in zip(types, log_pt, strict=True)]
        assert all(one <= other for one, other in pairwise(keys))
    assert (made.kinematics[made.types == 0] == 0).all()
    # The thresholds of each type hold, energies belong to momenta, and electrons have no more mass than they had.
    for tag in events.types.unique()[1:]:
        mine, theirs = events.kinematics[events.types == tag], made.kinematics[made.types == tag]
        assert theirs[:, LOG_PT].min() >= mine[:, LOG_PT].min() - 1e-5
        assert theirs[:, ETA].abs().max() <= mine[:, ETA].abs().max() + 1e-5
        assert theirs[:, PHI].abs().max() <= math.pi + 1e-5
        assert log_mass_factor(theirs).max() <= log_mass_factor(mine).max() + 1e-4
        assert log_mass_factor(theirs).min() >= log_mass_factor(mine).min() - 1e-4
    torch.testing.assert_close(made.kinematics[:, 0, LOG_ENERGY], made.kinematics[:, 0, LOG_PT])


def test_with_recoil_the_event_stays_balanced(events: EventTensors) -> None:
    def total(some: EventTensors) -> torch.Tensor:
        pt = some.kinematics[..., LOG_PT].exp() / 1e3 * (some.types != 0)
        phi = some.kinematics[..., PHI]
        return torch.stack([(pt * phi.cos()).sum(1), (pt * phi.sin()).sum(1)], 1)

    strengths = {"smear": 0.3, "add": 0.3, "remove": 0.2, "retag": 0.2}
    moved = {
        recoil: (total(distorted(events, recoil=recoil, **strengths)) - total(events)).norm(dim=1)
        for recoil in (True, False)
    }
    # All but those whose MET was reflected at its threshold.
    assert (moved[True] < 0.1).float().mean() > 0.7
    assert (moved[False] < 0.1).float().mean() < 0.1


def test_every_draw_is_new_and_seeds_repeat_it(events: EventTensors) -> None:
    distorter = Distorter(DDDDetector(), events)
    torch.manual_seed(1)
    first, second = distorter(events), distorter(events)
    torch.manual_seed(1)
    again = distorter(events)
    assert torch.equal(first.kinematics, again.kinematics)
    assert not torch.equal(first.kinematics, second.kinematics)


def test_wrong_strengths_are_listed_together() -> None:
    with pytest.raises(UsageError, match=r"smear is -1.*add is 2.*retag is -0.1"):
        DDDDetector(smear=-1.0, add=2.0, retag=-0.1).check()
    with pytest.raises(UsageError, match="all strengths are 0"):
        DDDDetector(smear=0.0, add=0.0, remove=0.0, retag=0.0).check()
