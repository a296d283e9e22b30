"""What the trainings of a study cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from unmask.detectors import load_detector
from unmask.detectors.network import NetworkDetector
from unmask.studies.study_tables import StudyTable
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training.loop import LOG


def cost_table(models: Mapping[str, Path], tokenizer_runs: Mapping[str, Path]) -> StudyTable:
    """Weights, epochs and seconds of training of all detectors with a network.

    A VQ-VAE has its own weights and seconds beside those of its detector.

    Parameters
    ----------
    models : folders of detectors, by their names.
    tokenizer_runs : folders where the trainings of their tokenizers were logged, for those that are trained.
    """
    rows = []
    for name, model in models.items():
        detector = load_detector(model)
        if not isinstance(detector, NetworkDetector):
            continue
        parameters = f"{detector.n_parameters:,}"
        seconds = f"{sum(record.seconds for record in detector.history_):,.0f}"
        tokenizer, log = getattr(detector, "tokenizer", None), tokenizer_runs[name] / LOG
        if isinstance(tokenizer, VQVAETokenizer) and log.is_file():
            records = [json.loads(line) for line in log.read_text().splitlines()]
            parameters += f" + {sum(parameter.numel() for parameter in tokenizer.network_.parameters()):,}"
            seconds += f" + {sum(record['seconds'] for record in records):,.0f}"
        rows.append((name, parameters, str(len(detector.history_)), seconds))
    columns = ("method", "parameters", "epochs", "seconds")
    return StudyTable("Cost of the trainings, on the machine where they ran (+ VQ-VAE)", columns, columns, tuple(rows))
