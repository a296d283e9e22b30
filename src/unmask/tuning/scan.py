"""A worker of a scan: takes trials from a shared study and trains them, until the study has enough."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import optuna
import torch
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.errors import TrainingError, UsageError
from unmask.events.event_set import EventSet
from unmask.tokenizers import Tokenizer
from unmask.tokenizers.base import check_background
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.training import EpochRecord, Reporter, derive_seed
from unmask.training.loop import LOG
from unmask.tuning.liveness import GRACE_S, Heartbeat, Watch
from unmask.tuning.plan import Plan, claim_study
from unmask.tuning.search_spaces import suggest

Pruning = Literal["median", "hyperband", "none"]
_LONGEST_WAIT_S = 5.0


class Scan:
    """One worker's share of a scan.

    Parameters
    ----------
    plan : what is tuned; a study with another plan is refused.
    train, validation : background events; signal is refused.
    tokenizer : the fitted tokenizer that the trials of a detector share.
    seed : from it come the hyper-parameters of each trial and its training. One worker with one seed always does the
        same. Trials train with the same seed, so that their validation losses are those of the same masked tokens.
    trials_folder : each trial leaves its hyper-parameters and log in ``trials_folder/NUMBER``.
    grace_s : seconds without a sign of life after which another worker's trial is taken over.
    """

    def __init__(
        self,
        storage: optuna.storages.BaseStorage,
        plan: Plan,
        train: EventSet,
        validation: EventSet,
        *,
        study_name: str | None = None,
        tokenizer: Tokenizer | None = None,
        pruning: Pruning = "median",
        seed: int = 0,
        device: str = "auto",
        trials_folder: Path | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        for events in (train, validation):
            check_background(events)
            if not len(events):
                raise UsageError("training and validation events are both needed; one of them has none")
        self.plan, self.train, self.validation = plan, train, validation
        self.tokenizer, self.seed, self.device = tokenizer, seed, device
        self.trials_folder, self.grace_s = trials_folder, grace_s
        if plan.target == "detector" and tokenizer is None:
            self.tokenizer = plan.preset.new_tokenizer().fit(train)
        longest = self._new({}).training.max_epochs
        self.study = optuna.create_study(
            storage=storage,
            study_name=study_name or plan.study_name,
            sampler=TrialSeededSampler(seed),
            pruner=_pruner(pruning, longest),
            load_if_exists=True,
        )
        claim_study(self.study, plan)
        self._watch = Watch(self.study, grace_s)

    def run(self, n_trials: int, on_trial: Callable[[FrozenTrial], None] = lambda _: None) -> None:
        """Take trials until the study has ``n_trials`` finished ones, by all its workers together.

        A worker that finds enough trials running stays until they are finished, in case one has to be done again.
        """
        while n_finished(self.study) < n_trials:
            self._watch.reclaim()
            n_running = len(self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
            if n_finished(self.study) + n_running < n_trials:
                on_trial(self._do_trial())
            else:
                time.sleep(min(_LONGEST_WAIT_S, self.grace_s / 10))

    def _do_trial(self) -> FrozenTrial:
        trial = self.study.ask()
        with Heartbeat(trial, self.grace_s), self._failure_is_told(trial):
            value, state, reason = None, TrialState.PRUNED, None
            started = time.perf_counter()
            try:
                value, state = self._train(trial), TrialState.COMPLETE
            except (optuna.TrialPruned, TrainingError) as error:  # worse than others; NaN or infinite
                reason = str(error)
            except torch.cuda.OutOfMemoryError:
                reason = "out of GPU memory"
            trial.set_user_attr("seconds", round(time.perf_counter() - started, 3))
            trial.set_user_attr("reason", reason)
            self.study.tell(trial, value, state=state, skip_if_finished=True)
        return self._frozen(trial.number)

    @contextmanager
    def _failure_is_told(self, trial: optuna.Trial) -> Iterator[None]:
        """Do not leave a trial running that was interrupted; an interruption by hand is made good by another trial."""
        try:
            yield
        except UpdateFinishedTrialError:
            # This worker was silent for so long that another one took the trial over: nothing is left to tell.
            return
        except BaseException as error:
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            if isinstance(error, KeyboardInterrupt) and trial.params:
                self.study.enqueue_trial(trial.params)
            raise

    def _frozen(self, number: int) -> FrozenTrial:
        return next(trial for trial in self.study.get_trials(deepcopy=False) if trial.number == number)

    def _train(self, trial: optuna.Trial) -> float:
        model = self._new(suggest(self.plan.space, trial))
        reporter = _TrialReporter(trial, model.training.max_epochs, self.trials_folder)
        model.fit(self.train, self.validation, reporter=reporter)
        return min(record.validation_loss for record in model.history_ or [])

    def _new(self, parameters: dict[str, Any]) -> VQVAETokenizer | MaskedTokenDetector:
        changes = self.plan.changes(parameters, seed=derive_seed(self.seed, "tuning"), device=self.device)
        if self.plan.target == "tokenizer":
            tokenizer = self.plan.preset.new_tokenizer(changes)
            assert isinstance(tokenizer, VQVAETokenizer)
            return tokenizer
        assert self.tokenizer is not None
        detector = self.plan.preset.new_detector(self.tokenizer, changes)
        if not isinstance(detector, MaskedTokenDetector):
            raise UsageError(f"the detector of preset {self.plan.preset.name} is not a masked-token one")
        return detector


def n_finished(study: optuna.Study) -> int:
    """Trials that are done: trained to their end, or given up for good reason."""
    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED)))


class _TrialReporter(Reporter):
    """Tells the study of every epoch, and stops a training that is not worth it."""

    def __init__(self, trial: optuna.Trial, max_epochs: int, folder: Path | None) -> None:
        self.trial, self.max_epochs = trial, max_epochs
        self.log = None if folder is None else folder / str(trial.number) / LOG
        if self.log:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.write_text("")
            self.log.with_name("parameters.json").write_text(json.dumps(trial.params, indent=1) + "\n")

    def epoch_done(self, record: EpochRecord) -> None:
        if self.log:
            with self.log.open("a") as file:
                file.write(json.dumps(asdict(record)) + "\n")
        self.trial.report(record.validation_loss, record.epoch)
        # After the last epoch nothing can be saved any more, and a complete trial says more than a pruned one.
        if record.epoch < self.max_epochs and self.trial.should_prune():
            raise optuna.TrialPruned(f"worse than other trials after {record.epoch} epochs")


class TrialSeededSampler(optuna.samplers.BaseSampler):
    """Optuna's TPE sampler with a seed for each trial, from the scan's seed and the trial's number.

    So a scan that was interrupted draws what it would have drawn, and workers that share a seed never draw the same.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._sampler = self._for_trial(0)

    def _for_trial(self, number: int) -> optuna.samplers.TPESampler:
        seed = derive_seed(self.seed, "trial", number) % 2**32
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._for_trial(trial.number)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


def _pruner(name: Pruning, max_epochs: int) -> optuna.pruners.BasePruner:
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max_epochs)
    return optuna.pruners.NopPruner()
