"""Tokens in memory and on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tokenizers.contract import make_events
from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.tokenizers import TokenSet, concatenate_tokens, read_tokens, stream_tokens, write_tokens


def make_tokens(n_events: int, seed: int = 1, n_codes: int = 456) -> TokenSet:
    tokens = np.random.default_rng(seed).integers(0, n_codes + 1, (n_events, 20), dtype=np.int32)
    return TokenSet.of(make_events(n_events, seed=seed), tokens, n_codes)


def test_padding_is_the_zeros() -> None:
    tokens = make_tokens(10)
    np.testing.assert_array_equal(tokens.is_real, tokens.tokens > 0)


def test_slices_and_joins() -> None:
    tokens = make_tokens(10)
    part = tokens[np.array([7, 2])]
    np.testing.assert_array_equal(part.tokens, tokens.tokens[[7, 2]])
    np.testing.assert_array_equal(part.process, tokens.process[[7, 2]])
    assert concatenate_tokens(list(tokens.chunks(3))).equals(tokens)
    assert not tokens[:5].equals(tokens[5:])
    with pytest.raises(UsageError, match="sliced, not indexed"):
        tokens[3]


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make_tokens(3).tokens[0, 0] = 1


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(UsageError, match="column weight has 2 entries for 3 events"):
        replace(make_tokens(3), weight=np.ones(2))


@pytest.mark.parametrize("chunk_events", [4, 100])
def test_file_round_trip(tmp_path: Path, chunk_events: int) -> None:
    tokens = make_tokens(50)
    assert write_tokens(tmp_path / "tokens.parquet", tokens.chunks(11)) == 50
    chunks = list(stream_tokens(tmp_path / "tokens.parquet", chunk_events=chunk_events))
    assert max(map(len, chunks)) <= chunk_events
    assert concatenate_tokens(chunks).equals(tokens)
    assert read_tokens(tmp_path / "tokens.parquet").equals(tokens)


def test_file_can_be_read_by_others(tmp_path: Path) -> None:
    tokens = make_tokens(5)
    write_tokens(tmp_path / "tokens.parquet", tokens, provenance={"tokenizer": "lookup-table"})
    table = pq.read_table(tmp_path / "tokens.parquet")
    identity = ["row", "event_id", "file", "process", "label", "weight"]
    assert table.column_names == [*identity, "tokens", "run", "luminosity_block"]
    assert table["tokens"].to_pylist() == tokens.tokens.tolist()
    assert table["process"].to_pylist() == tokens.process.tolist()
    assert b'"tokenizer": "lookup-table"' in table.schema.metadata[b"unmask"]


def test_parts_with_other_processes_and_files(tmp_path: Path) -> None:
    tokens = make_tokens(30)
    parts = [tokens[tokens.process == name] for name in ("ttZ", "ttH", "ttW")]
    write_tokens(tmp_path / "tokens.parquet", parts)
    assert read_tokens(tmp_path / "tokens.parquet").equals(concatenate_tokens(parts))


def test_no_events_survive_the_round_trip(tmp_path: Path) -> None:
    none = TokenSet.of(EventSet.empty(), np.zeros((0, 20), np.int32), 456)
    assert write_tokens(tmp_path / "tokens.parquet", none) == 0
    assert read_tokens(tmp_path / "tokens.parquet").equals(none)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    write_tokens(path, make_tokens(5))

    def breaks_off() -> object:
        yield make_tokens(50)
        raise RuntimeError("the disk of the reader failed")

    with pytest.raises(RuntimeError, match="failed"):
        write_tokens(path, breaks_off())
    assert read_tokens(path).equals(make_tokens(5))
    assert [file.name for file in tmp_path.iterdir()] == ["tokens.parquet"]


def test_tokens_of_two_tokenizers_do_not_mix(tmp_path: Path) -> None:
    parts = [make_tokens(5), make_tokens(5, n_codes=885)]
    with pytest.raises(UsageError, match="456 codes in sequences of 20 and 885 codes"):
        concatenate_tokens(parts)
    with pytest.raises(UsageError, match="different tokenizers"):
        write_tokens(tmp_path / "tokens.parquet", parts)
    with pytest.raises(UsageError, match="no tokens to write"):
        write_tokens(tmp_path / "tokens.parquet", [])


def test_files_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    with pytest.raises(ArtifactError, match=r"tokens\.parquet: no such file"):
        read_tokens(path)
    path.write_text("event;process")
    with pytest.raises(ArtifactError, match="cannot be read as Parquet"):
        read_tokens(path)
    pq.write_table(pa.table({"tokens": [[1, 2]]}), path)
    with pytest.raises(ArtifactError, match="unmask did not write"):
        read_tokens(path)
    write_tokens(path, make_tokens(5))
    table = pq.read_table(path)
    metadata = table.schema.metadata[b"unmask"]
    pq.write_table(table.drop_columns("weight"), path)
    with pytest.raises(ArtifactError, match="column weight is missing"):
        read_tokens(path)
    newer = metadata.replace(b'"format_version": 1', b'"format_version": 2')
    pq.write_table(table.replace_schema_metadata({b"unmask": newer}), path)
    with pytest.raises(ArtifactError, match="format version 2; this unmask reads version 1"):
        read_tokens(path)
    smaller = metadata.replace(b'"n_codes": 456', b'"n_codes": 100')
    pq.write_table(table.replace_schema_metadata({b"unmask": smaller}), path)
    with pytest.raises(ArtifactError, match="tokens outside 0 to 100"):
        read_tokens(path)


def test_damage_never_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    tokens = make_tokens(100)
    write_tokens(path, tokens)
    whole = path.read_bytes()
    n_noticed = 0
    for position in range(4, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            assert read_tokens(path).equals(tokens)  # there are bytes, as in statistics, that nobody reads
        except ArtifactError:
            n_noticed += 1
    assert n_noticed > 10
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match="cannot be read as Parquet"):
        read_tokens(path)
