"""Stages are done once, and again exactly when what they depend on has changed."""

import errno
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from unmask.artifacts import Json
from unmask.errors import TrainingError, UnmaskError, UsageError
from unmask.study.stages import Ledger, Stage, StudyReporter, plan, run_stages


class Kitchen:
    """Three stages: soup needs water, dinner needs soup and bread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[str] = []
        self.salt: Json = 1
        self.breaks: dict[str, UnmaskError] = {}
        self.recipe: str | None = None

    def stages(self) -> list[Stage]:
        water, soup, bread, dinner = (self.root / name for name in ("water", "soup", "bread", "dinner"))
        return [
            Stage("water", self.maker("water"), (water,)),
            Stage("soup", self.maker("soup"), (soup,), (water,), {"salt": self.salt}, self.root / "soup.run"),
            Stage("bread", self.maker("bread"), (bread,), version=self.recipe),
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
        return {stage.name: why for stage, why in plan(self.stages(), Ledger(self.root))}


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
        run_stages([replace(first, stops_all=True), *others], Ledger(kitchen.root), StudyReporter())
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


def test_a_new_version_makes_its_own_stage_again(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.recipe = "rye"
    assert kitchen.reasons() == {
        "water": None,
        "soup": None,
        "bread": "made by another version of unmask",
        "dinner": "an input is made again",
    }
    assert kitchen.run() == ["bread", "dinner"]
    assert kitchen.run() == []
    assert json.loads((kitchen.root / "stages" / "bread.json").read_text())["unmask"] == version("unmask")


COOK = """
import sys, time
from pathlib import Path
from unmask.study.stages import Ledger, Stage, StudyReporter, run_stages
root, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
class Reporter(StudyReporter):
    def note(self, text):
        print(text, flush=True)
def make(what, seconds):
    def cook():
        print("makes", what, flush=True)
        time.sleep(seconds)
        (root / what).write_text(what)
    return cook
shared, own = root / "stock", root / name
run_stages([Stage("stock", make("stock", seconds), (shared,)), Stage(name, make(name, 0), (own,), (shared,))],
           Ledger(root), Reporter())
print("done", flush=True)
"""


@pytest.fixture
def cook(tmp_path: Path) -> Iterator[Callable[[str, float], subprocess.Popen[str]]]:
    """Start processes that need the same stock, each for a dish of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COOK, str(tmp_path), name, str(seconds)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_waits_for_a_stage_that_another_makes(cook: Callable[[str, float], subprocess.Popen[str]]) -> None:
    first = cook("soup", 2)
    assert line_of(first) == "makes stock"
    second = cook("sauce", 2)
    assert line_of(second) == "stock: waiting for another process that makes this"
    assert second.communicate(timeout=60)[0].splitlines() == ["makes sauce", "done"]
    assert first.communicate(timeout=60)[0].splitlines() == ["makes soup", "done"]
    assert cook("sauce", 0).communicate(timeout=60)[0].splitlines() == ["done"]


def test_nobody_waits_for_a_process_that_was_killed(cook: Callable[[str, float], subprocess.Popen[str]]) -> None:
    first = cook("soup", 60)
    assert line_of(first) == "makes stock"
    second = cook("sauce", 0)
    assert line_of(second).startswith("stock: waiting")
    first.kill()
    assert second.communicate(timeout=60)[0].splitlines() == ["makes stock", "makes sauce", "done"]


def test_an_input_that_another_process_makes_otherwise_is_an_error(kitchen: Kitchen, tmp_path: Path) -> None:
    stages = kitchen.stages()

    def interfering() -> None:
        (tmp_path / "dinner").write_text("of whose soup?")
        other = Kitchen(tmp_path)
        other.salt = 9
        run_stages(other.stages()[:2], Ledger(tmp_path), StudyReporter())

    stages[-1] = replace(stages[-1], make=interfering)
    with pytest.raises(UnmaskError, match=r"soup was not left as it was .*a setting has changed.*folder of its own"):
        run_stages(stages, Ledger(tmp_path), StudyReporter())
    assert not (tmp_path / "stages" / "dinner.json").exists()


def test_without_locks_the_work_is_done_and_it_is_said(
    kitchen: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    told: list[str] = []

    class Listener(StudyReporter):
        def note(self, text: str) -> None:
            told.append(text)

    assert len(run_stages(kitchen.stages()[:1], Ledger(tmp_path), Listener())) == 1
    assert told == ["water: no lock (No locks available): nothing keeps another process from doing the same"]
