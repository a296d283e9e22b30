"""Tokens in memory and on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tokenizers.contract import make_events
from unmask.errors import UsageError
from unmask.events.columns import join
from unmask.events.event_set import EventSet
from unmask.tokenizers import TokenSet, write_tokens


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
    assert join(list(tokens.chunks(3))).equals(tokens)
    assert not tokens[:5].equals(tokens[5:])
    with pytest.raises(UsageError, match="sliced, not indexed"):
        tokens[3]


def test_arrays_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make_tokens(3).tokens[0, 0] = 1


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(UsageError, match="column weight has 2 entries for 3 events"):
        replace(make_tokens(3), weight=np.ones(2))


@pytest.mark.parametrize("n_parts", [1, 5])
def test_file_can_be_read_by_others(tmp_path: Path, n_parts: int) -> None:
    tokens = make_tokens(30)
    parts = tokens if n_parts == 1 else tokens.chunks(7)
    assert write_tokens(tmp_path / "tokens.parquet", parts, provenance={"tokenizer": "lookup-table"}) == 30
    table = pq.read_table(tmp_path / "tokens.parquet")
    identity = ["row", "event_id", "file", "process", "label", "weight"]
    assert table.column_names == [*identity, "tokens", "run", "luminosity_block"]
    assert table["tokens"].to_pylist() == tokens.tokens.tolist()
    for name in identity:
        assert table[name].to_pylist() == getattr(tokens, name).tolist()
    assert b'"tokenizer": "lookup-table"' in table.schema.metadata[b"unmask"]
    assert b'"n_codes": 456' in table.schema.metadata[b"unmask"]


def test_no_events_make_a_file_without_rows(tmp_path: Path) -> None:
    none = TokenSet.of(EventSet.empty(), np.zeros((0, 20), np.int32), 456)
    assert write_tokens(tmp_path / "tokens.parquet", none) == 0
    assert pq.read_table(tmp_path / "tokens.parquet").num_rows == 0
    with pytest.raises(UsageError, match="no tokens to write"):
        write_tokens(tmp_path / "tokens.parquet", [])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    write_tokens(path, make_tokens(5))

    def breaks_off() -> object:
        yield make_tokens(50)
        raise RuntimeError("the disk of the reader failed")

    with pytest.raises(RuntimeError, match="failed"):
        write_tokens(path, breaks_off())
    assert pq.read_table(path)["tokens"].to_pylist() == make_tokens(5).tokens.tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["tokens.parquet"]
