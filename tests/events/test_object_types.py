"""A further object type, and more than 18 objects per event, go all the way from a file to the report."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unmask.events.objects as table
from unmask.detectors.contrast import TRAINING, ContrastDetector
from unmask.errors import ArtifactError, UsageError
from unmask.events.event_set import EventSet
from unmask.events.objects import COMMON_TYPES, OBJECTS
from unmask.events.schema import EventSchema
from unmask.io.parquet import write_events
from unmask.io.read import read_events
from unmask.io.source import ReadOptions
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAE_TRAINING, VQVAETokenizer

SHORT = {"max_epochs": 1, "device": "cpu"}

#: What a program with one more row in the table of object types runs first.
_WITH_ONE_MORE_TYPE = f"""
import sys, types
from pathlib import Path
path = Path({table.__file__!r})
lines = path.read_text().replace("\\n)\\n#: Types that every", '''
    ObjectType(10, ("x",), "axion jet", family="axion jet"),
)
#: Types that every''')
assert "axion" in lines
module = types.ModuleType("unmask.events.objects")
sys.modules[module.__name__] = module
exec(compile(lines, path, "exec"), module.__dict__)
import unmask.events
unmask.events.objects = module
"""


def _csv(path: Path, n_events: int, symbols: str, *, n_objects: int = 6, seed: int = 0) -> Path:
    """A Dark Machines file whose events hold one object of each of the symbols, and jets."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(n_events):
        objects = []
        for symbol in [*symbols, *"j" * (rng.integers(3, n_objects, endpoint=True) - len(symbols))]:
            pt, eta, phi = rng.uniform(2e4, 4e5), rng.uniform(-2.4, 2.4), rng.uniform(-3.1, 3.1)
            objects.append(f"{symbol},{pt * np.cosh(eta) * 1.01:.7g},{pt:.7g},{eta:.5f},{phi:.5f}")
        lines.append(f"{i};ttbar;1;{rng.uniform(1e4, 3e5):.7g};{rng.uniform(-3, 3):.5f};{';'.join(objects)}\n")
    path.write_text("".join(lines))
    return path


def test_a_further_type_goes_from_a_file_to_the_report(tmp_path: Path) -> None:
    for name, n, seed in (("train", 400, 1), ("validation", 100, 2), ("data", 100, 3)):
        _csv(tmp_path / f"{name}.csv", n, "xb", seed=seed)
    _csv(tmp_path / "common.csv", 100, "jb", seed=4)
    code = (
        _WITH_ONE_MORE_TYPE
        + f"""
import os
sys.path.insert(0, os.getcwd())
os.chdir({str(tmp_path)!r})
from dataclasses import replace
from tests.cli.running import failing, running
from unmask.io.read import read_events
from unmask.tokenizers.lookup_table import LookupTableTokenizer
from unmask.tokenizers.vqvae import VQVAE_TRAINING, VQVAETokenizer
train, common = read_events("train.csv"), read_events("common.csv")
assert (train.tag == 10).any() and "axion jet 1.00" in repr(train), repr(train)

lut = LookupTableTokenizer(4).fit(train)
assert lut.n_codes == 8 * 64 + 8
held = lut.encode(train[:1]).tokens[0][: train.n_objects[0]]
assert any("axion jet" in lut.describe(token) for token in held)
assert LookupTableTokenizer(4).fit(common).n_codes == 456
vq = VQVAETokenizer(8, hidden=8, training=replace(VQVAE_TRAINING, max_epochs=1, device="cpu")).fit(train)
assert any("axion jet" in vq.describe(token) for token in range(1, 9))
lut.save("lut")

settings = ["--set", "training.max_epochs=1", "--set", "size=tiny", "--device", "cpu"]
running("train", "train.csv", "--validation", "validation.csv", "--out", "model", *settings)
running("score", "model", "data.csv", "--out", "scores.parquet", "--explain", "5", "--label", "background")
running("train", "common.csv", "--out", "other", *settings)
code, message = failing("score", "other", "data.csv", "--out", "wrong.parquet")
assert code == 2, message
assert "100 of 100 events hold axion jet; this contrast detector knows jet, b-jet" in " ".join(message.split())
running("report", "scores.parquet", "--out", "report.html")
"""
    )
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    assert not result.returncode, result.stderr
    assert "axion jet" in (tmp_path / "report.html").read_text()
    with pytest.raises(ArtifactError, match="made for objects of type axion jet; this unmask has jet, b-jet"):
        ContrastDetector.load(tmp_path / "model")
    with pytest.raises(ArtifactError, match="made for objects of type axion jet"):
        LookupTableTokenizer.load(tmp_path / "lut")


