"""The studies by name, and which configurations they train."""

from pathlib import Path

import pytest

from unmask.errors import UsageError
from unmask.studies.configurations import DEFAULT, choose_configurations, load_study, study_names
from unmask.studies.presets import preset_names


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


def test_seed_epochs_and_settings_reach_all_that_is_trained() -> None:
    (lut, vq, forest) = choose_configurations(
        load_study("gluino"), ["lut-456", "vq-512", "isolation-forest"], epochs=3, seed=7, device="cpu"
    )
    assert lut.detector_settings()["training"]["max_epochs"] == 3
    vq_settings = vq.tokenizer_settings()
    assert vq_settings is not None
    assert vq_settings["training"]["max_epochs"] == vq.detector_settings()["training"]["max_epochs"] == 3
    assert {vq_settings["training"]["seed"], lut.detector_settings()["training"]["seed"]} == {7}
    assert forest.tokenizer_settings() is None
    assert forest.detector_settings()["seed"] == 7
    assert "device" not in lut.detector_settings()["training"]  # trained anywhere, it is the same
    (changed,) = choose_configurations(
        load_study("gluino"), ["lut-456"], changes={"dropout": 0.2, "tokenizer": {"n_bins": 3}}
    )
    assert (changed.tokenizer_settings() or {})["n_bins"] == 3
    assert changed.detector_settings()["dropout"] == 0.2


def test_any_preset_and_toml_files_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[detector]\nkind = "isolation-forest"\nn_trees = 5\n')
    found = choose_configurations(load_study(DEFAULT), ["default", "gluino-lut-885", str(path)])
    assert [one.name for one in found] == ["quantities", "replaced", "default", "gluino-lut-885", "mine"]
    assert found[-1].detector_settings()["n_trees"] == 5
    by_their_names = choose_configurations(load_study(DEFAULT), ["replaced", "default", "objects"])
    assert [one.name for one in by_their_names] == ["replaced", "quantities", "default", "objects"]


def test_what_cannot_be_chosen_is_named(tmp_path: Path) -> None:
    gluino = load_study("gluino")
    with pytest.raises(UsageError, match="did you mean 'gluino'"):
        load_study("glunio")
    with pytest.raises(UsageError, match="no configuration 'lut-465'; did you mean 'lut-456'"):
        choose_configurations(gluino, ["lut-465"])
    with pytest.raises(UsageError, match="'lut-456' is given twice"):
        choose_configurations(gluino, ["lut-456", "gluino-lut-456"])
    with pytest.raises(UsageError, match="isolation-forest has no tokenizer"):
        choose_configurations(gluino, ["isolation-forest"], changes={"tokenizer": {"n_bins": 3}})
    path = tmp_path / "bound.toml"
    path.write_text('[detector]\nkind = "supervised-bound"\n')
    with pytest.raises(UsageError, match="bound learns from the signal"):
        choose_configurations(gluino, [str(path)])


@pytest.mark.parametrize("name", ["four-top", "gluino"])
def test_a_combination_follows_its_members(name: str) -> None:
    study = load_study(name)
    everything = [one.name for one in choose_configurations(study)]
    at = everything.index("flow-deep-svdd")
    assert {"flow", "deep-svdd-mlp"} <= set(everything[:at])
    chosen = choose_configurations(
        study, ["flow-deep-svdd", "flow"], epochs=3, changes={"training": {"batch_size": 64}}
    )
    assert [one.name for one in chosen] == ["flow", "deep-svdd-mlp", "flow-deep-svdd"]
    assert chosen[2].members == ("flow", "deep-svdd-mlp")
    assert chosen[2].detector_settings() == {"kind": "combination", "how": "average"}
    for member in chosen[:2]:  # settings are for what is trained
        training = member.detector_settings()["training"]
        assert (training["max_epochs"], training["batch_size"]) == (3, 64)


def test_settings_can_be_for_one_configuration_alone() -> None:
    changes = {"training": {"max_epochs": 4}, "replaced": {"training": {"max_epochs": 2}}, "default": {"how": "or"}}
    found = {one.name: one.detector_settings() for one in choose_configurations(load_study(DEFAULT), changes=changes)}
    epochs = {name: settings["training"]["max_epochs"] for name, settings in found.items() if name != "default"}
    assert epochs == {"quantities": 4, "replaced": 2, "objects": 4}
    assert found["default"]["how"] == "or"
    by_preset = choose_configurations(load_study(DEFAULT), ["default"], changes={"default-replaced": {"dropout": 0.3}})
    assert [one.detector_settings().get("dropout") for one in by_preset] == [0.0, 0.3, None]
    for name in ("flow-deep-svdd", "gluino-flow-deep-svdd"):  # in the study's tables, and as a preset
        *_, either = choose_configurations(load_study("gluino"), ["flow-deep-svdd"], changes={name: {"how": "or"}})
        assert either.detector_settings()["how"] == "or"
    for wrong, message in (
        ({"objects": {"drpout": 0.1}}, "did you mean 'dropout'"),
        ({"default": {"hwo": "or"}}, "did you mean 'how'"),
        ({"default": 5}, r"default=5: .* write default.SETTING=VALUE"),
        ({"default": {"members": ["ddd"]}}, "members are named in a TOML file"),
        ({"replacd": {"dropout": 0.1}}, "no detector 'replacd' to change; did you mean 'replaced'"),
    ):
        with pytest.raises(UsageError, match=message):
            [one.detector_settings() for one in choose_configurations(load_study(DEFAULT), changes=wrong)]


def test_combinations_that_cannot_be_made(tmp_path: Path) -> None:
    study, path = load_study("gluino"), tmp_path / "both.toml"
    table = '[detector]\nkind = "combination"\n'
    for content, message in {
        "": r"members is None; accepted: a list of two presets or more",
        'members = ["flow", "flow"]': r"members is \['flow', 'flow'\]",
        'members = ["flow", "flaw"]': "no configuration 'flaw'",
        'members = ["flow", "flow-deep-svdd"]': "flow-deep-svdd, a member of both, is a combination itself",
        'members = ["flow", "vq-512"]\nhwo = "and"': "did you mean 'how'",
        'members = ["flow", "vq-512"]\nhow = "maximum"': "how: ",
    }.items():
        path.write_text(table + content)
        with pytest.raises(UsageError, match=message):
            choose_configurations(study, [str(path)])[-1].detector_settings()
    other = tmp_path / "flow.toml"
    other.write_text('[detector]\nkind = "isolation-forest"\n')
    path.write_text(table + f'members = ["{other}", "vq-512"]')
    with pytest.raises(UsageError, match="two configurations are called 'flow'"):
        choose_configurations(study, ["flow", str(path)])
    path.write_text(table + f'members = ["{other}", "flow"]')
    with pytest.raises(UsageError, match="need names that differ"):
        choose_configurations(study, [str(path)])
    named_as_member = tmp_path / "vq-512.toml"
    named_as_member.write_text(table + 'members = ["flow", "vq-512"]')
    with pytest.raises(UsageError, match=r"vq-512 and its members .* need names that differ"):
        choose_configurations(study, [str(named_as_member)])
