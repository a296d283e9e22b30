"""A plan is the same wherever it is made, and a folder of parts is never of two kinds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.events.readers import root_events
from unmask import ReadOptions, read_events
from unmask.cluster import Shard, Task, Work, make_tasks, open_folder, run_part
from unmask.cluster.plan import WorkKind
from unmask.cluster.work import part_length
from unmask.errors import ArtifactError, BadDataError, UsageError
from unmask.events.event_set import EventSet, concatenate_events
from unmask.events.readers.parquet import write_events

CONVERT: WorkKind = "convert"


def plan(files: list[Path], out: Path, work: Work | None = None, part_events: int = 1000) -> list[Task]:
    tasks = make_tasks(work or Work(CONVERT), files, out, part_events=part_events)
    open_folder(out, tasks, part_events=part_events)
    return tasks


def test_parts_cover_every_event_once_and_in_order(files: list[Path], tmp_path: Path) -> None:
    tasks = plan(files, tmp_path / "out")
    assert [task.entries is None for task in tasks] == [False, False, False, True, True]
    for task in tasks:
        outcome = run_part(task)
        assert outcome.failure is None
        assert outcome.n_events > 0
    joined = concatenate_events([read_events(task.out) for task in tasks])
    assert joined.equals(read_events(files))


def test_a_range_of_entries_is_that_slice_of_the_file(
    files: list[Path], tmp_path: Path, make_events: Callable[..., EventSet]
) -> None:
    path = tmp_path / "two-row-groups.parquet"
    whole = make_events(52_000)
    write_events(path, whole)
    for first, last in ((0, 1), (49_000, 51_003), (50_000, 50_001), (len(whole) - 5, len(whole) + 10)):
        some = read_events(path, options=ReadOptions(entries=(first, last), chunk_events=700))
        assert some.equals(whole[first:last])
    with pytest.raises(UsageError, match="not darkmachines"):
        read_events(files[2], options=ReadOptions(entries=(0, 1)))


@pytest.mark.parametrize("storage", ["ttree", "rntuple"])
def test_root_files_are_cut_too(tmp_path: Path, storage: root_events.Storage) -> None:
    path = root_events.write(tmp_path / "ttbar.root", "delphes", storage=storage)
    tasks = plan([path], tmp_path / "out", part_events=2)
    assert len(tasks) > 1
    assert all(run_part(task).failure is None for task in tasks)
    assert concatenate_events([read_events(task.out) for task in tasks]).equals(read_events(path))


def test_files_of_one_name_do_not_collide_and_a_file_given_twice_is_done_once(
    tmp_path: Path, files: list[Path]
) -> None:
    twins = [tmp_path / folder / "plain.csv" for folder in "ab"]
    for twin in twins:
        twin.parent.mkdir()
        twin.write_bytes(files[2].read_bytes())
    tasks = plan([*twins, twins[0]], tmp_path / "out")
    assert len({task.out for task in tasks}) == len(tasks) == 2


def test_shards_share_out_all_tasks(files: list[Path], tmp_path: Path) -> None:
    tasks = plan(files, tmp_path / "out", part_events=100)
    for count in (1, 3, 50):
        shares = [Shard(i, count).of(tasks) for i in range(1, count + 1)]
        assert sorted(task.out for share in shares for task in share) == sorted(task.out for task in tasks)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for wrong in ("0/2", "3/2", "2", "a/b", "-1/2", "1/"):
        with pytest.raises(UsageError, match="1 to n"):
            Shard.parse(wrong)


def test_a_done_part_is_kept_and_a_changed_file_is_done_again(files: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "events.csv"
    source.write_bytes(files[2].read_bytes())
    (task,) = plan([source], tmp_path / "out")
    assert not run_part(task).is_kept
    assert run_part(task).is_kept
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:10]))
    failure = run_part(replace(task, out=tmp_path / "out" / "other.parquet")).failure
    assert failure is not None
    assert "has changed since" in failure
    (again,) = plan([source], tmp_path / "out")
    assert again.out == task.out
    assert part_length(again) is None
    assert run_part(again).n_events == 10


def test_parts_of_a_file_that_is_now_cut_otherwise_vanish(files: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "events.parquet"
    source.write_bytes(files[0].read_bytes())
    out = tmp_path / "out"
    for task in plan([source], out):
        run_part(task)
    source.write_bytes(files[2].read_bytes())
    tasks = plan([source], out)
    for task in tasks:
        run_part(task)
    assert sorted(path.name for path in out.iterdir()) == sorted(["_plan.json", *(task.out.name for task in tasks)])


def test_another_way_of_working_is_refused_in_the_same_folder(files: list[Path], tmp_path: Path) -> None:
    plan(files, tmp_path / "out")
    for other in (
        Work("encode", model="abc"),
        Work(CONVERT, options=ReadOptions(label=1)),
        Work(CONVERT, signal_process=("ttH",)),
    ):
        with pytest.raises(UsageError, match="choose another folder"):
            plan(files, tmp_path / "out", other)
    with pytest.raises(UsageError, match="part_events 1000, not part_events 2000"):
        plan(files, tmp_path / "out", part_events=2000)
    # What does not change the result does not matter.
    plan(files, tmp_path / "out", Work(CONVERT, options=ReadOptions(chunk_events=7), device="cuda", command="x"))


def test_parts_of_files_that_are_left_out_are_refused_but_failed_ones_are_not(
    files: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("nonsense\n")
    out = tmp_path / "out"
    tasks = plan([files[2], broken], out)
    assert [run_part(task).failure is None for task in tasks] == [True, False]
    plan([files[2]], out)
    assert [Path(file["file"]).name for file in json.loads((out / "_plan.json").read_text())["files"]] == ["plain.csv"]
    with pytest.raises(UsageError, match=r"holds parts of .*plain\.csv"):
        plan([files[1]], out)


def test_a_folder_of_something_else_is_left_alone(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        plan(files, tmp_path)
    (tmp_path / "_plan.json").write_text("{}")
    with pytest.raises(ArtifactError, match="not a plan"):
        plan(files, tmp_path)
    with pytest.raises(BadDataError, match="no such file"):
        plan([tmp_path / "missing.csv"], tmp_path / "out")


def test_leftovers_of_a_killed_worker_are_swept_up(files: list[Path], tmp_path: Path) -> None:
    (task,) = plan([files[2]], tmp_path / "out")
    leftover = tmp_path / "out" / f".{task.out.name}.abcd"
    leftover.mkdir()
    (leftover / task.out.name).write_bytes(b"half a part")
    run_part(task)
    assert sorted(os.listdir(tmp_path / "out")) == sorted(["_plan.json", task.out.name])  # noqa: PTH208


def test_bad_events_are_counted_in_the_part_that_has_them(tmp_path: Path, files: list[Path]) -> None:
    source = tmp_path / "events.csv"
    source.write_text(files[2].read_text() + "nonsense\n")
    (task,) = plan([source], tmp_path / "out", Work(CONVERT, skip_bad=True))
    outcome = run_part(task)
    assert (outcome.n_events, outcome.bad.n_skipped) == (25, 1)
    assert np.isfinite(outcome.seconds)
