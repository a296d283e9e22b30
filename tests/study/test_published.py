"""The studies by name, and which detectors they train."""

from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UsageError
from unmask.study.published import DEFAULT, choose_detectors, load_study, study_names
from unmask.workflow.settings import Settings, preset_names


def detector_of(settings: Settings) -> dict[str, Any]:
    return settings.new_detector().settings()


def tokenizer_of(settings: Settings) -> dict[str, Any]:
    return settings.new_tokenizer().settings()


@pytest.mark.parametrize("name", ["four-top", "gluino"])
def test_every_published_number_has_its_settings(name: str) -> None:
    study = load_study(name)
    presets = study.presets()
    assert list(presets)[:6] == ["lut-456", "lut-885", "lut-1524", "vq-512", "vq-850", "vq-1700"]
    assert set(study.published) <= set(presets)
    assert set(study.notes) <= set(study.published)
    assert set(presets.values()) <= set(preset_names())
    assert set(choose_detectors(study)) >= set(study.published)


def test_published_numbers_have_the_columns_put_right() -> None:
    assert study_names() == ["four-top", "gluino"]
    # The paper's table has 0.880 as the background efficiency: a curve through there has no AUC of 0.9892.
    assert load_study("gluino").published["ddd-part-sm"] == ["0.9892", "0.880", "< 0.001"]
    assert load_study("gluino").published["drocc-mlp"][0] == "0.9443 (?)"
    assert load_study("four-top").published["vq-512"] == ["0.6829", "0.19 (?)", "0.007"]
    for name in study_names():
        for auc, signal_efficiency, background_efficiency in load_study(name).published.values():
            assert 0.4 < float(auc.split()[0]) <= 1
            if float(auc.split()[0]) > 0.53 and background_efficiency[0] not in "<-":
                assert float(signal_efficiency.split()[0]) >= 0.01 > float(background_efficiency)


def test_seed_epochs_and_settings_reach_all_that_is_trained(tmp_path: Path) -> None:
    random = tmp_path / "random.toml"
    random.write_text('[detector]\nkind = "untrained"\nscore = "random"\n')
    (lut, vq, chance) = choose_detectors(
        load_study("gluino"), ["lut-456", "vq-512", str(random)], max_epochs=3, seed=7, device="cpu"
    ).values()
    assert detector_of(lut)["training"]["max_epochs"] == 3
    assert tokenizer_of(vq)["training"]["max_epochs"] == detector_of(vq)["training"]["max_epochs"] == 3
    assert {tokenizer_of(vq)["training"]["seed"], detector_of(lut)["training"]["seed"]} == {7}
    assert not chance.tokenizer
    assert chance.detector == {"kind": "untrained", "score": "random", "seed": 7}
    changes = {"dropout": 0.2, "tokenizer": {"n_bins": 3}}
    changed = choose_detectors(load_study("gluino"), ["lut-456"], changes)["lut-456"]
    assert tokenizer_of(changed)["n_bins"] == 3
    assert detector_of(changed)["dropout"] == 0.2


def test_any_preset_and_toml_files_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[detector]\nkind = "untrained"\nscore = "ht"\n')
    chosen = choose_detectors(load_study(DEFAULT), ["default", "gluino-lut-885", str(path), "deep-svdd"])
    assert list(chosen) == ["default", "gluino-lut-885", "mine", "deep-svdd"]
    assert detector_of(chosen["mine"])["score"] == "ht"


def test_comparisons_of_the_paper_are_the_same_in_both_studies() -> None:
    both = [load_study(name).presets() for name in ("gluino", "four-top")]
    shared = [name for name in both[0] if both[0][name] == both[1].get(name)]
    assert shared[:2] == ["ddd-part-noint", "ddd-part-sm"]
    # The tuned settings of the masked-token models are each study's own.
    assert [name for name in both[0] if name not in shared] == [name for name in both[0] if name[:3] in ("lut", "vq-")]


def test_mistakes_are_named() -> None:
    gluino = load_study("gluino")
    with pytest.raises(UsageError, match="did you mean 'gluino'"):
        load_study("glunio")
    with pytest.raises(UsageError, match=r"unknown detector 'lut-465'\. Did you mean 'lut-456'"):
        choose_detectors(gluino, ["lut-465"])
    with pytest.raises(UsageError, match="'lut-456' is given twice"):
        choose_detectors(gluino, ["lut-456", "gluino-lut-456"])
    with pytest.raises(UsageError, match="ddd-part-sm has no tokenizer"):
        choose_detectors(gluino, ["ddd-part-sm"], {"tokenizer": {"n_bins": 3}})


def test_settings_can_be_for_one_detector_alone() -> None:
    study = load_study("gluino")
    changes = {"training": {"max_epochs": 4}, "vq-512": {"training": {"max_epochs": 2}}}
    chosen = choose_detectors(study, ["vq-512", "lut-456"], changes)
    assert [detector_of(one)["training"]["max_epochs"] for one in chosen.values()] == [2, 4]
    for name in ("vq-512", "gluino-vq-512"):  # in the study's tables, and as a preset
        assert detector_of(choose_detectors(study, ["vq-512"], {name: {"hidden": 32}})["vq-512"])["hidden"] == 32
    for wrong, message in (
        ({"vq-512": {"hiden": 32}}, "did you mean 'hidden'"),
        ({"vq-512": 5}, r"vq-512=5: .* expected vq-512.SETTING=VALUE"),
        ({"vq-521": {"hidden": 32}}, "no detector 'vq-521' to change; did you mean 'vq-512'"),
    ):
        with pytest.raises(UsageError, match=message):
            [detector_of(one) for one in choose_detectors(study, ["vq-512", "lut-456"], wrong).values()]
