"""Discriminatory detection of distortions: a classifier of background against the same background distorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.detectors.copies import CopiesTask, CopyGenerator, in_order, random_choices
from unmask.detectors.event_detector import EventDetector
from unmask.detectors.momenta import log_mass_factor, reflected_in, reflected_up
from unmask.errors import UsageError
from unmask.kinematics import log_cosh, wrap_phi
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI, BackboneName, EventNetwork
from unmask.networks.event_tensors import EventTensors
from unmask.parameters import Dropout, Fraction, NotNegative
from unmask.training import Task, TrainingSettings

TRAINING = TrainingSettings(learning_rate=5e-4, schedule="plateau", gradient_clip=1.0)
#: Objects of each type whose E / |p| a retagged object can get.
_N_KNOWN = 1024
#: Maximum number of training events whose objects can be added to others.
_MAX_DONORS = 1 << 16


@dataclass(eq=False, repr=False, kw_only=True)
class DDDDetector(EventDetector):
    """Anomaly score from a classifier of background events against the same events distorted.

    The score is the logit of the probability that an event is distorted.

    Parameters
    ----------
    smear
        Standard deviation of the logarithm of each pT and, in radians, of each direction.
    add, remove, retag
        Probability of each object: of another event, to be added; of the event, to be removed; to become one of another
        type. At least one object is, if there is any.
    recoil
        The MET compensates the changes of the objects, so that a distorted event is as balanced as any real one, known
        or not. Otherwise it is smeared like an object, and distortions show as a lack of balance.
    """

    kind = "ddd"

    backbone: BackboneName = "part-sm"
    dropout: Dropout = 0.1
    smear: NotNegative = 0.3
    add: Fraction = 0.3
    remove: Fraction = 0.2
    retag: Fraction = 0.2
    recoil: bool = True
    training: TrainingSettings = TRAINING

    def check(self) -> None:
        super().check()
        if not (self.smear or self.add or self.remove or self.retag):
            raise UsageError("no distortion is left: all strengths are 0")

    def new_task(self, network: EventNetwork, train: EventTensors, validation: EventTensors, **options: Any) -> Task:
        return CopiesTask(network, train, validation, Distorter(self, train), **options)


class Distorter(CopyGenerator):
    """Distorts events so that only the distortion distinguishes them from the others.

    Each event undergoes at least one kind of distortion, every combination as often as the others. Momenta are
    reflected at the lowest pT and the largest \\|eta\\| of a type in training events, a retagged object gets the ratio
    of energy to momentum of an object of its new type, and objects are ordered and cut again.
    """

    def __init__(self, detector: DDDDetector, train: EventTensors) -> None:
        super().__init__(train, n_known=_N_KNOWN)
        self.detector = detector
        self.tags = torch.tensor(sorted(one.tag for one in detector.schema_.types))
        # From all parts of a file that may be sorted by process: a neighbor could only lend what the event has anyway.
        self.donors = train.at(slice(None, None, -(-len(train.types) // _MAX_DONORS)))

    def __call__(self, events: EventTensors) -> EventTensors:
        """Distort each event; added objects come from training events."""
        n, device, detector = len(events.types), events.types.device, self.detector
        is_used = [strength > 0 for strength in (detector.smear, detector.add, detector.remove, detector.retag)]
        is_smeared, is_added_to, is_removed_from, is_retagged = random_choices(n, is_used, device)
        donors = self.donors.at(torch.randint(len(self.donors.types), (n,), device=device))
        kinematics, types = events.kinematics[:, 1:], events.types[:, 1:].long()
        donor_types = donors.types[:, 1:].long()
        types = torch.where(is_removed_from & _picked(types != 0, detector.remove), 0, types)
        is_added = is_added_to & _picked(donor_types != 0, detector.add)
        types = torch.cat([types, torch.where(is_added, donor_types, 0)], 1)
        kinematics = torch.cat([kinematics, donors.kinematics[:, 1:]], 1)
        factor = log_mass_factor(kinematics)
        is_retagged = is_retagged & _picked(types != 0, detector.retag)
        n_types = len(self.tags)
        other = torch.searchsorted(self.tags, types) + torch.randint(1, n_types, types.shape, device=device)
        types = torch.where(is_retagged, self.tags[other % n_types], types)
        factor = torch.where(is_retagged, self.drawn(types)[1], factor)
        kinematics = self._moved(kinematics, types, is_smeared, is_smeared | is_retagged, factor)
        met, met_type = events.kinematics[:, :1], events.types[:, :1]
        distorted = in_order(met, kinematics, types, events.types.shape[1] - 1)
        if detector.recoil:
            return self.balanced(events, distorted)
        met = self._moved(met, met_type.long(), is_smeared, is_smeared, torch.zeros_like(met[..., 0]))
        return EventTensors(torch.cat([met, distorted.kinematics[:, 1:]], 1), distorted.types)

    def _moved(
        self, kinematics: Tensor, types: Tensor, is_smeared: Tensor, is_changed: Tensor, log_mass_factor: Tensor
    ) -> Tensor:
        """Smear where asked, keep within the limits of the types, and recompute the energies."""
        shift = torch.randn_like(kinematics) * self.detector.smear * is_smeared[..., None]
        log_pt = kinematics[..., LOG_PT] + shift[..., LOG_PT]
        log_pt = torch.where(is_changed, reflected_up(log_pt, self.min_log_pt[types]), log_pt)
        eta = kinematics[..., ETA] + shift[..., ETA]
        eta = torch.where(is_changed, reflected_in(eta, self.max_abs_eta[types]), eta)
        phi = kinematics[..., PHI] + shift[..., PHI]
        phi = torch.where(is_smeared, wrap_phi(phi), phi)
        log_energy = torch.where(is_changed, log_pt + log_cosh(eta) + log_mass_factor, kinematics[..., LOG_ENERGY])
        return torch.stack([log_energy, log_pt, eta, phi], -1)


def _picked(is_there: Tensor, probability: float) -> Tensor:
    """Pick each object with a probability, and at least one."""
    drawn = torch.rand(is_there.shape, device=is_there.device).masked_fill(~is_there, 2.0)
    return is_there & (drawn <= drawn.amin(1, keepdim=True).clamp_min(probability))
