"""What every tokenizer must do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.tokenizers.contract import TOKENIZERS, make_events, with_junk_in_padding
from unmask import fitted as fitted_kinds
from unmask.artifacts import FORMAT_VERSION
from unmask.errors import ArtifactError, NotFittedError, UsageError
from unmask.events.columns import join
from unmask.events.event_set import EventSet
from unmask.events.objects import MAX_OBJECTS
from unmask.tokenizers import PAD_ID, Tokenizer, load_tokenizer

TRAIN, VALIDATION, TEST = make_events(300, seed=1), make_events(100, seed=2), make_events(100, seed=3)


@pytest.fixture(params=TOKENIZERS.values(), ids=TOKENIZERS)
def make(request: pytest.FixtureRequest) -> Callable[[], Tokenizer]:
    return request.param


@pytest.fixture(scope="module", params=TOKENIZERS.values(), ids=TOKENIZERS)
def fitted(request: pytest.FixtureRequest) -> Tokenizer:
    return request.param().fit(TRAIN, VALIDATION)


def test_every_kind_is_here() -> None:
    assert {make().kind for make in TOKENIZERS.values()} == set(fitted_kinds.TOKENIZERS)


def test_every_object_and_nothing_else_has_a_code(fitted: Tokenizer) -> None:
    tokens = fitted.encode(TEST)
    assert tokens.tokens.shape == (len(TEST), fitted.sequence_length)
    assert tokens.tokens.dtype == np.int32
    assert tokens.tokens.min() == PAD_ID
    assert tokens.tokens.max() <= fitted.n_codes == tokens.n_codes
    n_padding = np.count_nonzero(~tokens.is_real, axis=1)
    np.testing.assert_array_equal(n_padding, MAX_OBJECTS - TEST.n_objects)


def test_tokens_keep_the_identity_of_their_events(fitted: Tokenizer) -> None:
    selection = np.array([5, 3, 98])
    tokens = fitted.encode(TEST[selection])
    for name in ("row", "event_id", "file", "process", "label", "weight"):
        np.testing.assert_array_equal(getattr(tokens, name), getattr(TEST, name)[selection])


def test_an_event_has_the_same_tokens_in_any_company(fitted: Tokenizer) -> None:
    whole = fitted.encode(TEST)
    assert join([fitted.encode(chunk) for chunk in TEST.chunks(7)]).equals(whole)
    order = np.random.default_rng(0).permutation(len(TEST))
    assert fitted.encode(TEST[order]).equals(whole[order])


def test_content_of_padding_never_matters(make: Callable[[], Tokenizer]) -> None:
    clean = make().fit(TRAIN, VALIDATION)
    assert clean.encode(with_junk_in_padding(TEST)).equals(clean.encode(TEST))
    junk = make().fit(with_junk_in_padding(TRAIN), with_junk_in_padding(VALIDATION))
    assert junk.encode(TEST).equals(clean.encode(TEST))


def test_refit_is_identical_and_replaces_what_was_learnt(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make().fit(VALIDATION, TRAIN)
    tokenizer.fit(TRAIN, VALIDATION)
    assert tokenizer.encode(TEST).equals(make().fit(TRAIN, VALIDATION).encode(TEST))


def test_input_is_left_as_it_was(make: Callable[[], Tokenizer]) -> None:
    train, test = make_events(300, seed=1), make_events(100, seed=3)
    make().fit(train).encode(test)
    assert train.equals(TRAIN)
    assert test.equals(TEST)


def test_no_events_give_no_tokens(fitted: Tokenizer) -> None:
    assert fitted.encode(EventSet.empty()).tokens.shape == (0, fitted.sequence_length)


def test_events_without_objects_are_all_padding_but_for_the_met(fitted: Tokenizer) -> None:
    tokens = fitted.encode(make_events(5, n_objects=0))
    np.testing.assert_array_equal(tokens.is_real.sum(axis=1), fitted.sequence_length - MAX_OBJECTS)


@pytest.mark.parametrize("where", ["train", "validation"])
def test_signal_is_refused(make: Callable[[], Tokenizer], where: str) -> None:
    mixed = EventSet.concatenate([VALIDATION, TEST[:3].with_label(1)])
    train, validation = (mixed, VALIDATION) if where == "train" else (TRAIN, mixed)
    tokenizer = make()
    with pytest.raises(UsageError, match="3 of 103 events are labeled signal"):
        tokenizer.fit(train, validation)
    with pytest.raises(NotFittedError):
        tokenizer.encode(TEST)


def test_unlabeled_events_are_accepted(make: Callable[[], Tokenizer]) -> None:
    assert make().fit(TRAIN.with_label(-1), VALIDATION.with_label(-1)).fitted_on_ is not None


def test_use_before_fit_is_refused(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    for use in (lambda t: t.encode(TEST), lambda t: t.describe(1), lambda t: t.save(tmp_path / "tokenizer")):
        with pytest.raises(NotFittedError, match="has not been fitted"):
            use(make())
    assert not list(tmp_path.iterdir())


def test_each_token_has_a_description(fitted: Tokenizer) -> None:
    assert fitted.describe(PAD_ID) == "padding"
    words = [fitted.describe(token) for token in range(1, fitted.n_codes + 1)]
    assert all(words)
    assert "padding" not in words
    for token in (-1, fitted.n_codes + 1):
        with pytest.raises(UsageError, match=f"no token {token}: .* 1 to {fitted.n_codes}"):
            fitted.describe(token)


def test_saved_and_loaded_is_the_same(fitted: Tokenizer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "tokenizer")
    for loaded in (load_tokenizer(tmp_path / "tokenizer"), type(fitted).load(tmp_path / "tokenizer")):
        assert type(loaded) is type(fitted)
        assert loaded.settings() == fitted.settings()
        assert loaded.fitted_on_ == fitted.fitted_on_
        assert (loaded.n_codes, loaded.sequence_length) == (fitted.n_codes, fitted.sequence_length)
        assert loaded.encode(TEST).equals(fitted.encode(TEST))
        assert loaded.describe(fitted.n_codes) == fitted.describe(fitted.n_codes)


def test_provenance_says_what_it_was_fitted_on(fitted: Tokenizer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "tokenizer")
    facts = json.loads((tmp_path / "tokenizer" / "manifest.json").read_text())["provenance"]["fitted_on"]
    assert facts["train"] == {
        "n_events": 300,
        "n_objects": int(TRAIN.n_objects.sum()),
        "files": {"a.csv": 150, "b.csv": 150},
        "processes": {"ttH": 100, "ttW": 100, "ttZ": 100},
    }
    assert facts["validation"]["n_events"] == 100


def test_damaged_or_foreign_folders_are_refused(fitted: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    manifest, arrays = folder / "manifest.json", folder / "arrays.safetensors"

    def refused(match: str) -> None:
        with pytest.raises(ArtifactError, match=match):
            load_tokenizer(folder)

    refused("no manifest.json here")
    fitted.save(folder)
    text, content = manifest.read_text(), arrays.read_bytes()
    manifest.write_text(text.replace(f'"format_version": {FORMAT_VERSION}', '"format_version": 99'))
    refused("format version 99")
    manifest.write_text(text.replace('"n_events": 300', '"n_events": 301'))
    refused("changed after it was saved")
    manifest.write_text(text[: len(text) // 2])
    refused("cannot be read")
    manifest.write_text(text)
    arrays.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused("arrays.safetensors: was damaged or changed")
    arrays.unlink()
    refused("arrays.safetensors: is missing")
    arrays.write_bytes(content)
    assert load_tokenizer(folder).encode(TEST).equals(fitted.encode(TEST))


def test_events_used_here_are_as_readers_give_them() -> None:
    """The suite above proves little if its events are not like real ones."""
    events = make_events(200)
    for field in fields(EventSet):
        column = getattr(events, field.name)
        if isinstance(column, np.ndarray) and column.ndim == 2:
            assert not column[~events.is_object].any()
    assert set(events.n_objects) == set(range(1, MAX_OBJECTS + 1))
    assert set(events.tag.ravel()) == set(range(8))
