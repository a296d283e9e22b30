"""scikit-learn's conventions, for every kind of tokenizer and detector: those of the registry."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from unmask import load_sample
from unmask.artifacts import FORMAT_VERSION, Artifact, save_artifact
from unmask.detectors.contrast import ContrastDetector
from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.detectors.untrained import UntrainedDetector
from unmask.errors import ArtifactError, UsageError
from unmask.fitted import DETECTORS, KINDS, TOKENIZERS, Fitted, class_of, load
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.training import TrainingSettings


def made(kind: str, **arguments: Any) -> Fitted:
    chosen = class_of(kind)
    result: Fitted = chosen(**{part: LookupTableTokenizer(5) for part in chosen.parts}, **arguments)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_only_store_their_arguments(kind: str) -> None:
    assert class_of(kind).kind == kind
    arguments = {
        name: object() for name in inspect.signature(class_of(kind)).parameters if name not in class_of(kind).parts
    }
    one = made(kind, **arguments)
    assert {name: one.get_params(deep=False)[name] for name in arguments} == arguments


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_has_the_same_parameters_and_is_not_fitted(kind: str) -> None:
    one = made(kind)
    one.fitted_on_ = {"train": {"n_events": 9}}
    other = clone(one)
    assert type(other) is type(one)
    assert other.fitted_on_ is None
    assert other.settings() == one.settings()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_can_be_set_and_are_shown(kind: str) -> None:
    one = made(kind)
    name, value = next(
        (name, value) for name, value in one.get_params(deep=False).items() if isinstance(value, int | float)
    )
    assert one.set_params(**{name: value + 2}) is one
    assert one.get_params()[name] == value + 2
    shown = repr(one)
    assert shown.startswith(f"<{type(one).__name__}(")
    assert f"{name}={value + 2}" in shown
    assert shown.endswith("not fitted>")
    with pytest.raises(UsageError, match="has no parameter 'nothing'"):
        one.set_params(nothing=1)


def test_parameters_of_a_part() -> None:
    detector = MaskedTokenDetector(LookupTableTokenizer(5))
    assert detector.get_params()["tokenizer__n_bins"] == 5
    assert detector.set_params(tokenizer__n_bins=6, hidden=32).tokenizer.n_codes == 7 * 6**3 + 12
    assert clone(detector).tokenizer.n_codes == detector.tokenizer.n_codes
    with pytest.raises(UsageError, match="no parameter 'hidden__size'"):
        detector.set_params(hidden__size=3)


def test_the_seed_is_a_shorthand_for_that_of_the_training() -> None:
    detector = ContrastDetector(training=TrainingSettings(seed=1, max_epochs=2), seed=3)
    assert (detector.training.seed, detector.seed, detector.run_settings.seed) == (1, 3, 3)
    assert detector.settings()["training"]["seed"] == 3
    assert "seed" not in detector.settings()


def test_a_fitted_one_shows_its_events() -> None:
    events = load_sample("gluino")
    background = events[events.label == 0]
    assert repr(LookupTableTokenizer(edges="published:gluino").fit(background)) == (
        "<LookupTableTokenizer(edges='published:gluino'), fitted on 23,536 events>"
    )


def test_settings_that_are_not_the_defaults_are_shown() -> None:
    assert repr(ContrastDetector(training=TrainingSettings(seed=1, max_epochs=2))) == (
        "<ContrastDetector(training=TrainingSettings(max_epochs=2, seed=1)), not fitted>"
    )


def test_load_takes_any_kind_and_refuses_others(tmp_path: Path) -> None:
    LookupTableTokenizer(edges="published:gluino").fit(load_sample("gluino")[:0]).save(tmp_path / "tokenizer")
    assert load(tmp_path / "tokenizer").kind == "lookup-table"
    with pytest.raises(ArtifactError, match="holds a lookup-table; expected contrast, masked-token"):
        load(tmp_path / "tokenizer", DETECTORS)


def test_folders_of_earlier_versions_say_what_they_are_and_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    save_artifact(folder, Artifact("likelihood-ratio", {}, {"x": np.zeros(1)}))
    with pytest.raises(ArtifactError, match="old: holds a likelihood-ratio; expected lookup-table, vqvae"):
        load(folder, TOKENIZERS)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"format_version": {FORMAT_VERSION}', '"format_version": 1'))
    with pytest.raises(ArtifactError, match=r"holds a likelihood-ratio of format version 1; .* Train it again"):
        load(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"padding": "drop"}, "padding is 'drop'; choose from predict, ignore"),
        ({"position": "rotory"}, "position is 'rotory'; did you mean 'rotary'"),
        ({"score": "meen"}, "score is 'meen'; did you mean 'mean'"),
        ({"n_layers": 0, "dropout": 1.0}, "n_layers is 0; .*; dropout is 1.0; expected from 0 to below 1"),
        ({"hidden": True}, "hidden is True; expected a whole number"),
        ({"hidden": 10**400}, "hidden is 10+; expected from 1 to"),
        ({"dropout": -(10**400)}, "expected from 0 to below 1"),
        ({"training": 3}, "training is 3; expected a TrainingSettings"),
    ],
)
def test_what_does_not_fit_its_annotation_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MaskedTokenDetector(LookupTableTokenizer(), **settings).check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "part-SN"}, "backbone is 'part-SN'; did you mean 'part-sm'"),
        ({"size": "lite"}, "size is 'lite'; did you mean 'light'"),
        ({"seed": "one"}, "seed is 'one'; expected a whole number or nothing"),
    ],
)
def test_unknown_networks_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ContrastDetector(**settings).check()


def test_what_has_no_annotation_may_be_anything() -> None:
    class Own(UntrainedDetector):
        def __init__(self, score, seed=0):  # type: ignore[no-untyped-def]
            self.score, self.seed = score, seed

    Own("ht", seed="any").check()
