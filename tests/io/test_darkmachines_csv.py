"""The Dark Machines reader, against a reference parser that does nothing clever."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from event_files import TAGS, darkmachines_line, event_set, example_events, write_darkmachines
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import BadDataError
from unmask.events.checks import BadEvents
from unmask.events.event_set import EventSet
from unmask.io.read import detect_kind, read_events, stream_events
from unmask.io.source import ReadOptions

#: One event as both parsers give it: row, id, process, weight, MET, MET phi, objects (tag, E, pT, eta, phi).
Parsed = tuple[int, int, str, float, float, float, list[tuple[float, ...]]]


def single(value: float) -> float:
    """Round to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def reference_parse(data: bytes) -> Iterator[Parsed | None]:
    """Yield each filled line's event, None where it is bad: split and float, then the physical limits."""
    row = 0
    for line in data.split(b"\n"):
        line = line.rstrip(b" \t\r")
        if not line:
            continue
        try:
            yield reference_event(line.decode(), row)
        except (ValueError, KeyError):
            yield None
        row += 1


def reference_event(line: str, row: int) -> Parsed:
    if not line.replace("\t", " ").isprintable():
        raise ValueError
    fields = line.split(";")
    while len(fields) > 5 and not fields[-1].strip():
        fields.pop()
    event_id, process, weight, met, met_phi = fields[:5]
    numbers = [float(field) for field in (weight, met, met_phi)]
    objects = []
    for field in fields[5:]:
        symbol, *rest = field.split(",")
        energy, pt, eta, phi = map(float, rest)
        if not (1 <= energy <= 14e6 and 1e3 <= pt <= 14e6 and abs(eta) <= 10 and abs(phi) <= math.pi + 1e-3):
            raise ValueError
        if not 0.5 <= energy / (pt * math.cosh(eta)) <= 100:
            raise ValueError
        objects.append((TAGS[symbol.strip()], *map(single, (energy, pt, eta, phi))))
    if "_" in line.replace(process, "", 1):  # float accepts 1_000
        raise ValueError
    if not (math.isfinite(numbers[0]) and 0 <= numbers[1] <= 14e6 and abs(numbers[2]) <= math.pi + 1e-3):
        raise ValueError
    if not process.strip() or not (numbers[0] == 0 or 1e-100 <= abs(numbers[0]) <= 1e100):
        raise ValueError
    try:
        whole = int(event_id)
    except ValueError:
        if not float(event_id).is_integer():
            raise
        whole = int(float(event_id))
    if not -(2**63) <= whole < 2**63:
        raise ValueError
    # Of equal pT the first of the file; an independent statement of which 18 are kept.
    objects = sorted(sorted(objects, key=lambda one: -one[2])[:18], key=lambda one: (one[0], -one[2]))
    return (row, whole, process.strip(), numbers[0], single(numbers[1]), single(numbers[2]), objects)


def as_parsed(events: EventSet) -> list[Parsed]:
    return [
        (
            int(events.row[i]),
            int(events.event_id[i]),
            str(events.process[i]),
            float(events.weight[i]),
            float(events.met_mev[i]),
            float(events.met_phi[i]),
            [
                (int(tag), *map(float, rest))
                for tag, *rest in zip(
                    events.tag[i], events.energy_mev[i], events.pt_mev[i], events.eta[i], events.phi[i], strict=True
                )
                if tag
            ],
        )
        for i in range(len(events))
    ]


spaces = st.sampled_from(["", "", "", " ", "\t", "  "])


@st.composite
def number_texts(draw: st.DrawFn, low: float, high: float) -> str:
    value = draw(st.floats(low, high).filter(lambda one: one == 0 or abs(one) > 1e-90))
    form = draw(st.sampled_from(["{!r}", "{:.6g}", "{:.5e}", "{:+.3f}", "{:.4E}", "{:.0f}."]))
    return draw(spaces) + form.format(value) + draw(spaces)


