"""What is searched, and what becomes of it."""

import optuna
import pytest

from unmask.detectors.masked_token import MaskedTokenDetector
from unmask.tokenizers.vqvae import VQVAETokenizer
from unmask.tuning.space import SCHEDULES, SPACES, Choice, changes_for
from unmask.workflow.settings import load_settings, preset_names

PUBLISHED = [name for name in preset_names() if name.startswith(("four-top-", "gluino-"))]


def holds(value: object, entry: object) -> bool:
    return value in entry.choices if isinstance(entry, Choice) else entry.low <= value <= entry.high


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_value_can_be_found(name: str) -> None:
    preset = load_settings(name)
    tokenizer = preset.new_tokenizer()
    detector = preset.new_detector(tokenizer)
    assert isinstance(detector, MaskedTokenDetector)
    models = {"detector": detector.settings()}
    if isinstance(tokenizer, VQVAETokenizer):
        models["tokenizer"] = tokenizer.settings()
    for target, settings in models.items():
        for parameter, entry in SPACES[target].items():
            table, _, key = parameter.rpartition(".")
            if key == "schedule":
                training = settings["training"]
                chosen = {dotted: training[dotted.split(".")[1]] for dotted in SCHEDULES["warmup-cosine 1000/10000"]}
                constant = {"training.schedule": training["schedule"]}
                assert chosen in SCHEDULES.values() or constant in SCHEDULES.values()
            else:
                assert holds((settings[table] if table else settings)[key], entry), parameter


@pytest.mark.parametrize(("target", "name"), [("tokenizer", "gluino-vq-850"), ("detector", "gluino-lut-456")])
def test_every_draw_can_be_trained(target: str, name: str) -> None:
    preset, space = load_settings(name), SPACES[target]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn: dict[str, set[object]] = {parameter: set() for parameter in space}
    for _ in range(60):
        parameters = study.ask(space).params
        for parameter, value in parameters.items():
            assert holds(value, space[parameter])
            drawn[parameter].add(value)
        changed = preset.with_changes(changes_for(target, parameters), {})
        if target == "detector":
            changed.new_detector()
        else:
            tokenizer = changed.new_tokenizer()
            assert (tokenizer.n_codes, tokenizer.hidden % tokenizer.n_heads) == (850, 0)
    assert all(len(values) >= 3 for values in drawn.values())
