"""From events to tokens."""

from unmask.tokenizers.base import Tokenizer, load_tokenizer
from unmask.tokenizers.token_set import PAD_ID, TokenSet, concatenate_tokens, read_tokens, stream_tokens, write_tokens

__all__ = [
    "PAD_ID",
    "TokenSet",
    "Tokenizer",
    "concatenate_tokens",
    "load_tokenizer",
    "read_tokens",
    "stream_tokens",
    "write_tokens",
]