@st.composite
def object_texts(draw: st.DrawFn) -> str:
    symbol = draw(spaces) + draw(st.sampled_from(sorted(TAGS))) + draw(spaces)
    eta = draw(st.floats(-4, 4))
    pt = draw(st.floats(2e3, 2e5))
    energy = pt * math.cosh(eta) * draw(st.floats(1, 2))
    return ",".join([symbol, f"{energy:.7g}", f"{pt:.7g}", f"{eta:.5g}", draw(number_texts(-3.1, 3.1))])


@st.composite
def lines(draw: st.DrawFn) -> str:
    event_id = draw(
        st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), st.sampled_from(["1e+06", " 12 ", "+3", "5.0"]))
    )
    process = draw(st.sampled_from(["ttH", "4", " ttbar ", "t t", "2,5", "tt̄", "0x"]))
    header = [event_id, process, draw(number_texts(-10, 10)), draw(number_texts(0, 1e6)), draw(number_texts(-3.1, 3.1))]
    n_objects = draw(st.sampled_from([0, 1, 2, 3, 18, 19, 25]))
    objects = [draw(object_texts()) for _ in range(min(n_objects, 3))]
    objects = (objects * 9)[:n_objects]
    if n_objects == 2 and draw(st.booleans()):
        objects.reverse()
    return ";".join(header + objects) + draw(st.sampled_from(["", ";", "; ", ";;", " "]))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    filled = draw(st.lists(lines(), min_size=1, max_size=8))
    ends = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]))
    text = draw(st.sampled_from(["", "\n", "\ufeff"])) + ends.join(filled) + draw(st.sampled_from(["", ends, "\r"]))
    return text.encode()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "events.csv"


def check_against_reference(path: Path, data: bytes, chunk_events: int) -> None:
    path.write_bytes(data)
    expected = list(reference_parse(data.removeprefix(b"\xef\xbb\xbf")))
    options = ReadOptions(chunk_events=chunk_events)
    bad = BadEvents(skip=True)
    kept = read_events(path, kind="darkmachines", options=options, bad=bad)
    assert as_parsed(kept) == [event for event in expected if event is not None]
    assert bad.n_skipped == expected.count(None)
    if None in expected:
        with pytest.raises(BadDataError, match="line "):
            read_events(path, kind="darkmachines", options=options)
    else:
        assert read_events(path, kind="darkmachines", options=options).equals(kept)


@settings(max_examples=60, deadline=None)
@given(data=files(), chunk_events=st.sampled_from([1, 2, 1000]))
def test_reads_what_the_reference_reads(scratch: Path, data: bytes, chunk_events: int) -> None:
    assert None not in reference_parse(data.removeprefix(b"\xef\xbb\xbf"))
    check_against_reference(scratch, data, chunk_events)


@settings(max_examples=120, deadline=None)
@given(
    data=files(),
    place=st.floats(0, 1, exclude_max=True),
    byte=st.one_of(st.sampled_from(b";,.\n\r eE+-_0x\0\xffjbn"), st.integers(0, 255)),
    chunk_events=st.sampled_from([1, 1000]),
)
def test_one_wrong_byte_never_changes_an_event_silently(
    scratch: Path, data: bytes, place: float, byte: int, chunk_events: int
) -> None:
    data = data.removeprefix(b"\xef\xbb\xbf")
    at = int(place * len(data))
    check_against_reference(scratch, data[:at] + bytes([byte]) + data[at + 1 :], chunk_events)


@settings(max_examples=50, deadline=None)
@given(data=files(), n_bytes=st.integers(1, 40))
def test_a_cut_file_keeps_the_whole_lines(scratch: Path, data: bytes, n_bytes: int) -> None:
    if data.removeprefix(b"\xef\xbb\xbf")[:-n_bytes].strip():
        check_against_reference(scratch, data[:-n_bytes], 1000)


