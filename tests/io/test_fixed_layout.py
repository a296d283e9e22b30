"""The fixed 92-column layout, from CSV, HDF5 and NPZ."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from event_files import event_set, example_events, fixed_lines, fixed_table
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import BadDataError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.objects import Unit
from unmask.io.read import detect_kind, read_events, stream_events
from unmask.io.source import ReadOptions

Table = npt.NDArray[np.float64]


def write_csv(path: Path, table: Table, **arrays: object) -> None:
    path.write_text("\n".join(fixed_lines(table)) + "\n")


def write_hdf5(path: Path, table: Table, **arrays: object) -> None:
    with h5py.File(path, "w") as file:
        file["events"] = table
        for name, array in arrays.items():
            file[name] = array


def write_npz(path: Path, table: Table, **arrays: object) -> None:
    np.savez_compressed(path, events=table, **arrays)  # type: ignore[arg-type]


WRITERS: dict[str, Callable[..., None]] = {"csv": write_csv, "h5": write_hdf5, "npz": write_npz}


def same_kinematics(events: EventSet, expected: EventSet) -> bool:
    columns = ("tag", "energy_mev", "pt_mev", "eta", "phi", "met_mev", "met_phi")
    return all(np.array_equal(getattr(events, name), getattr(expected, name)) for name in columns)


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("chunk_events", [1, 7, 1000])
def test_all_files_give_the_same_events(tmp_path: Path, ending: str, chunk_events: int) -> None:
    path = tmp_path / f"ttH.v1.{ending}"
    WRITERS[ending](path, fixed_table(example_events(40)))
    assert detect_kind(path) == "fixed"
    events = read_events(path, options=ReadOptions(chunk_events=chunk_events))
    assert same_kinematics(events, event_set(example_events(40)))
    assert events.row.tolist() == events.event_id.tolist() == list(range(40))
    assert set(events.process) == {"ttH"}
    assert set(events.weight) == {1}
    assert set(events.label) == {-1}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("unit", ["MeV", "GeV", "log-MeV", "log-GeV"])
def test_units(tmp_path: Path, ending: str, unit: Unit) -> None:
    table = fixed_table(example_events(30))
    energies = [18, *range(20, 92, 4), *range(21, 92, 4)]
    if unit.endswith("GeV"):
        table[:, energies] /= 1e3
    if unit.startswith("log"):
        is_filled = table[:, energies] > 0
        table[:, energies] = np.log(table[:, energies], where=is_filled, out=np.zeros((30, len(energies))))
    path = tmp_path / f"ttH.{ending}"
    WRITERS[ending](path, table)
    events, expected = read_events(path, options=ReadOptions(unit=unit)), event_set(example_events(30))
    for name in ("energy_mev", "pt_mev", "met_mev"):
        assert getattr(events, name) == pytest.approx(getattr(expected, name), rel=1e-6)
    assert np.array_equal(events.eta, expected.eta)
    if unit != "MeV":
        with pytest.raises(BadDataError):
            read_events(path)


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("padding", [np.nan, np.inf, -1e30, 50_000.0])
@pytest.mark.parametrize("unit", ["MeV", "log-MeV"])
def test_the_content_of_padding_never_matters(tmp_path: Path, ending: str, padding: float, unit: Unit) -> None:
    def table(fill: float) -> Table:
        values = fixed_table(example_events(10), padding=fill)
        if unit == "log-MeV":
            is_filled = (values[:, :18] > 0).repeat(4, axis=1) & (np.arange(72) % 4 < 2)
            values[:, 20:][is_filled] = np.log(values[:, 20:][is_filled])
            values[:, 18] = np.log(values[:, 18])
        return values

    path = tmp_path / f"ttH.{ending}"
    WRITERS[ending](path, table(0))
    clean = read_events(path, options=ReadOptions(unit=unit))
    WRITERS[ending](path, table(padding))
    assert read_events(path, options=ReadOptions(unit=unit)).equals(clean)


def test_empty_slots_may_be_empty_fields_and_stand_anywhere(tmp_path: Path) -> None:
    table = fixed_table(example_events(3))
    # Move the first object to the last slot: only tags say what is empty.
    table[:, 17], table[:, 0] = table[:, 0], 0
    table[:, 88:92] = table[:, 20:24]
    path = tmp_path / "ttH.csv"
    rows = [line.split(",") for line in fixed_lines(table)]
    for row in rows:
        row[20:24] = ["", " ", "", ""]
    path.write_text("\n".join(",".join(row) for row in rows))
    assert same_kinematics(read_events(path), event_set(example_events(3)))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixed") / "ttH.csv"


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 100),
    separator=st.sampled_from(",;"),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    form=st.sampled_from(["{:.9g}", "{:.9e}", " {:+.9e} "]),
    has_header=st.booleans(),
    chunk_events=st.sampled_from([1, 1000]),
)
def test_ways_to_write_the_csv(
    scratch: Path, seed: int, separator: str, end: str, form: str, has_header: bool, chunk_events: int
) -> None:
    table = fixed_table(example_events(6, seed=seed))
    lines = [separator.join(form.format(value) for value in row) for row in table]
    header = [separator.join(f"c{i}" for i in range(92))] if has_header else []
    scratch.write_text(end.join(header + lines), newline="")
    events = read_events(scratch, kind="fixed", options=ReadOptions(chunk_events=chunk_events))
    assert same_kinematics(events, event_set(example_events(6, seed=seed)))
    assert events.row.tolist() == list(range(6))


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_csv(tmp_path: Path, ending: str) -> None:
    plain = packed = tmp_path / "ttH.csv"
    write_csv(plain, fixed_table(example_events(50)))
    data, expected = plain.read_bytes(), read_events(plain)
    packed.write_bytes(gzip.compress(data) if ending == "gz" else pa.Codec("zstd").compress(data, asbytes=True))
    assert detect_kind(packed) == "fixed"
    assert read_events(packed, options=ReadOptions(chunk_events=3)).equals(expected)


def test_a_header_counts_as_a_line_and_only_the_first_is_one(tmp_path: Path) -> None:
    lines = fixed_lines(fixed_table(example_events(4)))
    header = ",".join(f"column {i}" for i in range(92))
    path = tmp_path / "ttH.csv"
    path.write_text("\n".join([header, *lines[:2], "oops", *lines[2:]]))
    with pytest.raises(BadDataError, match="line 4: 1 fields"):
        read_events(path)
    path.write_text("\n".join([*lines[:2], header, *lines[2:]]))
    with pytest.raises(BadDataError, match="line 3: tag1 is 'column 0'"):
        read_events(path)
    path.write_text(header)
    with pytest.raises(BadDataError, match="no events"):
        read_events(path)
    # A first line with a single broken number is an event, not a header.
    path.write_text("\n".join([lines[0].replace(",", ",x", 1), *lines[1:]]))
    with pytest.raises(BadDataError, match="line 1: tag2 is 'x"):
        read_events(path)


@pytest.mark.parametrize("ending", ["h5", "npz"])
@pytest.mark.parametrize(
    "process",
    [
        np.array([1, 2, 1, 2]),
        np.array([1.0, 2.0, 1.0, 2.0]),
        np.array([b"1", b"2", b"1", b"2"]),
        ["1", "2", "1", "2"],
    ],
    ids=["whole", "float", "bytes", "text"],
)
def test_a_companion_array_names_the_processes(tmp_path: Path, ending: str, process: object) -> None:
    path = tmp_path / f"mix.{ending}"
    WRITERS[ending](path, fixed_table(example_events(4)), process=process)
    assert read_events(path, options=ReadOptions(chunk_events=3)).process.tolist() == ["1", "2", "1", "2"]
    assert set(read_events(path, options=ReadOptions(process="all")).process) == {"all"}


@pytest.mark.parametrize("ending", ["h5", "npz"])
@pytest.mark.parametrize(
    ("process", "message"),
    [
        (np.arange(3), r"'process' has shape \(3,\); accepted: \(4,\)"),
        (np.zeros((4, 1)), r"'process' has shape \(4, 1\)"),
        (np.array([1, 2, np.nan, 1]), "row 2: process is nan"),
        (np.array([b"a", b"b", b"", b"a"]), "row 2: process is b''"),
    ],
)
def test_a_bad_companion_array(tmp_path: Path, ending: str, process: object, message: str) -> None:
    path = tmp_path / f"mix.{ending}"
    WRITERS[ending](path, fixed_table(example_events(4)), process=process)
    with pytest.raises(BadDataError, match=message):
        read_events(path)


@pytest.mark.parametrize("ending", ["h5", "npz"])
def test_several_tables_need_a_choice(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"two.{ending}"
    WRITERS[ending](path, fixed_table(example_events(4)), other=fixed_table(example_events(5, seed=1)))
    with pytest.raises(UsageError, match=r"several arrays have 92 columns: events, other"):
        read_events(path)
    chosen = read_events(path, options=ReadOptions(dataset="other"))
    assert same_kinematics(chosen, event_set(example_events(5, seed=1)))
    with pytest.raises(UsageError, match="no array 'othr'; did you mean 'other'"):
        read_events(path, options=ReadOptions(dataset="othr"))


def test_hdf5_groups_have_their_own_processes(tmp_path: Path) -> None:
    path = tmp_path / "groups.h5"
    with h5py.File(path, "w") as file:
        file["background/events"] = fixed_table(example_events(3))
        file["background/process"] = ["ttW", "ttZ", "ttW"]
        file["process"] = np.arange(99)
        file["signal/events"] = fixed_table(example_events(2))
    assert read_events(path, options=ReadOptions(dataset="background/events")).process.tolist() == ["ttW", "ttZ", "ttW"]
    assert read_events(path, options=ReadOptions(dataset="signal/events")).process.tolist() == ["groups"] * 2


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_number_types_and_memory_orders(tmp_path: Path, dtype: str, order: str) -> None:
    path = tmp_path / "ttH.npz"
    table = np.asarray(fixed_table(example_events(10)), dtype=dtype, order=order)  # type: ignore[call-overload]
    np.savez(path, events=table)
    events = read_events(path, options=ReadOptions(chunk_events=3))
    assert same_kinematics(events, event_set(example_events(10)))


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "sprung",))  # type: ignore[return-value]

    path = tmp_path / "trap.npz"
    trap = np.array([Trap()] * 2, dtype=object)
    np.savez(path, events=fixed_table(example_events(2)), process=trap)
    with pytest.raises(BadDataError, match="Python objects"):
        read_events(path)
    np.savez(path, events=np.full((1, 92), trap[0], dtype=object))
    with pytest.raises(BadDataError, match=r"holds events \(0,\) object"):
        read_events(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("ending", WRITERS)
def test_chunks_are_small(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"ttH.{ending}"
    WRITERS[ending](path, fixed_table(example_events(100)))
    sizes = [len(chunk) for chunk in stream_events(path, options=ReadOptions(chunk_events=10))]
    assert sum(sizes) == 100
    assert max(sizes) <= 20


def test_hdf5_does_not_lead_to_other_files(tmp_path: Path) -> None:
    table = fixed_table(example_events(2))
    table.tofile(tmp_path / "secret")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("events", table.shape, table.dtype, external=[(str(tmp_path / "secret"), 0, table.nbytes)])
    write_hdf5(tmp_path / "other.h5", table)
    layout = h5py.VirtualLayout(table.shape, table.dtype)
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "events", table.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("events", layout)
    for name in ("external.h5", "virtual.h5"):
        with pytest.raises(BadDataError, match=f"{name}: array 'events' keeps its values in other files"):
            read_events(tmp_path / name)


def mapped_bytes() -> int:
    """Memory that holds pieces of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))


def test_an_npz_file_in_fortran_order_is_not_held_in_memory(tmp_path: Path) -> None:
    table = np.repeat(fixed_table(example_events(1)), 100_000, axis=0).astype(np.float32)
    np.savez(tmp_path / "events.npz", events=np.asfortranarray(table))
    before = mapped_bytes()
    for _ in stream_events(tmp_path / "events.npz", options=ReadOptions(chunk_events=10_000)):
        assert mapped_bytes() - before < table.nbytes / 2
