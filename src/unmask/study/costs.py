"""What the trainings of a study cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unmask.detectors import Detector, load_detector
from unmask.detectors.network import NetworkDetector
from unmask.study.tables import StudyTable
from unmask.tokenizers.vqvae import VQVAETokenizer


def cost_table(models: Mapping[str, Path]) -> StudyTable:
    """Weights, epochs and seconds of training of all detectors with a network.

    A VQ-VAE has its own weights and seconds beside those of its detector.

    Parameters
    ----------
    models : folders of detectors, by their names.
    """
    costs = {name: _cost(load_detector(model)) for name, model in models.items()}
    rows = tuple((name, *cost) for name, cost in costs.items() if cost is not None)
    columns = ("method", "parameters", "epochs", "seconds")
    title = "Cost of the trainings, on the machine where they ran (+: of the VQ-VAE; ?: not known)"
    return StudyTable(title, columns, columns, rows)


def _cost(detector: Detector) -> tuple[str, ...] | None:
    """Weights, epochs and seconds; None for a detector without a network."""
    if not isinstance(detector, NetworkDetector):
        return None
    parameters = f"{detector.n_parameters:,}"
    seconds = f"{sum(record.seconds for record in detector.history_):,.0f}"
    tokenizer = getattr(detector, "tokenizer", None)
    if isinstance(tokenizer, VQVAETokenizer):
        parameters += f" + {sum(parameter.numel() for parameter in tokenizer.network_.parameters()):,}"
        history = tokenizer.history_
        seconds += f" + {sum(record.seconds for record in history):,.0f}" if history else " + ?"
    return parameters, str(len(detector.history_)), seconds
