"""Events that the tests of several detectors learn from."""

import pytest

from unmask import load_sample
from unmask.events.event_set import EventSet


@pytest.fixture(scope="package")
def background() -> EventSet:
    events = load_sample("gluino")
    return events[events.label == 0][:9000]
