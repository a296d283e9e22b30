"""The studies by name, and which configurations they train."""

from pathlib import Path

import pytest

from unmask.errors import UsageError
from unmask.study.configurations import DEFAULT, choose_configurations, load_study, study_names
from unmask.workflow.presets import preset_names


@pytest.mark.parametrize("name", ["four-top", "gluino"])
def test_every_published_number_has_its_configuration(name: str) -> None:
    study = load_study(name)
    presets = study.presets()
    assert list(presets)[:6] == ["lut-456", "lut-885", "lut-1524", "vq-512", "vq-850", "vq-1700"]
    assert set(study.published) <= set(presets)
    assert set(study.notes) <= set(study.published)
    assert set(presets.values()) <= set(preset_names())
    assert {one.name for one in choose_configurations(study)} >= set(study.published)


def test_published_numbers_have_the_columns_put_right() -> None:
    assert study_names() == ["four-top", "gluino"]
    # The paper's table has 0.880 as the background efficiency: a curve through there has no AUC of 0.9892.
    assert load_study("gluino").published["ddd-part-sm"] == ("0.9892", "0.880", "< 0.001")
    assert load_study("gluino").published["drocc-mlp"][0] == "0.9443 (?)"
    assert load_study("four-top").published["vq-512"] == ("0.6829", "0.19 (?)", "0.007")
    for name in study_names():
        for auc, signal_efficiency, background_efficiency in load_study(name).published.values():
            assert 0.4 < float(auc.split()[0]) <= 1
            if float(auc.split()[0]) > 0.53 and background_efficiency[0] not in "<-":
                assert float(signal_efficiency.split()[0]) >= 0.01 > float(background_efficiency)


def test_seed_epochs_and_settings_reach_all_that_is_trained(tmp_path: Path) -> None:
    random = tmp_path / "random.toml"
    random.write_text('[detector]\nkind = "trivial"\nscore = "random"\n')
    (lut, vq, chance) = choose_configurations(
        load_study("gluino"), ["lut-456", "vq-512", str(random)], epochs=3, seed=7, device="cpu"
    )
    assert lut.detector_settings()["training"]["max_epochs"] == 3
    vq_settings = vq.tokenizer_settings()
    assert vq_settings is not None
    assert vq_settings["training"]["max_epochs"] == vq.detector_settings()["training"]["max_epochs"] == 3
    assert {vq_settings["training"]["seed"], lut.detector_settings()["training"]["seed"]} == {7}
    assert chance.tokenizer_settings() is None
    assert chance.detector_settings()["seed"] == 7
    assert "device" not in lut.detector_settings()["training"]  # trained anywhere, it is the same
    (changed,) = choose_configurations(
        load_study("gluino"), ["lut-456"], changes={"dropout": 0.2, "tokenizer": {"n_bins": 3}}
    )
    assert (changed.tokenizer_settings() or {})["n_bins"] == 3
    assert changed.detector_settings()["dropout"] == 0.2


def test_any_preset_and_toml_files_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[detector]\nkind = "trivial"\nscore = "ht"\n')
    found = choose_configurations(load_study(DEFAULT), ["default", "gluino-lut-885", str(path)])
    assert [one.name for one in found] == ["default", "gluino-lut-885", "mine"]
    assert found[-1].detector_settings()["score"] == "ht"


def test_what_the_paper_compares_with_is_the_same_in_both_studies() -> None:
    both = [load_study(name).presets() for name in ("gluino", "four-top")]
    shared = [name for name in both[0] if both[0][name] == both[1].get(name)]
    assert shared[:2] == ["ddd-part-noint", "ddd-part-sm"]
    # The tuned settings of the masked-token models are each study's own.
    assert [name for name in both[0] if name not in shared] == [name for name in both[0] if name[:3] in ("lut", "vq-")]


def test_what_cannot_be_chosen_is_named() -> None:
    gluino = load_study("gluino")
    with pytest.raises(UsageError, match="did you mean 'gluino'"):
        load_study("glunio")
    with pytest.raises(UsageError, match="no configuration 'lut-465'; did you mean 'lut-456'"):
        choose_configurations(gluino, ["lut-465"])
    with pytest.raises(UsageError, match="'lut-456' is given twice"):
        choose_configurations(gluino, ["lut-456", "gluino-lut-456"])
    with pytest.raises(UsageError, match="ddd-part-sm has no tokenizer"):
        choose_configurations(gluino, ["ddd-part-sm"], changes={"tokenizer": {"n_bins": 3}})


def test_settings_can_be_for_one_configuration_alone() -> None:
    study = load_study("gluino")
    changes = {"training": {"max_epochs": 4}, "vq-512": {"training": {"max_epochs": 2}}}
    found = choose_configurations(study, ["vq-512", "lut-456"], changes=changes)
    assert [one.detector_settings()["training"]["max_epochs"] for one in found] == [2, 4]
    for name in ("vq-512", "gluino-vq-512"):  # in the study's tables, and as a preset
        (either,) = choose_configurations(study, ["vq-512"], changes={name: {"hidden": 32}})
        assert either.detector_settings()["hidden"] == 32
    for wrong, message in (
        ({"vq-512": {"hiden": 32}}, "did you mean 'hidden'"),
        ({"vq-512": 5}, r"vq-512=5: .* write vq-512.SETTING=VALUE"),
        ({"vq-521": {"hidden": 32}}, "no detector 'vq-521' to change; did you mean 'vq-512'"),
    ):
        with pytest.raises(UsageError, match=message):
            [one.detector_settings() for one in choose_configurations(study, ["vq-512", "lut-456"], changes=wrong)]
