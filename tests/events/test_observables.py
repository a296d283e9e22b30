"""Observables of events, and that a further one needs a single entry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np

import unmask.events.observables as registry
from unmask.events.event_set import EventSet
from unmask.events.observables import OBSERVABLES


def test_jets_include_b_jets_everywhere(make_events: Callable[..., EventSet]) -> None:
    events = make_events(100)
    is_jet = (events.tag == 1) | (events.tag == 2)
    np.testing.assert_array_equal(OBSERVABLES["n_jets"].of(events), is_jet.sum(axis=1))
    np.testing.assert_array_equal(OBSERVABLES["n_b_jets"].of(events), (events.tag == 2).sum(axis=1))
    np.testing.assert_allclose(OBSERVABLES["ht"].of(events), np.where(is_jet, events.pt_mev, 0).sum(axis=1), rtol=1e-6)
    assert events.n_jets.max() > events.n_b_jets.max()


def test_a_further_observable_is_one_entry() -> None:
    code = f"""
import sys, types
from pathlib import Path
path = Path({registry.__file__!r})
text = path.read_text().replace('''
        Observable("sum_pt"''', '''
        Observable("leading_pt", "leading pT", lambda events: events.pt_mev.max(axis=1)),
        Observable("sum_pt"''')
assert "leading" in text
module = types.ModuleType("unmask.events.observables")
sys.modules[module.__name__] = module
exec(compile(text, path, "exec"), module.__dict__)

import numpy as np
import pytest
from unmask import load_sample
from unmask.detectors.untrained import UntrainedDetector
from unmask.events.summary import summarize
from unmask.scores.combination import untrained_scores
from unmask.report.other_figures import draw_events
from unmask.scores.score_table import Scores
events = load_sample("gluino")[::50]
scores = Scores.of(events, np.zeros(len(events)))
np.testing.assert_array_equal(scores.observables["leading_pt_mev"], events.pt_mev.max(axis=1))
found = dict(untrained_scores(scores.observables, scores.label == 0, scores.weight, scores.event_key))
np.testing.assert_array_equal(found["leading pT"], events.pt_mev.max(axis=1))
assert len(summarize([events])["leading_pt_quartiles_gev"]) == 3
assert "leading pT [GeV]" in [axis.get_xlabel() for axis in draw_events(events).figure.axes]
background = events[events.label == 0]
assert events.cut("leading_pt > 500").pt_mev.max(axis=1).min() > 500e3
assert UntrainedDetector("leading-pt").fit(background, background).score_events(events).max() == events.pt_mev.max()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr
