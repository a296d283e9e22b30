"""One worker: what it does with trials, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from unmask.detectors.masked_token import MaskedTokenDetector, _MaskedTokenTask
from unmask.errors import UsageError
from unmask.events.event_set import EventSet
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.tuning.scan import Scan, check_target, complete_trials, open_storage
from unmask.workflow.settings import load_settings

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass
class Running:
    """A scan with its study."""

    scan: Scan
    study: optuna.Study

    def run(self, n_trials: int, on_trial: Callable[[FrozenTrial], None] = lambda _: None) -> None:
        self.scan.run(self.study, n_trials, on_trial)


@pytest.fixture
def new_scan(folder: Path, tmp_path: Path, make_events: Callable[..., EventSet]) -> Callable[..., Running]:
    """A scan of the tiny detector or VQ-VAE, by default in a journal of the test's own."""
    train, validation = make_events(200), make_events(60, seed=1)

    def new(
        journal: str = "journal.log",
        *,
        target: str = "detector",
        epochs: int = 2,
        padding: str = "predict",
        seed: int = 0,
        study_name: str | None = None,
    ) -> Running:
        toml, changes = ("lut.toml", {"padding": padding}) if target == "detector" else ("vq.toml", {})
        scan = Scan(
            target=target,
            settings=load_settings(folder / toml, changes),
            train=train,
            validation=validation,
            max_epochs=epochs,
            seed=seed,
            device="cpu",
        )
        return Running(scan, scan.study(open_storage(str(tmp_path / journal)), study_name))

    return new


def outcome(scan: Running) -> list[tuple[dict[str, object], float | None]]:
    return [(trial.params, trial.value) for trial in scan.study.trials]


def test_a_seed_fixes_the_scan_and_an_interruption_changes_nothing(new_scan: Callable[..., Running]) -> None:
    whole, other = new_scan("a.log", seed=5, epochs=1), new_scan("b.log", seed=6, epochs=1)
    whole.run(12)  # beyond the first 10, which are drawn without regard to the others
    other.run(1)
    assert outcome(whole)[0] != outcome(other)[0]
    new_scan("c.log", seed=5, epochs=1).run(11)
    resumed = new_scan("c.log", seed=5, epochs=1)
    resumed.run(12)
    assert outcome(resumed) == outcome(whole)
    resumed.run(12)
    assert len(resumed.study.trials) == 12
    assert len({str(parameters) for parameters, _ in outcome(whole)}) == 12


def test_the_value_of_a_trial_is_its_best_validation_loss(new_scan: Callable[..., Running]) -> None:
    scan = new_scan(epochs=3)
    seen = []
    scan.run(2, seen.append)
    assert [trial.number for trial in seen] == [0, 1]
    for trial in scan.study.trials:
        assert trial.state == TrialState.COMPLETE
        assert list(trial.intermediate_values) == [1, 2, 3]
        assert trial.value == min(trial.intermediate_values.values())


def test_trials_that_fall_behind_are_stopped(new_scan: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    scan = new_scan(epochs=5)
    n_trials = 10
    # Every trial is worse than all before it.
    monkeypatch.setattr(
        _MaskedTokenTask, "evaluate", lambda task: dict.fromkeys(("training_loss", "validation_loss"), losses[0])
    )
    losses = [1.0]
    scan.run(n_trials, lambda _: losses.__setitem__(0, losses[0] + 1))
    pruned = [trial for trial in scan.study.trials if trial.state == TrialState.PRUNED]
    assert len(pruned) >= 2
    assert all(len(trial.intermediate_values) < 5 for trial in pruned)
    assert "worse than other trials" in pruned[0].user_attrs["reason"]
    assert complete_trials(scan.study)[0].number == 0


def test_nan_prunes_the_trial_and_the_scan_goes_on(
    new_scan: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = new_scan()
    evaluate = _MaskedTokenTask.evaluate

    def diverging(task: _MaskedTokenTask) -> dict[str, float]:
        measured = evaluate(task)
        return measured | {"validation_loss": float("nan")} if scan.study.trials[-1].number == 1 else measured

    monkeypatch.setattr(_MaskedTokenTask, "evaluate", diverging)
    scan.run(3)
    states = [trial.state for trial in scan.study.trials]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE]
    assert "NaN or infinite" in scan.study.trials[1].user_attrs["reason"]


def test_an_interruption_leaves_no_running_trial(
    new_scan: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = new_scan()
    with monkeypatch.context() as patch:
        patch.setattr(_MaskedTokenTask, "evaluate", lambda task: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            scan.run(2)
    scan.run(2)
    assert [trial.state.name for trial in scan.study.trials] == ["FAIL", "COMPLETE", "COMPLETE"]


def test_another_scan_is_refused(new_scan: Callable[..., Running], make_events: Callable[..., EventSet]) -> None:
    scan = new_scan(study_name="mine")
    scan.run(1)
    with pytest.raises(UsageError, match=r"other max_epochs\)"):
        new_scan(study_name="mine", epochs=3)
    with pytest.raises(UsageError, match=r"other settings\)"):
        new_scan(study_name="mine", padding="ignore")
    with pytest.raises(UsageError, match=r"other target, settings\)"):
        new_scan(study_name="mine", target="tokenizer")
    storage, train = scan.study._storage, make_events(100)
    with pytest.raises(UsageError, match=r"other data\)"):
        replace(scan.scan, train=train).study(storage, "mine")
    fitted = scan.scan.settings.new_tokenizer().fit(train)
    with pytest.raises(UsageError, match=r"other tokenizer\)"):
        replace(scan.scan, tokenizer=fitted).study(storage, "mine")
    optuna.create_study(storage=storage, study_name="theirs").add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(UsageError, match="was not made by unmask"):
        new_scan(study_name="theirs")
    with pytest.raises(UsageError, match="30 of 30 events are labeled signal"):
        replace(scan.scan, validation=make_events(30, label=1)).study(storage, "mine")


@pytest.mark.parametrize(
    ("target", "preset", "message"),
    [
        ("tokenizer", "gluino-lut-456", "has a lookup-table tokenizer; only a vqvae one can be tuned: four-top-vq-512"),
        ("tokenizer", "ddd-part-sm", "has no tokenizer; only a vqvae one"),
        ("detector", "ddd-part-sm", "has a ddd detector; only a masked-token one .*gluino-lut-456"),
        ("detector", "gluino-vq-512", "fit it first"),
    ],
)
def test_what_cannot_be_tuned_is_refused(target: str, preset: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_target(target, load_settings(preset), None)


def test_a_tokenizer_of_other_settings_is_refused(folder: Path, make_events: Callable[..., EventSet]) -> None:
    settings, tokenizer = load_settings(folder / "lut.toml"), LookupTableTokenizer(2).fit(make_events(100))
    check_target("detector", settings, tokenizer)
    with pytest.raises(
        UsageError, match=r"LookupTableTokenizer\(n_bins=3\).*; expected that of preset lut, .*n_bins=2"
    ):
        check_target("detector", settings, LookupTableTokenizer(3))


def test_the_best_detector_becomes_a_preset(new_scan: Callable[..., Running], tmp_path: Path) -> None:
    scan = new_scan(padding="ignore")
    scan.run(3)
    best = complete_trials(scan.study)[0]
    assert best.value == min(trial.value for trial in scan.study.trials)
    scan.scan.write_best(scan.study, tmp_path / "best.toml")
    preset = load_settings(str(tmp_path / "best.toml"))
    detector = preset.new_detector(preset.new_tokenizer())
    assert isinstance(detector, MaskedTokenDetector)
    assert (detector.dropout, detector.position) == (best.params["dropout"], best.params["position"])
    assert (detector.padding, detector.hidden, detector.training.batch_size) == ("ignore", 8, 128)
    assert detector.training.learning_rate == best.params["training.learning_rate"]
    assert best.params["training.schedule"].startswith(detector.training.schedule)
    assert detector.training.max_epochs == 100  # the limit of a trial is not a finding
    assert f"trial {best.number} of study detector-lut: validation loss" in preset.description


def test_the_best_vqvae_becomes_a_preset(new_scan: Callable[..., Running], tmp_path: Path) -> None:
    scan = new_scan(target="tokenizer", epochs=1)
    scan.run(2)
    best = complete_trials(scan.study)[0]
    scan.scan.write_best(scan.study, tmp_path / "best.toml")
    tokenizer = load_settings(str(tmp_path / "best.toml")).new_tokenizer()
    assert isinstance(tokenizer, VQVAETokenizer)
    assert {name: getattr(tokenizer, name) for name in best.params if "." not in name} == {
        name: value for name, value in best.params.items() if "." not in name
    }
    assert tokenizer.training.learning_rate == best.params["training.learning_rate"]
    assert (tokenizer.n_codes, tokenizer.training.optimizer) == (8, "radam")
