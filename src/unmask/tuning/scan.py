"""A scan: trials of hyper-parameters in an Optuna study, which any number of workers share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sql
import torch
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from unmask.errors import BadDataError, TrainingError, UnmaskError, UsageError, nearest
from unmask.events.event_set import EventSet
from unmask.fitted import EpochRecord, Reporter, check_background
from unmask.tokenizers import Tokenizer
from unmask.training import derive_seed
from unmask.tuning.space import SPACES, Target, changes_for, suggest
from unmask.workflow.fit import fit_detector, fit_tokenizer
from unmask.workflow.settings import Settings, load_settings, preset_names

PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
    "hyperband": optuna.pruners.HyperbandPruner,
    "none": optuna.pruners.NopPruner,
}
#: The user attribute of a study that holds its plan.
PLAN = "unmask plan"
#: Trials that are done: trained to their end, or given up for good reason.
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The fixed part of a scan, stored with its study; workers with another plan are refused.

    Attributes
    ----------
    settings
        What the hyper-parameters of a trial change. Losses with different ``padding`` cannot be compared.
    max_epochs
        Epochs of a trial at most; None for those of the settings.
    data
        Fingerprint of the training and validation events.
    tokenizer
        Hash of the fitted tokenizer that all trials of a detector share, if one is given.
    """

    target: Target
    settings: Settings
    max_epochs: int | None = None
    data: str = ""
    tokenizer: str | None = None

    def check(self) -> None:
        """Refuse settings that have nothing to tune."""
        name, needed = self.settings.name, {"tokenizer": "vqvae", "detector": "masked-token"}[self.target]
        given = getattr(self.settings, self.target).get("kind")
        if given != needed:
            presets = map(load_settings, preset_names())
            choices = [each.name for each in presets if getattr(each, self.target).get("kind") == needed]
            raise UsageError(
                f"preset {name} has {f'a {given}' if given else 'no'} {self.target}; only a {needed} one can be tuned: "
                f"{', '.join(choices)}"
            )
        if self.target == "detector" and self.settings.tokenizer.get("kind") == "vqvae" and self.tokenizer is None:
            raise UsageError(
                f"preset {name} has a VQ-VAE, which all trials must share: fit it first (unmask tokenizer fit "
                f"--preset {name} ...) and give its folder with --tokenizer"
            )

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON gives it back: tuples become lists."""
        stored: dict[str, Any] = json.loads(json.dumps(asdict(self) | {"space": SPACES[self.target]}, default=asdict))
        return stored

    @classmethod
    def of(cls, study: optuna.Study) -> Plan:
        """Read the plan in a study."""
        stored = study.user_attrs.get(PLAN)
        if stored is None:
            raise UsageError(f"study {study.study_name!r} was not made by unmask")
        fields = {key: value for key, value in stored.items() if key != "space"}
        return cls(**fields | {"settings": Settings(**fields["settings"])})


def open_storage(where: str, *, must_exist: bool = False) -> optuna.storages.BaseStorage:
    """Open a journal file, or a database by its SQLAlchemy URL (``postgresql+psycopg://user@host/name``)."""
    if "://" in where:
        try:
            with storage_errors():
                return optuna.storages.RDBStorage(where, engine_kwargs={"pool_pre_ping": True})
        except (ImportError, RuntimeError) as error:  # no driver; made by another version of Optuna
            raise UsageError(f"the database of the study cannot be used: {error}") from None
    path = Path(where)
    if must_exist and not path.is_file():
        raise BadDataError("no such journal; give the storage of a scan", path=path)
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


def find_study(where: str, name: str | None = None) -> optuna.Study:
    """Load a study; without a name, the only one there is."""
    storage = open_storage(where, must_exist=True)
    names = sorted(study.study_name for study in storage.get_all_studies())
    if not names:
        raise UsageError(f"{where} holds no study yet")
    if name is None and len(names) > 1:
        raise UsageError(f"{where} holds several studies; choose one with --study: {', '.join(names)}")
    if name is not None and name not in names:
        raise UsageError(f"{where} holds no study {name!r}; {nearest(name, names)}")
    return optuna.load_study(study_name=name or names[0], storage=storage)


@dataclass(kw_only=True)
class Scan:
    """One worker of a scan, with its background events.

    Attributes
    ----------
    tokenizer
        Fitted tokenizer that the trials of a detector share; None fits that of the settings.
    seed
        Seed of the hyper-parameters of each trial and of its training. All trials train with one seed, so that their
        validation losses are those of the same masked tokens.
    """

    plan: Plan
    train: EventSet
    validation: EventSet
    tokenizer: Tokenizer | None = None
    seed: int = 0
    device: str = "auto"

    def study(
        self, storage: optuna.storages.BaseStorage, name: str | None = None, pruning: str = "median"
    ) -> optuna.Study:
        """Begin the study of this scan, or join it; one of another scan is refused."""
        self.plan.check()
        for events in (self.train, self.validation):
            check_background(events)
            if not len(events):
                raise UsageError("training and validation events are both needed; one of them has none")
        study = optuna.create_study(
            storage=storage,
            study_name=name or f"{self.plan.target}-{self.plan.settings.name}",
            sampler=TrialSeededSampler(self.seed),
            pruner=PRUNERS[pruning](),
            load_if_exists=True,
        )
        stored, plan = study.user_attrs.get(PLAN), self.plan.to_json()
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

    def run(self, study: optuna.Study, n_trials: int, on_trial: Callable[[FrozenTrial], None] = lambda _: None) -> None:
        """Train trials until the study has ``n_trials`` finished ones, by all its workers together."""
        if self.plan.target == "detector" and self.tokenizer is None:
            self.tokenizer = fit_tokenizer(self.plan.settings, self.train, self.validation)
        if len(study.get_trials(deepcopy=False, states=FINISHED)) < n_trials:
            enough = optuna.study.MaxTrialsCallback(n_trials, states=FINISHED)
            study.optimize(self._train, callbacks=[lambda _, trial: on_trial(trial), enough])

    def _train(self, trial: optuna.Trial) -> float:
        started, events = time.perf_counter(), (self.train, self.validation)
        plan, shared = self.plan, {"seed": derive_seed(self.seed, "tuning"), "device": self.device}
        if plan.max_epochs is not None:
            shared["max_epochs"] = plan.max_epochs
        changes = changes_for(plan.target, suggest(SPACES[plan.target], trial))
        settings = plan.settings.with_changes(changes, shared)

        def watch(_title: str, max_epochs: int) -> AbstractContextManager[Reporter]:
            return nullcontext(_TrialReporter(trial, max_epochs))

        try:
            model = (
                fit_tokenizer(settings, *events, watch=watch)
                if plan.target == "tokenizer"
                else fit_detector(settings, *events, tokenizer=self.tokenizer, watch=watch)
            )
        except (optuna.TrialPruned, TrainingError, torch.cuda.OutOfMemoryError) as error:
            out_of_memory = isinstance(error, torch.cuda.OutOfMemoryError)
            trial.set_user_attr("reason", "out of GPU memory" if out_of_memory else str(error))
            raise optuna.TrialPruned from error
        finally:
            trial.set_user_attr("seconds", round(time.perf_counter() - started, 3))
        return min(record.validation_loss for record in model.history_ or [])


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
