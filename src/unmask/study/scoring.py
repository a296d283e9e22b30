"""What a trained detector of a study does: score events, explain them, choose a threshold, search data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.artifacts import MANIFEST, provenance, sha256_of_file
from unmask.errors import BadDataError
from unmask.io.read import stream_events
from unmask.scores.calibration import Calibration, ScoredBy, calibrate
from unmask.scores.score_table import read_scores
from unmask.study.data import check_not_trained_on
from unmask.study.stages import StudyReporter
from unmask.workflow.score import Scoring

#: Most anomalous events that are explained, of each detector.
N_EXPLAINED = 50
#: Background efficiencies of the threshold: the first for which there are enough validation events.
BACKGROUND_EFFICIENCIES = (0.01, 0.1)


@dataclass(frozen=True)
class Scorer:
    """Scores files of events with a detector that was saved in a folder."""

    model: Path
    device: str
    reporter: StudyReporter

    def score_tests(self, files: Sequence[Path], out: Path) -> None:
        """Score test events, and make sure that the detector was not trained on them."""
        self._score(files, out, explain=N_EXPLAINED)
        known = read_scores(out).was_trained_on
        if known is not None:
            check_not_trained_on(known, "test events")

    def calibrate(self, validation: Path, out: Path, calibration: Path) -> None:
        """Score the validation events to ``out``, and choose a threshold on them.

        Raises
        ------
        BadDataError
            If there are too few events, or too many of the same score, even for the highest efficiency.
        """
        self._score([validation], out)
        background, scored_by = read_scores(out), ScoredBy.of_files([out])
        for efficiency in BACKGROUND_EFFICIENCIES:
            try:
                found = calibrate(background, background_efficiency=efficiency, scored_by=scored_by)
            except BadDataError:
                if efficiency == BACKGROUND_EFFICIENCIES[-1]:
                    raise
            else:
                found.save(calibration)
                break

    def search(self, data: Path, calibration: Path, out: Path, flagged: Path) -> None:
        """Score data, and write the events above the threshold with their p-values."""
        self._score([data], out, explain=N_EXPLAINED)
        known = Calibration.load(calibration)
        found = known.flag(out)
        found.write(flagged, metadata=provenance(calibration=sha256_of_file(calibration / MANIFEST), scores=[out.name]))
        for text in found.notes:
            self.reporter.note(f"warning: {text}")
        flagged_weight, expected = found.scores.weight.sum(), known.measured.value * found.weight
        self.reporter.note(
            f"{len(found.scores):,} of {found.n_events:,} events are above the threshold -> {flagged}; sum of weights "
            f"{flagged_weight:,.1f}, {expected:,.1f} expected if all are background"
        )

    def _score(self, files: Sequence[Path], out: Path, *, explain: int = 0) -> None:
        """Score events, and explain the most anomalous where the detector can."""
        scoring = Scoring(self.model, explain=explain, device=self.device)
        if explain and not scoring.can_explain:
            self.reporter.note(f"{self.model.name}: this kind of detector cannot say why events are anomalous")
            scoring = replace(scoring, explain=0)
        events = (some for path in files for some in stream_events(path))
        inputs = [{"file": path.name, "sha256": sha256_of_file(path)} for path in files]
        scoring.write(events, out, inputs=inputs)
