"""A study: the stages from event files to a report, each of which is done once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, partialmethod
from pathlib import Path
from typing import Any

import unmask
from unmask.artifacts import FORMAT_VERSION, MANIFEST, Json, atomic_path, provenance, sha256_of_file
from unmask.detectors import Detector
from unmask.detectors.prior import without_families
from unmask.errors import BadDataError, MissingExtraError, UsageError
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.events.event_set import BACKGROUND, SIGNAL, EventSet
from unmask.io.read import read_events, stream_events
from unmask.report.runs import Run, read_runs
from unmask.report.search_figures import search_figures
from unmask.report.style import FORMATS, Style, write_drawings
from unmask.scores.calibration import Calibration, ScoredBy, calibrate
from unmask.scores.explanations import explained_path
from unmask.scores.flagged import pick_list_paths
from unmask.scores.score_table import Scores, read_scores
from unmask.searches.search import search
from unmask.study.data import StudyFiles, write_background, write_data, write_prior, write_signal
from unmask.study.published import Study, prior_notes
from unmask.study.results import cost_table, write_detector_figures, write_results, write_study_report
from unmask.study.stages import RECORDS, Ledger, Stage, StudyReporter, run_stages
from unmask.tokenizers import Tokenizer, load_tokenizer
from unmask.workflow.fit import few_events, fit_detector, fit_tokenizer, run_folder_of
from unmask.workflow.score import Scoring
from unmask.workflow.settings import Settings

MARK = "study.json"
#: Most anomalous events that are explained, per detector.
N_EXPLAINED = 50
#: Events that are scored at a time.
_CHUNK_EVENTS = 50_000
#: Background efficiencies of the threshold: the first for which there are enough validation events.
EFFICIENCIES = (0.01, 0.1)
#: The version of what a stage makes, raised by hand (first to 2) whenever unmask makes something else of the same
#: settings and inputs: by the first word of the stage's name ("scores"), and for what is fitted by its kind too
#: ("detector ddd"). It is not the version of the package, nor a hash of the code: a corrected message must not cost a
#: week of training. Figures, tables and report take seconds: they do depend on the version of the package.
VERSIONS: dict[str, int] = {
    "detector contrast": 2,
    "detector deep-svdd": 2,
    "scores": 2,
    "calibration": 3,
    "search": 2,
}


@dataclass(frozen=True)
class StudyRun:
    """A study in a folder: settings of detectors by the names that tables give them, files, and the split's seed."""

    out: Path
    study: Study
    detectors: Mapping[str, Settings]
    files: StudyFiles
    seed: int = 0
    device: str = "auto"
    reporter: StudyReporter = field(default_factory=StudyReporter)
    style: Style = "plain"
    #: Families that are left out of the prior, by the names of the detectors that have one.
    priors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _events_read: dict[str, EventSet] = field(default_factory=dict, init=False, repr=False)
    _held_out_read: dict[str, Scores] = field(default_factory=dict, init=False, repr=False)
    _runs_read: dict[str, Run] = field(default_factory=dict, init=False, repr=False)

    def check(self) -> None:
        """Refuse a folder that holds another study, or something else, and files that contradict each other."""
        self.files.check()
        try:
            name = json.loads((self.out / MARK).read_text())["study"]
        except (FileNotFoundError, NotADirectoryError):
            if self.out.exists() and not (self.out.is_dir() and all(map(_is_beginning, self.out.iterdir()))):
                raise UsageError(f"{self.out} exists and is not the folder of a study; choose another name") from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadDataError(f"cannot be read ({error})", path=self.out / MARK) from None
        else:
            if name != self.study.name and (self.out / RECORDS).exists():
                raise UsageError(f"{self.out} holds a study of {name}, not {self.study.name}; choose another folder")

    @cached_property
    def ledger(self) -> Ledger:
        """The record of what has been done."""
        return Ledger(self.out)

    def run(self) -> list[Stage]:
        """Do what is missing or has changed, and return it; see :func:`run_stages` for failures."""
        self.check()
        with atomic_path(self.out / MARK) as scratch:
            scratch.write_text(json.dumps({"format_version": 1, "study": self.study.name}) + "\n")
        return run_stages(self.stages, self.ledger, self.reporter)

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages in their order."""
        stages = [*self._data_stages()]
        for i, name in enumerate(self.detectors, start=1):
            stages += self._detector_stages(name, f"[{i}/{len(self.detectors)}] {name}")
        return [*stages, *self._result_stages()]

    def _stage(self, name: str, *what: Any, kind: str = "", **more: Any) -> Stage:
        """Make a stage of a version."""
        work = name.split()[0]
        is_quick = work in ("figures", "results", "report", "statistics")
        code = unmask.__version__ if is_quick else VERSIONS.get(f"{work} {kind}".strip())
        if work in ("tokenizer", "detector", "calibration"):  # those of another format cannot be read
            code = f"{FORMAT_VERSION}.{code or 1}"
        return replace(Stage(name, *what, **more), version=code)

    def _fit_stage(
        self, name: str, fit: Callable[[], None], folder: Path, inputs: Sequence[Path], model: Any, **more: Json
    ) -> Stage:
        settings: dict[str, Json] = {"kind": model.kind} | model.settings() | more
        if "training" in settings:  # all that it depends on besides its inputs, but not the device
            settings["training"] = {key: value for key, value in settings["training"].items() if key != "device"}
        return self._stage(name, fit, [folder], inputs, settings, kind=model.kind, run_folder=run_folder_of(folder))

    def _data_stages(self) -> Iterator[Stage]:
        files, reporter, among = self.files, self.reporter, self._events("signal-of-study")
        signals = [among] if files.background.signal_process else []
        train, *others = map(self._events, ("train", "validation", "test"))
        background = partial(write_background, files, among.parent, signals, self.seed, reporter)
        signal, data, prior = map(self._events, ("signal", "data", "prior"))
        write_signals = lambda: write_signal(files, signal, signals, self._read("train"), reporter)  # noqa: E731
        for name, sources, outputs, inputs, make in (
            ("background", files.background, [train, *others, *signals], [], background),
            ("signal", files.signal, [signal], [train, *signals], write_signals),
            ("data", files.data, [data], [], partial(write_data, files, data, reporter)),
            ("prior", files.theories, [prior], [], partial(write_prior, files, prior, reporter)),
        ):
            if sources.files or (name == "signal" and signals):
                more: dict[str, Json] = {"background": {"seed": self.seed}, "prior": {"prior": files.prior}}
                settings = sources.settings() | more.get(name, {})
                settings["keep_duplicates"] = files.keep_duplicates
                settings["files"] = [[file.name, self.ledger.digest(file)] for file in sources.files]
                del settings["chunk_events"]
                yield self._stage(name, make, outputs, inputs, settings, reads=sources.files, stops_all=True)

    def _detector_stages(self, name: str, title: str) -> Iterator[Stage]:
        settings, model, tests = self.detectors[name], self._model(name), self._test_files
        train, validation, data = map(self._events, ("train", "validation", "data"))
        scores, calibration, figures = self._scores(name), self.calibration_of(name), self.out / "figures" / name
        searched, explained = self._scores(f"{name}-data"), {"n_explained": N_EXPLAINED}
        to_learn, tokenizer, folder = [train, validation], None, self.out / "tokenizers" / name
        if settings.tokenizer:
            tokenizer = settings.new_tokenizer()
            fit = partial(self._fit, fit_tokenizer, settings, folder, f"{title} tokenizer")
            yield self._fit_stage(f"tokenizer {name}", fit, folder, to_learn, tokenizer)
            to_learn = [*to_learn, folder]
        detector = settings.new_detector(tokenizer)
        fit = partial(self._fit, fit_detector, settings, model, title, folder if tokenizer else None, name)
        to_learn += [self._events("prior")] if name in self.priors else []
        yield self._fit_stage(f"detector {name}", fit, model, to_learn, detector, left_out=self.priors.get(name))
        make, outputs, inputs = partial(self._test, name), [scores, explained_path(scores)], [model, *tests]
        yield self._stage(f"scores {name}", make, outputs, inputs, explained, scores=tests)
        make, outputs, inputs = partial(self._calibrate, name), [self._held_out(name), calibration], [model, validation]
        efficiencies = {"background_efficiencies": list(EFFICIENCIES)}
        yield self._stage(f"calibration {name}", make, outputs, inputs, efficiencies, scores=(validation,))
        if self.files.data.files:
            flagged = self._flagged(name)
            outputs = [searched, explained_path(searched), flagged, *pick_list_paths(flagged)]
            inputs = [model, calibration, data]
            yield self._stage(f"search {name}", partial(self._search, name), outputs, inputs, explained, scores=(data,))
            make, inputs = partial(self._measure_excess, name), [scores, self._held_out(name), searched]
            yield self._stage(f"statistics {name}", make, [self._result(name)], inputs, {"style": self.style})
        make = partial(self._draw, name, figures)
        yield self._stage(f"figures {name}", make, [figures], [model, *tests], {"style": self.style})

    def _result_stages(self) -> Iterator[Stage]:
        """Results and report, both from one evaluation."""
        names, settings = list(self.detectors), {"published": {**self.study.published}, "style": self.style}
        scores, models = [*map(self._scores, names)], [*map(self._model, names), *map(self.calibration_of, names)]
        if self.files.has_signal:
            known, results = settings | {"notes": {**self.study.notes}}, self.out / "results"
            yield self._stage("results", partial(self._write_results, results), [results], [*scores, *models], known)
        scores += self._searched
        figures, report = {name: self.out / "figures" / name for name in names}, self.out / "report.html"
        title = f"{self.study.name} study" if self.study.signal_processes else f"Anomaly study: {self.out.name}"
        make = partial(self._write_report, report, figures, title)
        inputs = [*scores, *map(explained_path, scores), *figures.values(), *models, *map(self._result, names)]
        yield self._stage("report", make, [report], inputs, settings | {"title": title})

    def _fit(
        self,
        fit: Callable[..., Tokenizer | Detector],
        settings: Settings,
        folder: Path,
        title: str,
        tokenizer: Path | None = None,
        name: str = "",
    ) -> None:
        """Fit a tokenizer or a detector and save it."""
        fitted: dict[str, Any] = {"tokenizer": load_tokenizer(tokenizer)} if tokenizer else {}
        if name in self.priors:
            fitted["prior"] = without_families(self._read("prior"), self.priors[name])
        more = {"run_folder": run_folder_of(folder), "watch": self.reporter.training, "title": title}
        (made := fit(settings, self._read("train"), self._read("validation"), **more, **fitted)).save(folder)
        for text in few_events(made, self._read("train")):
            self.reporter.note(f"{title}: {text}")

    def _score(self, name: str, events: Iterable[EventSet], files: Sequence[Path], out: Path, explain: int) -> None:
        """Score events, explain the most anomalous where the detector can, and warn if they are unlike background."""
        scoring = Scoring(self._model(name), explain=explain, device=self.device)
        if explain and not scoring.detector.can_explain:
            self.reporter.note(f"{name}: a {scoring.detector.kind} detector does not explain its scores")
            scoring = replace(scoring, explain=0)
        inputs = [{"file": path.name, "sha256": self.ledger.digest(path)} for path in files]
        chunks = (part for some in events for part in some.chunks(_CHUNK_EVENTS))
        for text in scoring.warnings([scoring.write(chunks, out, inputs=inputs)]):
            self.reporter.note(f"{name}: {text}")

    def _test(self, name: str) -> None:
        """Score test events."""
        events = map(self._read, self._test_names)
        self._score(name, events, self._test_files, self._scores(name), N_EXPLAINED)

    def _calibrate(self, name: str) -> None:
        """Score the validation events, and choose a threshold on them."""
        out = self._held_out(name)
        self._score(name, [self._read("validation")], [self._events("validation")], out, 0)
        background, scored_by = self._read_held_out(name), ScoredBy.of_files([out])
        for efficiency in EFFICIENCIES:
            try:
                calibration = calibrate(background, background_efficiency=efficiency, scored_by=scored_by)
                calibration.save(self.calibration_of(name))
                break
            except BadDataError:
                if efficiency == EFFICIENCIES[-1]:
                    raise

    def _search(self, name: str) -> None:
        """Score data, and write the events above the threshold with their p-values."""
        data, out, path = self._events("data"), self._scores(f"{name}-data"), self._flagged(name)
        folder = self.calibration_of(name)
        self._score(name, stream_events(data), [data], out, N_EXPLAINED)
        calibration = Calibration.load(folder)
        flagged = calibration.flag(out)
        flagged.write(path, metadata=provenance(calibration=sha256_of_file(folder / MANIFEST), scores=[out.name]))
        for text in flagged.notes:
            self.reporter.note(f"warning: {text}")
        weight, expected = flagged.scores.weight.sum(), calibration.measured.value * flagged.weight
        self.reporter.note(
            f"{name}: {len(flagged.scores):,} of {flagged.n_events:,} data events are above the threshold -> {path}\n"
            f"  sum of weights {weight:,.1f}; {expected:,.1f} expected if all are background"
        )

    def _measure_excess(self, name: str) -> None:
        """Search data for an excess over the test background, and set limits on the signals."""
        tested, data = self._run(name).scores, self._run(f"{name}-data").scores
        process = tested.process
        signals = {one: tested[process == one] for one in dict.fromkeys(process[tested.label == SIGNAL].tolist())}
        background, calibrating = tested[tested.label == BACKGROUND], self._read_held_out(name)
        shutil.rmtree(self._result(name), ignore_errors=True)
        try:
            result = search(background, data, signals, calibrating=calibrating)
            with atomic_path(self._result(name)) as folder:
                folder.mkdir()
                result.write(folder)
                write_drawings(folder / "figures", search_figures(result.to_json(), self.style), FORMATS)
        except (BadDataError, MissingExtraError) as error:  # all else of the study stands
            self.reporter.note(f"{name}: no significance and limits: {error}")

    def _draw(self, name: str, folder: Path) -> None:
        events = EventSet.concatenate([*map(self._read, self._test_names)])
        write_detector_figures(folder, name, Scoring(self._model(name)).detector, events, self.style)

    def _write_results(self, folder: Path) -> None:
        scores = {name: self._run(name).scores for name in self.detectors}
        costs = cost_table({name: self._model(name) for name in self.detectors})
        known = [*map(self.calibration_of, self.detectors)]
        write_results(folder, self.study, scores, self._evaluation, costs, known, self.style)

    def _write_report(self, path: Path, figures: Mapping[str, Path], title: str) -> None:
        runs = [self._run(path.stem) for path in (*map(self._scores, self.detectors), *self._searched)]
        evaluation = self._evaluation if self.files.has_signal else None
        known, searches = [*map(self.calibration_of, self.detectors)], self.searches()
        write_study_report(
            path, self.study, runs, evaluation, figures, known, title=title, style=self.style, searches=searches
        )

    @cached_property
    def _evaluation(self) -> Evaluation:
        """Evaluation of the test events; made once for results and report."""
        evaluation = evaluate({name: self._run(name).scores for name in self.detectors})
        return replace(evaluation, notes=(*evaluation.notes, *prior_notes(self.priors)))

    def _run(self, name: str) -> Run:
        """Scores of test events, or of data; read once for all stages."""
        if name not in self._runs_read:
            (self._runs_read[name],) = read_runs([self._scores(name)])
        return self._runs_read[name]

    def _read_held_out(self, name: str) -> Scores:
        """Scores of validation events; read once for threshold and statistics."""
        if name not in self._held_out_read:
            self._held_out_read[name] = read_scores(self._held_out(name))
        return self._held_out_read[name]

    def _read(self, name: str) -> EventSet:
        """Training, validation, test or signal events; read once for all detectors."""
        if name not in self._events_read:
            self._events_read[name] = read_events(self._events(name))
        return self._events_read[name]

    @property
    def _test_names(self) -> list[str]:
        return ["test", "signal"] if self.files.has_signal else ["test"]

    @property
    def _test_files(self) -> list[Path]:
        return [*map(self._events, self._test_names)]

    @property
    def _searched(self) -> list[Path]:
        return [self._scores(f"{name}-data") for name in self.detectors] if self.files.data.files else []

    def _file(self, folder: str, name: str) -> Path:
        return self.out / folder / f"{name}.parquet"

    _events, _scores = partialmethod(_file, "events"), partialmethod(_file, "scores")
    _held_out, _flagged = partialmethod(_file, "validation-scores"), partialmethod(_file, "flagged")

    def _model(self, name: str) -> Path:
        return self.out / "models" / name

    def searches(self) -> dict[str, Json]:
        """Contents of search.json by the names of the detectors with which data were searched."""
        files = {name: self._result(name) / "search.json" for name in self.detectors}
        return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}

    def _result(self, name: str) -> Path:
        return self.out / "search" / name

    def calibration_of(self, name: str) -> Path:
        """Folder of the threshold of a detector."""
        return self.out / "calibrations" / name


def _is_beginning(path: Path) -> bool:
    """Whether this is all that there is of a study at first: the mark on its way, of this process or of another."""
    return path.name.startswith(f".{MARK}.")