def test_more_than_18_objects_from_a_file_to_scores(tmp_path: Path) -> None:
    options = ReadOptions(max_objects=30, label=0)
    path = _csv(tmp_path / "many.csv", 300, "bg", n_objects=30)
    events = read_events(path, options=options)
    assert events.tag.shape == (300, 30)
    assert events.n_objects.max() == 30
    assert not events.n_dropped.any()
    first_18 = read_events(path, options=replace(options, max_objects=None))
    assert first_18.n_objects.max() == 18
    assert first_18.n_cut_events == (events.n_objects > 18).sum()

    write_events(tmp_path / "many.parquet", events)
    assert read_events(tmp_path / "many.parquet").equals(events)
    assert read_events(tmp_path / "many.parquet", options=ReadOptions(max_objects=18)).n_objects.max() == 18

    lut = LookupTableTokenizer(4).fit(events)
    assert lut.encode(events).tokens.shape == (300, 32)
    lut.save(tmp_path / "lut")
    again = LookupTableTokenizer.load(tmp_path / "lut")
    assert again.sequence_length == 32
    np.testing.assert_array_equal(again.encode(first_18).is_real[:, :30].sum(axis=1), first_18.n_objects)
    narrow = LookupTableTokenizer(4).fit(first_18)
    with pytest.raises(UsageError, match=r"have more than 18 objects .up to 30.; this lookup-table tokenizer has room"):
        narrow.encode(events)

    vq = VQVAETokenizer(8, hidden=8, training=replace(VQVAE_TRAINING, **SHORT)).fit(events)
    assert vq.encode(events).tokens.shape == (300, 31)

    tiny = {"size": "tiny", "training": replace(TRAINING, **SHORT)}
    ContrastDetector(**tiny).fit(events[:200], events[200:]).save(tmp_path / "wide")
    wide = ContrastDetector.load(tmp_path / "wide")
    assert np.isfinite(wide.score_events(events, device="cpu")).all()
    few = first_18[first_18.n_dropped == 0]
    of_both = [wide.score_events(part, device="cpu") for part in (few, few.with_max_objects(30))]
    np.testing.assert_array_equal(*of_both)
    with pytest.raises(UsageError, match="this contrast detector has room for 18"):
        ContrastDetector(**tiny).fit(first_18[:200], first_18[200:]).score_events(events)


def test_a_table_holds_events_of_one_width(tmp_path: Path) -> None:
    path = _csv(tmp_path / "many.csv", 20, "j")
    wide, narrow = (read_events(path, options=ReadOptions(max_objects=n)) for n in (30, 18))
    with pytest.raises(UsageError, match="max_objects=30 after others with 18; read all files with the same"):
        write_events(tmp_path / "both.parquet", [narrow, wide])
    write_events(tmp_path / "both.parquet", [EventSet.empty(), wide, narrow])
    assert read_events(tmp_path / "both.parquet").max_objects == 30


def test_models_know_the_common_types_and_those_they_were_trained_on(tmp_path: Path) -> None:
    events = read_events(_csv(tmp_path / "jets.csv", 10, "j"))
    assert EventSchema.of(events) == EventSchema(COMMON_TYPES, 18)
    assert sorted(OBJECTS) == list(range(1, len(OBJECTS) + 1))
    assert [OBJECTS[tag].name for tag in range(1, 8)] == list(COMMON_TYPES), "tags in files and models never change"
