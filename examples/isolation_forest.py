"""Bring your own detector: an isolation forest of scikit-learn on 15 numbers per event.

unmask data split sample:gluino --out events --seed 1
python examples/isolation_forest.py events/train.parquet events/test.parquet scores.parquet
unmask evaluate scores.parquet
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import IsolationForest

from unmask import EventSet, read_events
from unmask.scores.score_table import Scores, write_scores


def features(events: EventSet) -> npt.NDArray[Any]:
    """Numbers of objects by type; log of MET, HT and the pT of six leading objects: (n_events, 15)."""
    counts = [(events.tag == tag).sum(axis=1) for tag in range(1, 8)]
    pt = np.where(events.is_object, events.pt_mev, 0)  # padding may hold anything
    leading = -np.sort(-pt, axis=1)[:, :6]
    momenta = np.column_stack([events.met_mev, events.ht_mev, leading])
    return np.column_stack([*counts, np.log1p(momenta / 10_000)])


def main(train_file: str, test_file: str, out: str) -> None:
    """Learn from one file of background events, and score the events of another."""
    train, test = read_events(train_file), read_events(test_file)
    forest = IsolationForest(n_estimators=200, random_state=1).fit(features(train))
    score = -forest.score_samples(features(test))  # larger must be more anomalous
    write_scores(out, [Scores.of(test, score)])


if __name__ == "__main__":
    main(*sys.argv[1:])
