"""Whatever is wrong with a file, the error says where and what; or the bad events are skipped and counted."""

from __future__ import annotations

import gzip
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
from event_files import FORMATS, Event, darkmachines_line, event_set, example_events, fixed_lines, fixed_table

from unmask.errors import BadDataError, UsageError
from unmask.events.checks import BadEvents
from unmask.io import FileFormat
from unmask.io.read import detect_kind, read_events
from unmask.io.source import ReadOptions

BAD_ROW = 5


@dataclass(frozen=True)
class Fault:
    """Something wrong with the values of one event."""

    spoil: Callable[[Event], Event]
    reason: str
    message: str
    #: Formats that hold no such column.
    not_in: tuple[str, ...] = ()


def _in_gev(event: Event) -> Event:
    objects = tuple(replace(o, energy=o.energy / 1e3, pt=o.pt / 1e3) for o in event.objects)
    return replace(event, met=event.met / 1e3, objects=objects)


ARRAYS = ("fixed csv", "hdf5", "npz")
FAULTS = {
    "NaN pT": Fault(lambda e: e.with_object(pt=math.nan), "bad pT", "pt_mev is nan"),
    "infinite energy": Fault(lambda e: e.with_object(energy=math.inf), "bad energy", "energy_mev is inf"),
    "NaN eta": Fault(lambda e: e.with_object(eta=math.nan), "bad eta", "eta is nan"),
    "infinite phi": Fault(lambda e: e.with_object(phi=-math.inf), "bad phi", "phi is -inf"),
    "negative energy": Fault(lambda e: e.with_object(energy=-5e4), "bad energy", "energy_mev is -50000"),
    "negative pT": Fault(lambda e: e.with_object(pt=-3e4), "bad pT", "pt_mev is -30000"),
    "absurd pT": Fault(lambda e: e.with_object(pt=1e30, energy=1e7), "bad pT", "pt_mev is 1e+30"),
    "absurd eta": Fault(lambda e: e.with_object(eta=12.5), "bad eta", "eta is 12.5"),
    "phi out of range": Fault(lambda e: e.with_object(phi=6.25), "bad phi", "phi is 6.25"),
    "phi in degrees": Fault(lambda e: e.with_object(phi=-120.0), "bad phi", "phi is -120"),
    "NaN MET": Fault(lambda e: replace(e, met=math.nan), "bad MET", "met_mev is nan"),
    "negative MET": Fault(lambda e: replace(e, met=-1.0), "bad MET", "met_mev is -1"),
    "MET phi out of range": Fault(lambda e: replace(e, met_phi=4.5), "bad MET phi", "met_phi is 4.5"),
    "infinite weight": Fault(lambda e: replace(e, weight=math.inf), "bad weight", "weight is inf", ARRAYS),
    "E in GeV, pT in MeV": Fault(lambda e: e.with_object(energy=e.objects[1].energy / 1e3), "mixed units", "same unit"),
    "E in MeV, pT in GeV": Fault(
        lambda e: e.with_object(energy=5e6, pt=4e3, eta=0.1), "mixed units", "energy_mev is 5e+06"
    ),
    "an event in GeV": Fault(_in_gev, "bad pT", "declare its unit"),
}


def expected_without(events: list[Event], file_name: str) -> tuple[object, ...]:
    good = [event for i, event in enumerate(events) if i != BAD_ROW]
    kept = event_set(good, file_name)
    return kept.tag.tolist(), kept.pt_mev.tolist(), kept.met_mev.tolist()


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("fault_name", FAULTS)
def test_a_bad_value_is_named_or_its_event_skipped(tmp_path: Path, format_name: str, fault_name: str) -> None:
    fault, kind = FAULTS[fault_name], FORMATS[format_name]
    events = example_events(10)
    if format_name in fault.not_in:
        # The fault cannot be written: the file is good.
        kind.write(tmp_path / kind.file_name, [*events[:BAD_ROW], fault.spoil(events[BAD_ROW]), *events[6:]])
        assert len(read_events(tmp_path / kind.file_name)) == 10
        return
    path = tmp_path / kind.file_name
    kind.write(path, [*events[:BAD_ROW], fault.spoil(events[BAD_ROW]), *events[BAD_ROW + 1 :]])

    with pytest.raises(BadDataError) as caught:
        read_events(path)
    assert caught.value.exit_code == 3
    for part in (str(path), f"{kind.place(BAD_ROW)}: ", fault.message, "accepted"):
        assert part in str(caught.value)

    bad = BadEvents(skip=True)
    kept = read_events(path, bad=bad)
    assert kept.row.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert (kept.tag.tolist(), kept.pt_mev.tolist(), kept.met_mev.tolist()) == expected_without(events, path.name)
    assert bad.reasons == {fault.reason: 1}
    assert len(bad.summary()) == 1
    assert kind.place(BAD_ROW) in bad.summary()[0]
    assert fault.message in bad.summary()[0]


