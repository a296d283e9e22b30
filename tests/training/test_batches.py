"""Scoring goes on with smaller batches where the memory of a GPU does not hold larger ones."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unmask
from unmask import load_sample
from unmask.training import in_batches


def test_scores_do_not_depend_on_the_memory_of_the_gpu() -> None:
    events = load_sample("gluino")[:300]
    detector: Any = unmask.load("sample:gluino-model")
    expected = detector.score_events(events, device="cpu")
    forward, sizes = type(detector.network_).forward, list[int]()

    def small(network: nn.Module, kinematics: Tensor, types: Tensor) -> Tensor:
        sizes.append(len(types))
        if len(types) > 80:
            raise torch.OutOfMemoryError("CUDA out of memory")
        result: Tensor = forward(network, kinematics, types)
        return result

    with patch.object(type(detector.network_), "forward", small), pytest.warns(UserWarning, match="GPU memory is too"):
        scores = detector.score_events(events, device="cpu")
    assert sizes == [300, 150, 75, 75, 75, 75]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_one_event_that_is_too_much_is_an_error() -> None:
    def fail(_part: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.warns(UserWarning, match="going on with half"), pytest.raises(torch.OutOfMemoryError):
        in_batches(fail, torch.zeros(3), 2)
