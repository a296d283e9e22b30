"""Files with any damage: read, or refused by an error of unmask, but no other exception, whatever the bytes.

More inputs than a test run tries: ``UNMASK_FUZZ_EXAMPLES=10000 pytest tests/test_fuzzing.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unmask
from unmask import load_sample, read_events
from unmask.errors import UnmaskError
from unmask.events.checks import BadEvents
from unmask.io.sample import resolve
from unmask.scores.explanations import read_explanations
from unmask.scores.score_table import SCORES_TABLE, read_scores
from unmask.tables import METADATA_KEY
from unmask.workflow.score import Scoring

sys.path.insert(0, str(Path(__file__).parent / "io"))
from event_files import FORMATS, example_events

EXAMPLES = int(os.environ.get("UNMASK_FUZZ_EXAMPLES", "8"))
FUZZED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: What a damage does to the bytes of a file: at a relative place, some bytes replaced, inserted or cut off.
DAMAGES = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["replace", "insert", "cut", "end"]),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([b"\0", b"\xff" * 8, b"nan", b"1e999", b",,", b"\n\n", b'"', b"[" * 5000]),
        ),
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, damages: list[tuple[float, str, bytes]]) -> bytes:
    for place, what, new in damages:
        at = int(place * len(data))
        rest = {"replace": at + len(new), "insert": at, "cut": at + 50, "end": len(data)}[what]
        data = data[:at] + (b"" if what in ("cut", "end") else new) + data[rest:]
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of events in each format, scores with explanations, scores as CSV, and a model."""
    folder = tmp_path_factory.mktemp("whole")
    for one in FORMATS.values():
        one.write(folder / one.file_name, example_events(30))
    sample = load_sample("gluino")[:50]
    Scoring(unmask.load("sample:gluino-model"), explain=3, device="cpu").write([sample], folder / "scores.parquet")
    (folder / "scores.csv").write_text("score,label,weight\n" + "".join(f"{i / 7},{i % 2},1\n" for i in range(30)))
    shutil.copytree(resolve("sample:gluino-model"), folder / "model")
    return folder


READERS: dict[str, Callable[[Path], object]] = {
    **{one.file_name: read_events for one in FORMATS.values()},
    "scores.parquet": read_scores,
    "scores.csv": read_scores,
    "scores.explained.json": read_explanations,
    "model/manifest.json": lambda path: unmask.load(path.parent),
    "model/arrays.safetensors": lambda path: unmask.load(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@FUZZED
@given(damages=DAMAGES)
def test_damaged_bytes_are_read_or_refused(
    folder: Path, tmp_path: Path, name: str, damages: list[tuple[float, str, bytes]]
) -> None:
    path = tmp_path / name
    if path.parent.name == "model" and not path.parent.exists():
        shutil.copytree(folder / "model", path.parent)
    path.write_bytes(damaged((folder / name).read_bytes(), damages))
    with suppress(UnmaskError):
        READERS[name](path)


TYPES = st.sampled_from(
    [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.null(), pa.binary(),
     pa.list_(pa.float64()), pa.dictionary(pa.int32(), pa.string()), pa.timestamp("s"), pa.decimal128(5, 2)]
)  # fmt: skip


@FUZZED
@given(
    types=st.dictionaries(st.sampled_from([*SCORES_TABLE.columns, "met_mev", "run", "further"]), TYPES),
    is_null=st.booleans(),
    is_ours=st.booleans(),
)
def test_scores_with_columns_of_any_type_are_read_or_refused(
    folder: Path, tmp_path: Path, types: dict[str, pa.DataType], is_null: bool, is_ours: bool
) -> None:
    whole = pq.read_table(folder / "scores.parquet")
    metadata = {METADATA_KEY: whole.schema.metadata[METADATA_KEY]} if is_ours else {}
    columns: dict[str, Any] = {name: whole[name] for name in whole.schema.names}
    for name, kind in types.items():
        with suppress(pa.ArrowException):
            columns[name] = pa.nulls(len(whole), kind) if is_null else pa.array(np.ones(len(whole))).cast(kind)
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    with suppress(UnmaskError):
        read_scores(path)


@FUZZED
@given(
    name=st.sampled_from(["row", "label", "process", "met_mev", "tag", "pt_mev", "n_dropped", "run", "weight"]),
    kind=TYPES,
    is_null=st.booleans(),
)
def test_events_with_columns_of_any_type_are_read_or_refused(
    folder: Path, tmp_path: Path, name: str, kind: pa.DataType, is_null: bool
) -> None:
    whole = pq.read_table(folder / FORMATS["parquet"].file_name)
    values = pa.nulls(len(whole), kind)
    with suppress(pa.ArrowException):
        values = values if is_null else pa.array(np.ones(len(whole))).cast(kind)
    columns = {each: whole[each] for each in whole.schema.names} | {name: values}
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(whole.schema.metadata), path)
    with suppress(UnmaskError):
        read_events(path, bad=BadEvents(skip=True))