@pytest.mark.parametrize("format_name", FORMATS)
def test_met_in_another_unit_than_the_objects(tmp_path: Path, format_name: str) -> None:
    # A small MET is no fault of one event, so this is one of the file and cannot be skipped.
    path = tmp_path / FORMATS[format_name].file_name
    FORMATS[format_name].write(path, [replace(event, met=event.met / 1e3) for event in example_events(30)])
    for bad in (BadEvents(), BadEvents(skip=True)):
        with pytest.raises(BadDataError, match="mixed units: 30 of 30 events with MET have less than 1 GeV"):
            read_events(path, bad=bad)


def test_a_file_in_gev_read_as_mev_says_so(tmp_path: Path) -> None:
    path = tmp_path / "gev.csv"
    path.write_text("\n".join(darkmachines_line(_in_gev(event)) for event in example_events(10)))
    with pytest.raises(BadDataError, match=r"line 1: pt_mev is .* declare its unit"):
        read_events(path)
    assert len(read_events(path, options=ReadOptions(unit="GeV"))) == 10


GOOD_LINE = "7;ttH;1;1e5;0.5;j,60000,50000,0.3,1.5;b,60000,50000,0.3,1.5"
BAD_LINES = {
    "cut within a number of an object": ("7;ttH;1;1e5;0.5;j,60000,50000,0.3", "has 4 fields"),
    "cut within the header": ("7;ttH;1;1e", "4 fields separated by ';'"),
    "cut after a separator": ("7;ttH;1;1e5;", "METphi is ''"),
    "an object with six fields": (GOOD_LINE + ",1", "has 6 fields"),
    "an empty object": ("7;ttH;1;1e5;0.5;;j,60000,50000,0.3,1.5", "has 1 fields"),
    "an unknown symbol": ("7;ttH;1;1e5;0.5;nu,60000,50000,0.3,1.5", "unknown object symbol 'nu'"),
    "a wrong capital": ("7;ttH;1;1e5;0.5;J,60000,50000,0.3,1.5", "unknown object symbol 'J'"),
    "a word for a number": ("7;ttH;1;1e5;0.5;j,60000,high,0.3,1.5", "pt is 'high'"),
    "an empty number": ("7;ttH;1;1e5;0.5;j,60000,,0.3,1.5", "pt is ''"),
    "a digit group": ("7;ttH;1;100_000;0.5;j,60000,50000,0.3,1.5", "MET is '100_000'"),
    "a decimal comma": ("7;ttH;1;1e5;0,5", "METphi is '0,5'"),
    "a hexadecimal event ID": ("0x10;ttH;1;1e5;0.5", "event ID is '0x10'"),
    "a fractional event ID": ("7.5;ttH;1;1e5;0.5", "event ID is '7.5'"),
    "an event ID of 64 bits and more": ("9223372036854775808;ttH;1;1e5;0.5", "event ID is '9223372036854775808'"),
    "no process": ("7; ;1;1e5;0.5", "process ID is empty"),
    "commas only": ("7,ttH,1,1e5,0.5", "1 fields separated by ';'"),
    "a NUL byte": ("7;t\0H;1;1e5;0.5", "not text"),
    "a lone carriage return": ("7;ttH;1;1e5;0.5;j,6e4,5e4,0.3,1.5\rb,6e4,5e4,0.3,1.5;;", "not text"),
    "a byte order mark inside": ("7;ttH;1;1e5;0.5;\ufeffj,6e4,5e4,0.3,1.5", "not text"),
    "words": ("Lorem ipsum", "1 fields separated by ';'"),
}


