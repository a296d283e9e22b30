"""Numbers that describe a whole event."""

from dataclasses import replace

import numpy as np

from unmask import load_sample
from unmask.events.quantities import QUANTITIES


def test_the_net_lepton_charge_counts_like_charges() -> None:
    events = load_sample("gluino")[:4]
    tags = np.zeros_like(events.tag)
    tags[:, :4] = [[3, 4, 1, 2], [3, 5, 7, 0], [4, 6, 6, 3], [1, 2, 0, 0]]  # e- e+ | e- mu- | e+ mu+ mu+ e- | none
    charge = QUANTITIES["lepton_charge"]
    assert charge.of(replace(events, tag=tags)).tolist() == [0, 2, 2, 0]
    assert charge.show(2.0) == "2"
