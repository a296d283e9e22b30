"""From event files to a report: the stages of a study, each of which is done once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from unmask.artifacts import Json, atomic_path
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.events.event_set import EventSet
from unmask.io.read import read_events
from unmask.report.style import Style
from unmask.scores.explanations import explained_path
from unmask.scores.score_table import Scores, read_scores
from unmask.study.configurations import Configuration, Study
from unmask.study.data import EventFiles, EventReader
from unmask.study.results import write_configuration_figures, write_results, write_study_report
from unmask.study.scoring import BACKGROUND_EFFICIENCIES, N_EXPLAINED, Scorer
from unmask.study.stages import RECORDS, Ledger, Stage, StudyReporter, run_stages
from unmask.study.tables import cost_table
from unmask.tokenizers import Tokenizer, load_tokenizer

MARK = "study.json"
_FORMAT_VERSION = 1
#: The version of what a stage makes, raised by hand (first to 2) whenever unmask comes to make something else of the
#: same settings and inputs: by the first word of the stage's name ("scores"), and for what is fitted by its kind too
#: ("detector ddd"). It is not the version of the package, nor a hash of the code: a corrected message must not cost a
#: week of training. Figures, tables and report take seconds: they do depend on the version of the package.
VERSIONS: dict[str, int] = {"detector deep-svdd": 2}


@dataclass(frozen=True)
class StudyRun:
    """A study in a folder: what is trained with which events, and where all of it goes.

    Raises
    ------
    UsageError
        If the folder holds another study, or something else.
    """

    out: Path
    study: Study
    configurations: Sequence[Configuration]
    files: EventFiles
    seed: int = 0
    device: str = "auto"
    reporter: StudyReporter = field(default_factory=StudyReporter)
    style: Style = "plain"

    def __post_init__(self) -> None:
        try:
            found = json.loads((self.out / MARK).read_text())["study"]
        except (FileNotFoundError, NotADirectoryError):
            if self.out.exists() and not (self.out.is_dir() and all(map(_is_beginning, self.out.iterdir()))):
                raise UsageError(f"{self.out} exists and is not the folder of a study; choose another name") from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadDataError(f"cannot be read ({error})", path=self.out / MARK) from None
        else:
            if found != self.study.name and (self.out / RECORDS).exists():
                raise UsageError(f"{self.out} holds a study of {found}, not {self.study.name}; choose another folder")

    @cached_property
    def ledger(self) -> Ledger:
        """What has been done."""
        return Ledger(self.out)

    def run(self) -> list[Stage]:
        """Do what is missing or has changed, and return it.

        Raises
        ------
        UnmaskError
            That of a stage that failed, after all that can do without it is done.
        """
        with atomic_path(self.out / MARK) as scratch:
            scratch.write_text(json.dumps({"format_version": _FORMAT_VERSION, "study": self.study.name}) + "\n")
        return run_stages(self.stages, self.ledger, self.reporter)

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages in their order."""
        stages = [*self._data_stages()]
        for configuration in self.configurations:
            stages += self._configuration_stages(configuration)
        if self.files.has_signal:
            inputs = tuple(
                path for each in self.configurations for path in (self._scores(each.name), self._model(each.name))
            )
            settings = {"published": {**self.study.published}, "notes": {**self.study.notes}, "style": self.style}
            results = (self.out / "results",)
            stages.append(Stage("results", self._make_results, results, inputs, settings, version=version("unmask")))
        stages.append(self._report_stage())
        return stages

    def _data_stages(self) -> Iterator[Stage]:
        files, reader = self.files, EventReader(self.files, self.seed, self.reporter)
        digests = {path.name: self.ledger.digest(path) for path in (*files.background, *files.signal, *files.data)}

        def settings(*paths: Path, **further: Json) -> dict[str, Json]:
            return files.reading_settings() | {"files": {path.name: digests[path.name] for path in paths}} | further

        splits = tuple(self._events(name) for name in ("train", "validation", "test"))
        yield Stage(
            "background",
            lambda: reader.write_background(self.out / "events"),
            splits,
            settings=settings(*files.background, seed=self.seed),
            reads_files=True,
            version=VERSIONS.get("background"),
        )
        if files.has_signal:
            sources = (*files.signal, *(files.background if files.signal_processes else ()))
            signal = self._events("signal")
            yield Stage(
                "signal",
                lambda: reader.write_signal(signal, splits[0]),
                (signal,),
                (splits[0],),
                settings(*sources),
                reads_files=True,
                version=VERSIONS.get("signal"),
            )
        if files.data:
            data = self._events("data")
            yield Stage(
                "data",
                lambda: reader.write_data(data),
                (data,),
                settings=settings(*files.data),
                reads_files=True,
                version=VERSIONS.get("data"),
            )

    def _configuration_stages(self, configuration: Configuration) -> Iterator[Stage]:
        name = configuration.name
        train, validation, model = self._events("train"), self._events("validation"), self._model(name)
        tokenizer_settings = configuration.tokenizer_settings()
        to_learn: tuple[Path, ...] = (train, validation)
        if tokenizer_settings is not None:
            tokenizer = self._tokenizer(name)
            yield Stage(
                f"tokenizer {name}",
                lambda: self._fit_tokenizer(configuration, tokenizer),
                (tokenizer,),
                to_learn,
                tokenizer_settings,
                _run_folder(tokenizer),
                version=VERSIONS.get(f"tokenizer {tokenizer_settings['kind']}"),
            )
            to_learn = (*to_learn, tokenizer)
        detector_settings = configuration.detector_settings()
        yield Stage(
            f"detector {name}",
            lambda: self._fit(configuration, model),
            (model,),
            to_learn,
            detector_settings,
            _run_folder(model),
            version=VERSIONS.get(f"detector {detector_settings['kind']}"),
        )
        scores, scorer = self._scores(name), Scorer(model, self.device, self.reporter)
        yield Stage(
            f"scores {name}",
            lambda: scorer.score_tests(self._tests, scores),
            (scores, explained_path(scores)),
            (model, *self._tests),
            {"n_explained": N_EXPLAINED},
            version=VERSIONS.get("scores"),
        )
        calibration, validation_scores = (
            self.calibration_of(configuration),
            self.out / "validation-scores" / f"{name}.parquet",
        )
        yield Stage(
            f"calibration {name}",
            lambda: scorer.calibrate(validation, validation_scores, calibration),
            (validation_scores, calibration),
            (model, validation),
            {"background_efficiencies": list(BACKGROUND_EFFICIENCIES)},
            version=VERSIONS.get("calibration"),
        )
        if self.files.data:
            data, found = self._events("data"), self._scores(f"{name}-data")
            flagged = self.out / "flagged" / f"{name}.parquet"
            yield Stage(
                f"search {name}",
                lambda: scorer.search(data, calibration, found, flagged),
                (found, explained_path(found), flagged),
                (model, calibration, data),
                {"n_explained": N_EXPLAINED},
                version=VERSIONS.get("search"),
            )
        figures = self._figures(name)
        yield Stage(
            f"figures {name}",
            lambda: write_configuration_figures(figures, model, self._tests, style=self.style),
            (figures,),
            (model, *self._tests),
            {"style": self.style},
            version=version("unmask"),
        )

    def _report_stage(self) -> Stage:
        names = [each.name for each in self.configurations]
        tests = [self._scores(name) for name in names]
        searched = [self._scores(f"{name}-data") for name in names] if self.files.data else []
        scores = [*tests, *searched]
        figures = {name: self._figures(name) for name in names}
        report = self.out / "report.html"
        title = f"{self.study.name} study" if self.study.signal_processes else f"Anomaly study: {self.out.name}"

        def make() -> None:
            found = self._evaluated[1] if self.files.has_signal else None
            write_study_report(report, self.study, scores, found, figures, title=title, style=self.style)

        return Stage(
            "report",
            make,
            (report,),
            (*scores, *map(explained_path, scores), *figures.values(), *map(self._model, names)),
            {"title": title, "published": {**self.study.published}, "style": self.style},
            version=version("unmask"),
        )

    def _fit_tokenizer(self, configuration: Configuration, folder: Path) -> None:
        from unmask.tokenizers.vqvae import VQVAETokenizer

        tokenizer = configuration.new_tokenizer()
        assert tokenizer is not None
        if isinstance(tokenizer, VQVAETokenizer):
            title = f"tokenizer {configuration.name}"
            with self.reporter.training(title, tokenizer.training.max_epochs) as progress:
                tokenizer.fit(*self._to_learn, run_folder=_run_folder(folder), reporter=progress)
        else:
            tokenizer.fit(*self._to_learn)
        tokenizer.save(folder)

    def _fit(self, configuration: Configuration, folder: Path) -> None:
        tokenizer: Tokenizer | None = None
        if configuration.preset.tokenizer:
            tokenizer = load_tokenizer(self._tokenizer(configuration.name))
        detector = configuration.new_detector(tokenizer)
        training = getattr(detector, "training", None)
        max_epochs = 0 if training is None else training.max_epochs
        with self.reporter.training(f"detector {configuration.name}", max_epochs) as progress:
            detector.fit(*self._to_learn, run_folder=_run_folder(folder), reporter=progress)
        detector.save(folder)

    def _make_results(self) -> None:
        scores, found = self._evaluated
        costs = cost_table({each.name: self._model(each.name) for each in self.configurations})
        write_results(self.out / "results", self.study, scores, found, costs, self.style)

    @cached_property
    def _evaluated(self) -> tuple[dict[str, Scores], Evaluation]:
        """Scores of the test events and what they say; measured once for tables and report."""
        scores = {each.name: read_scores(self._scores(each.name)) for each in self.configurations}
        return scores, evaluate(scores)

    @cached_property
    def _to_learn(self) -> tuple[EventSet, EventSet]:
        """Training and validation events; read once for all configurations."""
        return read_events(self._events("train")), read_events(self._events("validation"))

    @property
    def _tests(self) -> tuple[Path, ...]:
        return (self._events("test"), *((self._events("signal"),) if self.files.has_signal else ()))

    def _events(self, name: str) -> Path:
        return self.out / "events" / f"{name}.parquet"

    def _tokenizer(self, name: str) -> Path:
        return self.out / "tokenizers" / name

    def _figures(self, name: str) -> Path:
        return self.out / "figures" / name

    def _model(self, name: str) -> Path:
        return self.out / "models" / name

    def _scores(self, name: str) -> Path:
        return self.out / "scores" / f"{name}.parquet"

    def calibration_of(self, configuration: Configuration) -> Path:
        """Folder of the threshold of a detector."""
        return self.out / "calibrations" / configuration.name


def _is_beginning(path: Path) -> bool:
    """Whether this is all that there is of a study at first: the mark on its way, of this process or of another."""
    return path.name.startswith(f".{MARK}.")


def _run_folder(folder: Path) -> Path:
    """Where the training of what is saved in ``folder`` is logged."""
    return folder.with_name(folder.name + ".run")
