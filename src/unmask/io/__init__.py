"""Readers of event files, and the Parquet files of unmask; the names of file formats, without loading a reader."""

from typing import Literal, get_args

RootFormat = Literal["delphes", "nanoaod", "physlite"]
FileFormat = Literal["darkmachines", "fixed", "parquet", "delphes", "nanoaod", "physlite"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
ROOT_FORMATS: tuple[RootFormat, ...] = get_args(RootFormat)
