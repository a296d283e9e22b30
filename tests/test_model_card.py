"""The card that is saved with every model."""

from pathlib import Path

import unmask
from unmask.artifacts import load_artifact
from unmask.io.sample import sample_path
from unmask.model_card import model_card
from unmask.outputs import kind_of


def test_a_saved_model_has_a_card_that_may_be_edited(tmp_path: Path) -> None:
    events = unmask.load_sample("gluino")
    background = events[events.label == 0][::20]
    detector = unmask.fit("untrained", background, background)
    detector.save(tmp_path / "model")
    card = tmp_path / "model" / "MODEL_CARD.md"
    text = card.read_text()
    assert text.startswith("# Model card: untrained\n")
    assert f"- Training: {len(background):,} events" in text
    assert f"| ttbar | {(background.process == 'ttbar').sum()} |" in text
    assert "b-jet" in text
    assert "events labeled signal are refused in training" in text
    assert "## License" in text
    card.write_text(text + "Not for events after 2027.\n")
    assert unmask.load(tmp_path / "model").fitted_on_ == detector.fitted_on_
    assert kind_of(tmp_path / "model") == "untrained"
    detector.save(tmp_path / "model")
    assert "2027" not in card.read_text()


def test_names_from_files_are_no_markup() -> None:
    saved = load_artifact(sample_path("gluino-model"))
    facts = saved.provenance | {"command": "unmask train `a|b`\n# Heading"}
    facts["fitted_on"] = {"train": {"n_events": 1, "n_objects": 2, "files": {"x": 1}, "processes": {"a|b\nc": 1}}}
    text = model_card(saved.kind, saved.settings, facts)
    assert "| a/b c | 1 |" in text
    assert "`unmask train 'a/b' # Heading`" in text


def test_the_model_of_the_package_has_its_card() -> None:
    saved = load_artifact(sample_path("gluino-model"))
    text = (sample_path("gluino-model") / "MODEL_CARD.md").read_text()
    assert text == model_card(saved.kind, saved.settings, saved.provenance)
