"""A scan: trials of hyper-parameters in an Optuna study, which any number of workers share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sql
import torch
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from unmask.artifacts import atomic_path
from unmask.errors import BadDataError, TrainingError, UnmaskError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.fingerprints import fingerprint_of
from unmask.fitted import EpochRecord, Reporter, check_background
from unmask.tokenizers import Tokenizer
from unmask.training import derive_seed
from unmask.tuning.space import SPACES, Target, changes_for
from unmask.workflow.fit import fit_detector, fit_tokenizer
from unmask.workflow.settings import Settings, flat, load_settings, preset_names

#: The user attribute of a study that holds its plan.
PLAN = "unmask plan"
#: Trials that are done: trained to their end, or given up for good reason.
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


def check_target(target: Target, settings: Settings, tokenizer: Tokenizer | None) -> None:
    """Refuse settings that have nothing to tune, and a fitted tokenizer that is not theirs."""
    needed = {"tokenizer": "vqvae", "detector": "masked-token"}
    given, kind = getattr(settings, target).get("kind"), needed[target]
    if given != kind:
        choices = [name for name in preset_names() if getattr(load_settings(name), target).get("kind") == kind]
        raise UsageError(
            f"preset {settings.name} has {f'a {given}' if given else 'no'} {target}; only a {kind} one can be tuned: "
            f"{', '.join(choices)}"
        )
    promised = None if tokenizer is None else settings.new_tokenizer()
    if tokenizer and promised and {**tokenizer.settings(), "training": 0} != {**promised.settings(), "training": 0}:
        raise UsageError(f"the tokenizer is {tokenizer}; expected that of preset {settings.name}, {promised}")
    if target == "detector" and settings.tokenizer.get("kind") == "vqvae" and tokenizer is None:
        raise UsageError(
            f"preset {settings.name} has a VQ-VAE, which all trials must share: fit it first (unmask tokenizer fit "
            f"--preset {settings.name} ...) and give its folder with --tokenizer"
        )


def open_storage(where: str) -> optuna.storages.BaseStorage:
    """Open a journal file, or a database by its SQLAlchemy URL (``postgresql+psycopg://user@host/name``)."""
    if "://" in where:
        try:
            with storage_errors():
                return optuna.storages.RDBStorage(where, engine_kwargs={"pool_pre_ping": True})
        except (ImportError, RuntimeError) as error:  # no driver; made by another version of Optuna
            raise UsageError(f"the database of the study cannot be used: {error}") from None
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    except (ValueError, KeyError, TypeError) as error:
        raise BadDataError(f"is not a journal of Optuna, or is damaged ({error})", path=path) from None


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn an error of a database into one clear message."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, sql.exc.SQLAlchemyError) as error:
        cause = error.__cause__ or error
        reason = (str(getattr(cause, "orig", None) or cause).strip() or type(cause).__name__).splitlines()[0]
        raise UnmaskError(
            f"the database of the study cannot be used: {reason}; finished trials are kept: run the command again"
        ) from error


@dataclass(kw_only=True)
class Scan:
    """One worker of a scan, with its background events.

    Attributes
    ----------
    settings
        What the hyper-parameters of a trial change. Losses with different ``padding`` cannot be compared.
    max_epochs
        Maximum epochs of a trial; None for those of the settings.
    tokenizer
        Fitted tokenizer that the trials of a detector share; None fits that of the settings.
    seed
        Seed of the hyper-parameters of each trial and of its training. All trials train with one seed, so that their
        validation losses are those of the same masked tokens.
    """

    target: Target
    settings: Settings
    train: EventSet
    validation: EventSet
    max_epochs: int | None = None
    tokenizer: Tokenizer | None = None
    seed: int = 0
    device: str = "auto"

    def study(self, storage: optuna.storages.BaseStorage, name: str | None = None) -> optuna.Study:
        """Begin the study of this scan, or join it; one of another scan is refused."""
        for events in (self.train, self.validation):
            check_background(events)
            if not len(events):
                raise UsageError("training and validation events are both needed; one of them has none")
        study = optuna.create_study(
            storage=storage,
            study_name=name or f"{self.target}-{self.settings.name}",
            sampler=TrialSeededSampler(self.seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
            load_if_exists=True,
        )
        stored, plan = study.user_attrs.get(PLAN), self._plan()
        if stored is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(PLAN, plan)
        elif stored is None:
            raise UsageError(f"study {study.study_name!r} was not made by unmask; choose another --study name")
        elif different := [name for name in plan if plan[name] != stored.get(name)]:
            raise UsageError(
                f"study {study.study_name!r} is another scan, with which this one cannot be compared (other "
                f"{', '.join(different)}); choose another --study name"
            )
        return study

    def _plan(self) -> dict[str, Any]:
        """Record of what all workers of a study have in common, as JSON gives it back: tuples become lists."""
        arrays = self.tokenizer.arrays().values() if self.tokenizer else ()
        plan = {
            "target": self.target,
            "settings": asdict(self.settings),
            "max_epochs": self.max_epochs,
            "data": fingerprint_of(self.train, self.validation),
            "tokenizer": sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16] if arrays else None,
        }
        stored: dict[str, Any] = json.loads(json.dumps(plan))
        return stored

    def run(self, study: optuna.Study, n_trials: int, on_trial: Callable[[FrozenTrial], None] = lambda _: None) -> None:
        """Train trials until the study has ``n_trials`` finished ones, by all its workers together."""
        tokenizer = self.tokenizer
        if self.target == "detector" and tokenizer is None:
            tokenizer = fit_tokenizer(self.settings, self.train, self.validation)
        while len(study.get_trials(deepcopy=False, states=FINISHED)) < n_trials:
            trial = study.ask(SPACES[self.target])
            value, state = None, TrialState.FAIL
            try:
                value, state = self._train(trial, tokenizer), TrialState.COMPLETE
            except optuna.TrialPruned:
                state = TrialState.PRUNED
            finally:
                told = study.tell(trial, value, state)
            on_trial(told)

    def _train(self, trial: optuna.Trial, tokenizer: Tokenizer | None) -> float:
        started, events = time.perf_counter(), (self.train, self.validation)
        shared: dict[str, Any] = {"seed": derive_seed(self.seed, "tuning"), "device": self.device}
        if self.max_epochs is not None:
            shared["max_epochs"] = self.max_epochs
        settings = self.settings.with_changes(changes_for(self.target, trial.params), shared)

        def watch(_title: str, max_epochs: int) -> AbstractContextManager[Reporter]:
            return nullcontext(_TrialReporter(trial, max_epochs))

        try:
            model = (
                fit_tokenizer(settings, *events, watch=watch)
                if self.target == "tokenizer"
                else fit_detector(settings, *events, tokenizer=tokenizer, watch=watch)
            )
        except (optuna.TrialPruned, TrainingError, torch.cuda.OutOfMemoryError) as error:
            out_of_memory = isinstance(error, torch.cuda.OutOfMemoryError)
            trial.set_user_attr("reason", "out of GPU memory" if out_of_memory else str(error))
            raise optuna.TrialPruned from error
        finally:
            trial.set_user_attr("seconds", round(time.perf_counter() - started, 3))
        return min(record.validation_loss for record in model.history_ or [])

    def write_best(self, study: optuna.Study, path: Path) -> None:
        """Write the settings with the hyper-parameters of the best trial as TOML, for ``unmask train --preset``."""
        best = complete_trials(study)[0]
        origin = f"the {self.target} of trial {best.number} of study {study.study_name}"
        tuned = replace(
            self.settings.with_changes(changes_for(self.target, best.params), {}),
            description=f"{self.settings.name} with {origin}: validation loss {best.value:.5g}",
        )
        content = flat({key: value for key, value in vars(tuned).items() if key != "name"})
        with atomic_path(path) as scratch:
            # JSON texts of words, numbers, booleans and lists are TOML too.
            scratch.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in content.items()))


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that were trained to their end, the best first."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: (trial.value, trial.number))


class _TrialReporter(Reporter):
    """Reports every epoch to the study, and stops a training that falls behind."""

    def __init__(self, trial: optuna.Trial, max_epochs: int) -> None:
        self.trial, self.max_epochs = trial, max_epochs

    def epoch_done(self, record: EpochRecord) -> None:
        self.trial.report(record.validation_loss, record.epoch)
        # After the last epoch nothing can be saved any more, and a complete trial says more than a pruned one.
        if record.epoch < self.max_epochs and self.trial.should_prune():
            raise optuna.TrialPruned(f"worse than other trials after {record.epoch} epochs")


class TrialSeededSampler(optuna.samplers.TPESampler):
    """Optuna's TPE sampler with a seed for each trial, from the scan's seed and the trial's number.

    So an interrupted scan draws what it would have drawn, and workers that share a seed never draw the same.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        seed = derive_seed(self.seed, "trial", trial.number) % 2**32
        super().__init__(seed=seed, multivariate=True, constant_liar=True)
        super().before_trial(study, trial)
