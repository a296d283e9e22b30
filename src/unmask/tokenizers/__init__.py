"""From events to tokens."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from unmask.artifacts import load_artifact
from unmask.errors import ArtifactError
from unmask.tokenizers.base import PAD_ID, Tokenizer
from unmask.tokenizers.token_set import TokenSet, concatenate_tokens, read_tokens, stream_tokens, write_tokens

__all__ = [
    "KINDS",
    "PAD_ID",
    "TokenSet",
    "Tokenizer",
    "concatenate_tokens",
    "load_tokenizer",
    "read_tokens",
    "stream_tokens",
    "tokenizer_class",
    "write_tokens",
]

# kind -> module and class; imported when needed, so that a look-up table never waits for torch.
_CLASSES: dict[str, tuple[str, str]] = {
    "lookup-table": ("lookup_table", "LookupTableTokenizer"),
    "vqvae": ("vqvae", "VQVAETokenizer"),
}
KINDS: tuple[str, ...] = tuple(_CLASSES)


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """The class of a kind in ``KINDS``."""
    module, name = _CLASSES[kind]
    found: type[Tokenizer] = getattr(import_module(f"unmask.tokenizers.{module}"), name)
    return found


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load a saved tokenizer of any kind.

    Raises
    ------
    ArtifactError
        If it is not there, not a tokenizer, of another version, damaged or changed by hand.
    """
    artifact = load_artifact(folder)
    if artifact.kind not in _CLASSES:
        raise ArtifactError(f"holds a {artifact.kind}, not a tokenizer ({', '.join(KINDS)})", path=folder)
    return tokenizer_class(artifact.kind).from_artifact(artifact, folder)
