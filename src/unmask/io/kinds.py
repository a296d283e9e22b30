"""The kinds of file that can be read."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["darkmachines", "fixed", "parquet", "delphes", "nanoaod", "physlite"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ROOT_KINDS: tuple[Kind, ...] = ("delphes", "nanoaod", "physlite")
