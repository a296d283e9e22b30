"""Stages are done once, and again exactly when what they depend on has changed."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from unmask.artifacts import Json
from unmask.errors import TrainingError, UnmaskError, UsageError
from unmask.studies.stages import Ledger, Stage, StudyReporter, plan, run_stages


class Kitchen:
    """Three stages: soup needs water, dinner needs soup and bread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.salt: Json = 1
        self.breaks: dict[str, UnmaskError] = {}

    def stages(self) -> list[Stage]:
        water, soup, bread, dinner = (self.root / name for name in ("water", "soup", "bread", "dinner"))
        return [
            Stage("water", self.maker("water"), (water,)),
            Stage("soup", self.maker("soup"), (soup,), (water,), {"salt": self.salt}, self.root / "soup.run"),
            Stage("bread", self.maker("bread"), (bread,)),
            Stage("dinner", self.maker("dinner"), (dinner,), (soup, bread)),
        ]

    def maker(self, name: str) -> Callable[[], None]:
        def make() -> None:
            self.made.append(name)
            if name in self.breaks:
                raise self.breaks[name]
            (self.root / name).write_text(f"{name}, {len(self.made)}")

        return make

    def run(self) -> list[str]:
        """What was made in this run."""
        self.made.clear()
        run_stages(self.stages(), Ledger(self.root), StudyReporter())
        return list(self.made)

    def reasons(self) -> dict[str, str | None]:
        return {each.stage.name: each.why for each in plan(self.stages(), Ledger(self.root))}


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    return Kitchen(tmp_path)


def test_nothing_is_done_twice(kitchen: Kitchen) -> None:
    assert set(kitchen.reasons().values()) == {"new"}
    assert kitchen.run() == ["water", "soup", "bread", "dinner"]
    assert kitchen.run() == []
    assert set(kitchen.reasons().values()) == {None}


def test_a_missing_or_changed_output_is_made_again_with_what_depends_on_it(kitchen: Kitchen) -> None:
    kitchen.run()
    (kitchen.root / "soup").unlink()
    assert kitchen.reasons() == {
        "water": None,
        "soup": "an output is missing or changed",
        "bread": None,
        "dinner": "an input is made again",
    }
    assert kitchen.run() == ["soup", "dinner"]
    (kitchen.root / "bread").write_text("bread, bitten off")
    assert kitchen.run() == ["bread", "dinner"]


def test_a_changed_setting_changes_its_own_chain_only(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.salt = 2
    assert kitchen.reasons()["soup"] == "a setting has changed"
    assert kitchen.run() == ["soup", "dinner"]


def test_a_folder_can_be_moved(kitchen: Kitchen) -> None:
    kitchen.run()
    moved = kitchen.root.with_name("moved")
    shutil.copytree(kitchen.root, moved)
    for file in moved.iterdir():
        file.touch()
    kitchen.root = moved
    assert kitchen.run() == []


def test_what_can_do_without_a_failed_stage_is_still_done(kitchen: Kitchen) -> None:
    kitchen.breaks = {"soup": TrainingError("burnt")}
    with pytest.raises(TrainingError, match="burnt"):
        kitchen.run()
    assert kitchen.made == ["water", "soup", "bread"]
    kitchen.breaks["bread"] = UsageError("no flour")
    (kitchen.root / "bread").unlink()
    with pytest.raises(UnmaskError, match=r"soup \(burnt\); bread \(no flour\)"):
        kitchen.run()
    kitchen.breaks.clear()
    assert kitchen.run() == ["soup", "bread", "dinner"]


def test_bad_files_stop_everything_at_once(kitchen: Kitchen) -> None:
    kitchen.breaks = {"water": UsageError("no tap")}
    first, *others = kitchen.stages()
    with pytest.raises(UsageError, match="no tap"):
        run_stages([replace(first, reads_files=True), *others], Ledger(kitchen.root), StudyReporter())
    assert kitchen.made == ["water"]


def test_a_training_goes_on_only_with_the_same_settings(kitchen: Kitchen) -> None:
    kitchen.breaks = {"soup": TrainingError("lights out")}
    with pytest.raises(TrainingError):
        kitchen.run()
    checkpoint = kitchen.root / "soup.run" / "checkpoint"
    checkpoint.write_text("half done")
    with pytest.raises(TrainingError):
        kitchen.run()
    assert checkpoint.exists()
    kitchen.salt = 3
    with pytest.raises(TrainingError):
        kitchen.run()
    assert not checkpoint.exists()
