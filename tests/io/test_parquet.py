"""unmask's own events file: lossless, streamed, atomic, and wary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from event_files import Event, Obj, event_set, example_events
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.errors import ArtifactError, BadDataError, UsageError
from unmask.events.checks import BadEvents
from unmask.events.columns import Names
from unmask.events.event_set import EventSet
from unmask.io.parquet import read_provenance, write_events
from unmask.io.read import detect_kind, read_events, stream_events
from unmask.io.source import ReadOptions
from unmask.scores.score_table import Scores, read_scores, write_scores
from unmask.tokenizers.token_set import TokenSet, write_tokens

MakeEvents = Callable[..., EventSet]


@st.composite
def objects(draw: st.DrawFn) -> Obj:
    pt = draw(st.floats(1e3, 5e5, width=32))
    eta = draw(st.floats(-3, 3, width=32))
    energy = min(pt * float(np.cosh(eta)) * draw(st.floats(0.6, 20)), 14e6)
    return Obj(
        draw(st.sampled_from(["j", "b", "e-", "e+", "m-", "m+", "g"])), energy, pt, eta, draw(st.floats(-3.14, 3.14))
    )


events_to_keep = st.builds(
    Event,
    event_id=st.integers(-(2**63), 2**63 - 1),
    process=st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
    weight=st.floats(-1e100, 1e100).map(lambda weight: weight if abs(weight) >= 1e-100 else 0.0),
    met=st.floats(1e3, 14e6),
    met_phi=st.floats(-3.14, 3.14),
    objects=st.lists(objects(), max_size=20).map(tuple),
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet") / "events.parquet"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kept=st.lists(events_to_keep, min_size=1, max_size=8),
    label=st.sampled_from([-1, 0, 1]),
    piece=st.integers(1, 8),
    chunk_events=st.integers(1, 9),
)
def test_round_trip_is_lossless(scratch: Path, kept: list[Event], label: int, piece: int, chunk_events: int) -> None:
    events = event_set(kept, file="a file.root").with_label(label)
    assert write_events(scratch, events.chunks(piece)) == len(events)
    assert read_events(scratch, options=ReadOptions(chunk_events=chunk_events)).equals(events)


def test_whatever_a_reader_accepts_can_be_kept(tmp_path: Path) -> None:
    # At the very limits, where rounding to single precision could push a value over.
    limits = [
        Obj("j", 1e6 * float(np.cosh(eta)) * ratio, 1e6, eta, phi)
        for eta in (0.0, 0.1, 1.3)
        for ratio in (0.5 * (1 + 1e-15), 0.5 * (1 + 1e-7), 0.5 * (1 + 1e-9), 2.0)
        for phi in (np.pi + 1e-3, -np.pi - 1e-3)
    ] + [Obj("b", 14e6, 1e3, 5.3, 0), Obj("b", 1e3, 1e3, 0, 0)]
    events = [Event(i, "x", 1.0, 14e6, np.pi + 1e-3, (one,)) for i, one in enumerate(limits)]
    lines = [f"{e.event_id};x;1;14e6;{e.met_phi!r};" + ",".join(map(str, vars(e.objects[0]).values())) for e in events]
    (tmp_path / "limits.csv").write_text("\n".join(lines))
    accepted = read_events(tmp_path / "limits.csv", bad=BadEvents(skip=True))
    assert len(accepted) >= len(limits) / 2
    write_events(tmp_path / "limits.parquet", accepted)
    assert read_events(tmp_path / "limits.parquet").equals(accepted)


def test_identity_and_labels_are_kept_unless_told_otherwise(tmp_path: Path, make_events: MakeEvents) -> None:
    path = tmp_path / "all.parquet"
    both = EventSet.concatenate([make_events(5, label=0, file="a.csv"), make_events(5, label=1, file="b.csv")])
    write_events(path, both)
    assert detect_kind(path) == "parquet"
    events = read_events(path)
    assert events.file.tolist() == ["a.csv"] * 5 + ["b.csv"] * 5
    assert events.row.tolist() == [*range(5), *range(5)]
    assert events.label.tolist() == [0] * 5 + [1] * 5
    told = read_events(path, options=ReadOptions(label=-1, process="data"))
    assert set(told.label) == {-1}
    assert set(told.process) == {"data"}
    assert np.array_equal(told.pt_mev, both.pt_mev)


def test_further_columns_are_kept_in_all_files(tmp_path: Path, make_events: MakeEvents) -> None:
    events = make_events(6)
    further = {"run": 362_000 + np.arange(6), "luminosity_block": np.arange(6), "PuppiMET_pt": np.arange(6) / 3}
    data = replace(events, further=further)
    write_events(tmp_path / "data.parquet", [events[:0], data[:4], data[4:]])
    options = ReadOptions(chunk_events=3, keep=("PuppiMET_pt",))
    assert read_events(tmp_path / "data.parquet", options=options).equals(data)
    # Simulation without run numbers in front of data: run numbers are in all files, null where they are unknown.
    write_scores(tmp_path / "scores.parquet", [Scores.of(part, part.weight) for part in (events[:0], events, data)])
    assert read_scores(tmp_path / "scores.parquet").further["run"].tolist() == [-1] * 6 + further["run"].tolist()
    write_tokens(tmp_path / "tokens.parquet", TokenSet.of(data, np.ones((6, 2), np.int32), 5))
    assert {*further} <= {*pq.read_table(tmp_path / "tokens.parquet").column_names}

    with pytest.raises(UsageError, match=r"no column 'PuppiMET_pT' was kept in it; did you mean 'PuppiMET_pt'"):
        read_events(tmp_path / "data.parquet", options=ReadOptions(keep=("PuppiMET_pT",)))
    with pytest.raises(UsageError, match="column met_mev cannot be kept"):
        write_events(tmp_path / "clash.parquet", replace(events, further={"met_mev": np.zeros(6)}))
    (tmp_path / "some.csv").write_text("1;x;1;50000;0;j,90000,90000,0,0\n")
    with pytest.raises(UsageError, match=r"further columns are kept of parquet, delphes, .* not darkmachines"):
        read_events(tmp_path / "some.csv", options=ReadOptions(keep=("nSV",)))


def test_cut_events_stay_counted(tmp_path: Path) -> None:
    crowded = event_set([replace(example_events(1)[0], objects=example_events(1)[0].objects * 8)])
    assert crowded.n_cut_events == 1
    write_events(tmp_path / "a.parquet", crowded)
    assert read_events(tmp_path / "a.parquet").n_dropped.tolist() == crowded.n_dropped.tolist()


def test_provenance_is_kept_and_the_file_is_replaced_whole(tmp_path: Path, make_events: MakeEvents) -> None:
    path = tmp_path / "new folder" / "a.parquet"
    write_events(path, make_events(3))
    assert read_provenance(path) == {}
    write_events(path, make_events(4), provenance={"command": "unmask convert", "inputs": {"a.csv": "ab12"}})
    assert read_provenance(path) == {"command": "unmask convert", "inputs": {"a.csv": "ab12"}}
    assert len(read_events(path)) == 4

    def breaks() -> Iterator[EventSet]:
        yield make_events(2)
        raise BadDataError("the input ends here")

    with pytest.raises(BadDataError, match="the input ends here"):
        write_events(path, breaks())
    assert len(read_events(path)) == 4
    assert [entry.name for entry in path.parent.iterdir()] == ["a.parquet"]


def test_no_events(tmp_path: Path) -> None:
    assert write_events(tmp_path / "a.parquet", []) == 0
    with pytest.raises(BadDataError, match="holds no events"):
        read_events(tmp_path / "a.parquet")


def test_many_small_pieces_become_few_row_groups(tmp_path: Path, make_events: MakeEvents) -> None:
    path = tmp_path / "a.parquet"
    events = make_events(9_900, max_objects=2)
    assert write_events(path, (part for _ in range(12) for part in events.chunks(700))) == 118_800
    assert pq.ParquetFile(path).num_row_groups == 3
    chunks = list(stream_events(path, options=ReadOptions(chunk_events=7000)))
    assert max(map(len, chunks)) <= 7000
    assert EventSet.concatenate(chunks).equals(EventSet.concatenate([events] * 12))


def test_a_unit_other_than_mev_is_refused(tmp_path: Path, make_events: MakeEvents) -> None:
    write_events(tmp_path / "a.parquet", make_events(3))
    assert len(read_events(tmp_path / "a.parquet", options=ReadOptions(unit="MeV"))) == 3
    with pytest.raises(UsageError, match="in MeV; leave out the unit GeV"):
        read_events(tmp_path / "a.parquet", options=ReadOptions(unit="GeV"))


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """Change a file the way a user with pyarrow would."""
    pq.write_table(change(pq.read_table(path)), path)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    write_events(tmp_path / "good.parquet", event_set(example_events(6)))
    return tmp_path / "good.parquet"


def with_content(table: pa.Table, **content: object) -> pa.Table:
    return table.replace_schema_metadata({b"unmask": json.dumps(content)})


def set_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace_schema_metadata(None), "unmask did not write"),
        (lambda t: t.replace_schema_metadata({b"unmask": b"{"}), "unmask did not write"),
        (lambda t: t.replace_schema_metadata({b"unmask": b"7"}), "unmask did not write"),
        (lambda t: with_content(t, kind="scores", format_version=1), "holds scores; accepted: events"),
        (lambda t: with_content(t, kind="events", format_version=99), "format version 99; this unmask reads version 1"),
        (lambda t: t.drop_columns(["eta"]), "column eta is missing"),
        (lambda t: set_column(t, "phi", t["met_phi"]), "column phi is float; accepted: list"),
        (lambda t: set_column(t, "phi", t["met_phi"].cast(pa.float64())), "column phi is double; accepted: list"),
        (lambda t: set_column(t, "pt_mev", t["pt_mev"].cast(pa.list_(pa.float64()))), "column pt_mev is list"),
        (lambda t: set_column(t, "row", t["row"].cast(pa.string())), "column row is string; accepted: int64"),
    ],
)
def test_files_that_are_not_ours(good: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    rewritten(good, change)
    with pytest.raises(ArtifactError) as caught:
        read_events(good, bad=BadEvents(skip=True))
    assert caught.value.exit_code == 3
    assert message in str(caught.value)
    assert str(good) in str(caught.value)
    with pytest.raises(ArtifactError):
        read_provenance(good)


def spoil_row_3(table: pa.Table, name: str, spoil: Callable[[object], object]) -> pa.Table:
    values = table[name].to_pylist()
    values[3] = spoil(values[3])
    return set_column(table, name, pa.array(values, table.schema.field(name).type))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("pt_mev", lambda values: values[:-1], "lists of unequal lengths; accepted: tag, energy_mev"),
        ("tag", lambda values: [], "lists of unequal lengths"),
        ("tag", lambda values: [0, *values[1:]], "an unknown tag; accepted: 1 jet, 2 b-jet"),
        ("tag", lambda values: [20, *values[1:]], "an unknown tag"),
        ("label", lambda value: 2, "an unknown label; accepted: 0, 1, -1"),
        ("eta", lambda values: None, "a missing value"),
        ("eta", lambda values: [None, *values[1:]], "a missing value"),
        ("process", lambda value: None, "a missing value"),
        ("weight", lambda value: None, "a missing value"),
    ],
)
@pytest.mark.parametrize("chunk_events", [2, 100])
def test_rows_that_contradict_themselves(
    good: Path, name: str, spoil: Callable[[object], object], message: str, chunk_events: int
) -> None:
    expected = read_events(good)
    rewritten(good, lambda table: spoil_row_3(table, name, spoil))
    options = ReadOptions(chunk_events=chunk_events)
    with pytest.raises(BadDataError) as caught:
        read_events(good, options=options)
    assert f"{good}, row 3: {message}" in str(caught.value)
    bad = BadEvents(skip=True)
    kept = read_events(good, options=options, bad=bad)
    assert kept.equals(expected[np.arange(6) != 3])
    assert bad.n_skipped == 1
    assert "row 3" in bad.summary()[0]


def test_the_place_of_a_bad_value_is_its_row_in_this_file(tmp_path: Path) -> None:
    # The events come from elsewhere and keep their row there; an error speaks of the file at hand.
    events = event_set([*example_events(3), example_events(1)[0].with_object(phi=9.0)])
    events = replace(events, row=events.row + 1000, file_names=Names.constant("old.csv", 4))
    write_events(tmp_path / "a.parquet", events)
    with pytest.raises(BadDataError, match=r"a\.parquet, row 3: phi is 9"):
        read_events(tmp_path / "a.parquet")


def test_a_flipped_byte_is_noticed(tmp_path: Path, make_events: MakeEvents) -> None:
    path = tmp_path / "a.parquet"
    events = make_events(200)
    write_events(path, events)
    data = path.read_bytes()
    last_column = pq.ParquetFile(path).metadata.row_group(0).column(13)
    end_of_pages = last_column.data_page_offset + last_column.total_compressed_size
    n_noticed = 0
    for at in np.linspace(4, end_of_pages - 100, 60).astype(int):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        try:
            read = read_events(path)
        except ArtifactError:
            n_noticed += 1
        else:
            assert read.equals(events)  # the byte meant nothing
    assert n_noticed > 50