@pytest.mark.parametrize("fault_name", BAD_LINES)
@pytest.mark.parametrize("chunk_events", [1, 1000])
def test_a_malformed_dark_machines_line(tmp_path: Path, fault_name: str, chunk_events: int) -> None:
    line, message = BAD_LINES[fault_name]
    path = tmp_path / "bad.csv"
    path.write_bytes("\n".join([*[GOOD_LINE] * 3, "", line, GOOD_LINE]).encode())
    options = ReadOptions(chunk_events=chunk_events)
    with pytest.raises(BadDataError) as caught:
        read_events(path, kind="darkmachines", options=options)
    for part in (f"{path}, line 5: ", message):
        assert part in str(caught.value)
    bad = BadEvents(skip=True)
    kept = read_events(path, kind="darkmachines", options=options, bad=bad)
    assert kept.row.tolist() == [0, 1, 2, 4]
    assert bad.reasons == {"malformed line": 1}
    assert "line 5" in bad.summary()[0]


def _spoilt_fixed_line(fields: list[str], name: str) -> list[str]:
    match name:
        case "cut within the line":
            return fields[:60]
        case "one field less":
            return fields[:-1]
        case "one field more":
            return [*fields, "0"]
        case "a word for a number":
            return [*fields[:18], "high", *fields[19:]]
        case "an unknown tag":
            return ["20", *fields[1:]]
        case "a fractional tag":
            return ["1.5", *fields[1:]]
        case "a negative tag":
            return ["-1", *fields[1:]]
        case "a NaN tag":
            return ["nan", *fields[1:]]
        case "an empty tag":
            return ["", *fields[1:]]
        case "an empty energy":
            return [*fields[:20], "", *fields[21:]]
    raise AssertionError(name)


FIXED_FAULTS = {
    "cut within the line": "60 fields",
    "one field less": "91 fields",
    "one field more": "93 fields",
    "a word for a number": "MET is 'high'",
    "an unknown tag": "tag1 is 20",
    "a fractional tag": "tag1 is 1.5",
    "a negative tag": "tag1 is -1",
    "a NaN tag": "tag1 is nan",
    "an empty tag": "tag1 is nan",
    "an empty energy": "energy_mev is nan",
}


@pytest.mark.parametrize("fault_name", FIXED_FAULTS)
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_malformed_fixed_line(tmp_path: Path, fault_name: str, separator: str) -> None:
    lines = fixed_lines(fixed_table(example_events(5)), separator)
    lines[3] = separator.join(_spoilt_fixed_line(lines[3].split(separator), fault_name))
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(BadDataError) as caught:
        read_events(path)
    for part in (f"{path}, line 4: ", FIXED_FAULTS[fault_name], "accepted"):
        assert part in str(caught.value)
    bad = BadEvents(skip=True)
    assert read_events(path, bad=bad).row.tolist() == [0, 1, 2, 4]
    assert bad.n_skipped == 1


@pytest.mark.parametrize(("tag", "shown"), [(20.0, "20"), (-1.0, "-1"), (0.5, "0.5"), (np.nan, "nan")])
@pytest.mark.parametrize("format_name", ["hdf5", "npz"])
def test_a_bad_tag_in_an_array(tmp_path: Path, format_name: str, tag: float, shown: str) -> None:
    table = fixed_table(example_events(6))
    table[4, 2] = tag
    path = tmp_path / FORMATS[format_name].file_name
    if format_name == "hdf5":
        with h5py.File(path, "w") as file:
            file["events"] = table
    else:
        np.savez(path, events=table)
    with pytest.raises(BadDataError, match=f"row 4: tag3 is {shown}; accepted: 0 for an empty slot, 1 jet, 2 b-jet"):
        read_events(path, options=ReadOptions(chunk_events=2))
    bad = BadEvents(skip=True)
    assert read_events(path, bad=bad, options=ReadOptions(chunk_events=2)).row.tolist() == [0, 1, 2, 3, 5]
    assert bad.reasons == {"bad tag": 1}


def _compressed(data: bytes, ending: str) -> bytes:
    return gzip.compress(data) if ending == "gz" else bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("format_name", ["darkmachines", "fixed csv"])