def test_the_18_hardest_objects_are_kept_and_ordered_by_tag_then_falling_pt(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    jets = [f"j,{pt * 1.1:.0f},{pt},0.1,0" for pt in range(20_000, 37_000, 1000)]
    others = ["g,60000,50000,0.1,0", "mu+,60000,50000,0.1,0", "b,70000,60000,0.1,0"]
    path.write_text("\n".join("1;ttH;1;1e5;0;" + ";".join(objects) for objects in (others + jets, jets[:2])))
    events = read_events(path)
    # The two softest jets are cut and counted.
    assert events.tag[0].tolist() == [1] * 15 + [2, 6, 7]
    assert events.pt_mev[0].tolist() == [*range(36_000, 21_000, -1000), 60_000, 50_000, 50_000]
    assert events.n_dropped.tolist() == [2, 0]
    assert events.n_cut_events == 1
    assert events.tag[1].tolist() == [1, 1] + [0] * 16
    assert events.pt_mev[1, 2:].tolist() == [0] * 16


def test_a_huge_number_of_objects_does_not_overflow_the_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1;ttH;1;1e5;0;" + ";".join(["j,60000,50000,0.1,0"] * 40_000))
    assert read_events(path).n_dropped.tolist() == [32767]


def test_symbols_and_their_charges(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for symbol, tag in {"e-": 3, "e+": 4, "m-": 5, "mu-": 5, "m+": 6, "mu+": 6}.items():
        path.write_text(f"1;ttH;1;1e5;0;{symbol},60000,50000,0.1,0")
        assert read_events(path).tag[0, 0] == tag


@pytest.mark.parametrize("unit", ["GeV", "log-MeV", "log-GeV"])
def test_a_declared_unit_gives_the_same_events(tmp_path: Path, unit: str) -> None:
    events = example_events(20)

    def convert(mev: float) -> float:
        value = mev / 1e3 if unit.endswith("GeV") else mev
        return math.log(value) if unit.startswith("log") else value

    path = tmp_path / "events.csv"
    write_darkmachines(
        path,
        [
            replace(
                event,
                met=convert(event.met),
                objects=tuple(replace(o, energy=convert(o.energy), pt=convert(o.pt)) for o in event.objects),
            )
            for event in events
        ],
    )
    read = read_events(path, options=ReadOptions(unit=unit))  # type: ignore[arg-type]
    assert read.pt_mev == pytest.approx(event_set(events).pt_mev, rel=1e-6)
    assert read.energy_mev == pytest.approx(event_set(events).energy_mev, rel=1e-6)
    assert read.met_mev == pytest.approx(event_set(events).met_mev, rel=1e-6)


def test_process_and_label_from_the_options(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    write_darkmachines(path, example_events(3))
    assert set(read_events(path).process) == {"ttH"}
    assert set(read_events(path).label) == {-1}
    events = read_events(path, options=ReadOptions(process="tttt", label=1))
    assert set(events.process) == {"tttt"}
    assert set(events.label) == {1}
    assert set(events.file) == {str(path)}


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_give_the_same_events_whatever_their_name(tmp_path: Path, ending: str) -> None:
    plain = packed = tmp_path / "events.csv"
    write_darkmachines(plain, example_events(300))
    data, expected = plain.read_bytes(), read_events(plain)
    packed.write_bytes(gzip.compress(data) if ending == "gz" else pa.Codec("zstd").compress(data, asbytes=True))
    assert detect_kind(packed) == "darkmachines"
    assert read_events(packed).equals(expected)
    assert read_events(packed, options=ReadOptions(chunk_events=7)).equals(expected)


def test_progress_rises_to_one(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    write_darkmachines(path, example_events(3000))
    seen: list[float] = []
    for _ in stream_events(path, options=ReadOptions(chunk_events=100), progress=seen.append):
        pass
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert all(0 <= fraction <= 1 for fraction in seen)


def test_line_numbers_go_on_over_blocks(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    text = [darkmachines_line(event) for event in example_events(500)]
    text[400] = "nonsense"
    path.write_text("\n\n".join(text))
    with pytest.raises(BadDataError, match="line 801: "):
        read_events(path, options=ReadOptions(chunk_events=3))
