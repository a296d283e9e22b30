"""Background events made odd on purpose."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unmask.detectors.alterations import Alterations, AlteredCopies
from unmask.detectors.momenta import directions
from unmask.events.build import FlatEvents, to_event_set
from unmask.events.event_set import EventSet
from unmask.networks.event_network import ETA, LOG_ENERGY, LOG_PT, PHI
from unmask.networks.event_tensors import EventTensors, event_tensors


def insert(events: EventSet, tags: list[int], *, pt_gev: float, met_gev: float = 0) -> EventSet:
    """Add objects of these types and an invisible particle, with these mean pT; the rest of the event recoils."""
    found = event_tensors(events)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        odd = added(AlteredCopies(Alterations(), found), found, tags, pt_gev=pt_gev, met_gev=met_gev)
    kinematics = odd.kinematics.numpy()
    columns = {
        "tag": odd.types[:, 1:].numpy(),
        "energy_mev": np.exp(kinematics[:, 1:, LOG_ENERGY]),
        "pt_mev": np.exp(kinematics[:, 1:, LOG_PT]),
        "eta": kinematics[:, 1:, ETA],
        "phi": kinematics[:, 1:, PHI],
    }
    met = {"met_mev": np.exp(kinematics[:, 0, LOG_PT]), "met_phi": kinematics[:, 0, PHI]}
    return _rebuilt(replace(events, **met), columns)


def added(
    generator: AlteredCopies, events: EventTensors, tags: list[int], *, pt_gev: float, met_gev: float = 0
) -> EventTensors:
    """Add objects of these types and an invisible particle, with these mean pT, to tensors of events."""
    n = len(events.types)
    types = torch.tensor(tags, dtype=torch.long).expand(n, -1)
    invisible = met_gev * torch.empty(n, 1).exponential_() * directions((n,), torch.device("cpu"))
    new = generator.new_objects(types, torch.full((n, 1), pt_gev), invisible)
    return generator.recoiled(events, events.kinematics, events.types.long(), -invisible, new, types)


def _rebuilt(events: EventSet, columns: dict[str, npt.NDArray[Any]]) -> EventSet:
    """The events with these objects, ordered, cut and padded anew; tag 0 marks those that are gone."""
    is_object = columns["tag"] != 0
    of_event = {name: getattr(events, name) for name in ("row", "event_id", "process_names", "weight", "label")}
    flat = FlatEvents(
        **of_event,
        met_mev=events.met_mev,
        met_phi=events.met_phi,
        n_objects=is_object.sum(axis=1),
        **{name: array[is_object] for name, array in columns.items()},
    )
    return to_event_set(flat, file="")
