"""Every file is told by its content, and read in memory that does not grow with it."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from event_files import FORMATS, example_events

from unmask.io import parquet
from unmask.io.read import detect_kind, read_events, stream_events
from unmask.io.source import ReadOptions


def peak_bytes(path: Path, chunk_events: int) -> int:
    """The most memory that streaming a file takes: in Python and NumPy, and in pyarrow whenever a chunk arrives."""
    in_arrow = 0
    tracemalloc.start()
    try:
        for chunk in stream_events(path, options=ReadOptions(chunk_events=chunk_events)):
            assert len(chunk) <= 2 * chunk_events
            in_arrow = max(in_arrow, pa.total_allocated_bytes())
        return tracemalloc.get_traced_memory()[1] + in_arrow
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format_name", [*FORMATS, "gzip"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, format_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events = example_events(100) * 10
    peaks = []
    for n_times in (1, 8):
        path = tmp_path / f"{n_times}.file"
        if format_name == "parquet":
            # A row group is read at a time: only a file of many is a large one.
            monkeypatch.setattr(parquet, "_ROW_GROUP_EVENTS", 500)
            FORMATS["parquet"].write(path, events * n_times)
        elif format_name == "npz":
            FORMATS["npz"].write(tmp_path / "scratch.npz", events * n_times)
            (tmp_path / "scratch.npz").rename(path)
        elif format_name == "gzip":
            FORMATS["darkmachines"].write(path, events * n_times)
            path.write_bytes(gzip.compress(path.read_bytes()))
        else:
            FORMATS[format_name].write(path, events * n_times)
        peak_bytes(path, chunk_events=200)  # what is imported and cached on first use does not count
        peaks.append(peak_bytes(path, chunk_events=200))
    assert peaks[1] < 1.3 * peaks[0]


@pytest.mark.parametrize("format_name", FORMATS)
def test_chunk_size_does_not_change_the_events(tmp_path: Path, format_name: str) -> None:
    path = tmp_path / FORMATS[format_name].file_name
    FORMATS[format_name].write(path, example_events(40))
    whole = read_events(path)
    assert len(whole) == 40
    for chunk_events in (1, 3, 40):
        assert read_events(path, options=ReadOptions(chunk_events=chunk_events)).equals(whole)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_kind_is_told_by_content_not_by_name(tmp_path: Path, format_name: str) -> None:
    scratch = tmp_path / FORMATS[format_name].file_name
    FORMATS[format_name].write(scratch, example_events(3))
    path = scratch.rename(tmp_path / "file.dat")
    expected = {"darkmachines": "darkmachines", "parquet": "parquet"}.get(format_name, "fixed")
    assert detect_kind(path) == expected
    assert len(read_events(path)) == 3


@pytest.mark.parametrize(
    "first_line", ["1;ttH;1;1e5;0", "1;ttH;1;1e5;0;", "\n\n1;ttH;1;1e5;0;" + "j,6e4,5e4,0,0;" * 30]
)
def test_dark_machines_lines_of_any_length_are_known(tmp_path: Path, first_line: str) -> None:
    (tmp_path / "a").write_text(first_line + "\n")
    assert detect_kind(tmp_path / "a") == "darkmachines"


def test_several_files_become_one_set(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        FORMATS["darkmachines"].write(tmp_path / name, example_events(3))
    events = read_events([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert events.file.tolist() == [str(tmp_path / "a.csv")] * 3 + [str(tmp_path / "b.csv")] * 3
    assert events.row.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.array_equal(events.pt_mev[:3], events.pt_mev[3:])
