"""From events to tokens."""

from unmask.tokenizers.base import Tokenizer, load_tokenizer
from unmask.tokenizers.token_set import PAD_ID, TokenSet, write_tokens

__all__ = ["PAD_ID", "TokenSet", "Tokenizer", "load_tokenizer", "write_tokens"]