def test_a_truncated_compressed_file_is_never_read_as_a_short_one(
    tmp_path: Path, ending: str, format_name: str
) -> None:
    plain, path = tmp_path / "plain.csv", tmp_path / f"ttH.csv.{ending}"
    FORMATS[format_name].write(plain, example_events(200))
    data = _compressed(plain.read_bytes(), ending)
    kind: FileFormat = "darkmachines" if format_name == "darkmachines" else "fixed"
    for n_bytes in (5, 20, len(data) // 2, len(data) - 9, len(data) - 1):
        path.write_bytes(data[:n_bytes])
        for given_kind in (kind, None):
            with pytest.raises(BadDataError, match=r"damaged or truncated|empty") as caught:
                read_events(path, kind=given_kind, bad=BadEvents(skip=True), options=ReadOptions(chunk_events=10))
            assert str(path) in str(caught.value)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_damaged_compressed_file(tmp_path: Path, ending: str) -> None:
    plain, path = tmp_path / "plain.csv", tmp_path / f"ttH.csv.{ending}"
    FORMATS["darkmachines"].write(plain, example_events(200))
    data = bytearray(_compressed(plain.read_bytes(), ending))
    data[30:60] = bytes(30)
    path.write_bytes(data)
    with pytest.raises(BadDataError):
        read_events(path)


@pytest.mark.parametrize("format_name", ["hdf5", "npz", "parquet"])
def test_a_truncated_binary_file(tmp_path: Path, format_name: str) -> None:
    path = tmp_path / FORMATS[format_name].file_name
    FORMATS[format_name].write(path, example_events(50))
    data = path.read_bytes()
    for n_bytes in (4, 9, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:n_bytes])
        with pytest.raises(BadDataError) as caught:
            read_events(path, bad=BadEvents(skip=True))
        assert str(path) in str(caught.value)


NOT_EVENTS: dict[str, bytes] = {
    "empty": b"",
    "blank lines": b"\n \n\r\n",
    "garbage": np.random.default_rng(1).bytes(5000),
    "garbage without NUL": bytes(range(1, 256)) * 20,
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "HTML": b"<!DOCTYPE html>\n<html><head><title>404, not found</title></head></html>\n",
    "gzip of nothing": gzip.compress(b""),
    "gzip of garbage": gzip.compress(np.random.default_rng(2).bytes(5000)),
    "UTF-16": "7;ttH;1;1e5;0.5\n".encode("utf-16"),
    "gzip magic": b"\x1f\x8b" + bytes(50),
    "zstd magic": b"\x28\xb5\x2f\xfd" + bytes(50),
    "HDF5 magic": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "zip magic": b"PK\x03\x04" + bytes(200),
    "Parquet magic": b"PAR1" + bytes(200) + b"PAR1",
}


@pytest.mark.parametrize("kind", [None, "darkmachines", "fixed", "parquet"])
@pytest.mark.parametrize("name", NOT_EVENTS)
def test_what_holds_no_events_is_refused_by_every_reader(tmp_path: Path, name: str, kind: FileFormat | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(NOT_EVENTS[name])
    with pytest.raises(BadDataError) as caught:
        read_events(path, kind=kind)
    assert caught.value.exit_code == 3
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["darkmachines", "fixed", "parquet"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, format_name: str, kind: FileFormat) -> None:
    path = tmp_path / FORMATS[format_name].file_name
    FORMATS[format_name].write(path, example_events(20))
    if detect_kind(path) == kind:
        assert len(read_events(path, kind=kind)) == 20
    else:
        with pytest.raises(BadDataError):
            read_events(path, kind=kind)


def test_a_zip_or_hdf5_without_a_table_says_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, first=np.zeros((5, 91)), second=np.zeros(92))
    with pytest.raises(BadDataError, match=r"first \(5, 91\).*second \(92,\).*92 columns"):
        read_events(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(BadDataError, match="no arrays"):
        read_events(path)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/jets"] = np.zeros((5, 4))
    with pytest.raises(BadDataError, match=r"group/jets \(5, 4\)"):
        read_events(tmp_path / "a.h5")


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="folder"):
        read_events(tmp_path)
    with pytest.raises(BadDataError, match="no such file"):
        read_events(tmp_path / "nowhere.csv")


def test_an_unknown_kind_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD_LINE)
    with pytest.raises(UsageError, match="did you mean 'darkmachines'"):
        read_events(tmp_path / "a.csv", kind="darkmachine")  # type: ignore[arg-type]


def test_skipping_counts_over_all_files_and_may_leave_nothing(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("\n".join([GOOD_LINE, "nonsense", GOOD_LINE.replace("1e5", "-1e5")]))
    paths[1].write_text("nonsense;\nnonsense\n")
    bad = BadEvents(skip=True)
    assert len(read_events(paths, bad=bad)) == 1
    assert bad.reasons == {"malformed line": 3, "bad MET": 1}
    assert bad.n_skipped == 4
    assert bad.summary()[0].startswith("3 x malformed line (first: ")
    assert f"{paths[0]}, line 2" in bad.summary()[0]
