"""Public data sets by DOI, fetched with pooch and checked against the checksums of their Zenodo record.

A folder of data holds the files under the names of the record and ``zenodo-RECORD.txt``, pooch's registry of their
checksums, with which the folder serves without a network.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from unmask.artifacts import atomic_path, checked, making, sha256_of_file
from unmask.errors import BadDataError, UnmaskError, UsageError, nearest

#: Environment variable with the folder to use instead of the user's cache.
DATA_DIR_VARIABLE = "UNMASK_DATA_DIR"
_ZENODO = "https://zenodo.org"
_TIMEOUT_SECONDS = 30
#: Records of thousands of files are a few megabytes long.
_MAX_RECORD_BYTES = 1 << 24
#: Called with the name of a file, its bytes that are here, and its size.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Study:
    """A public data set: a Zenodo record, which of its files are fetched, and which members of its tar archives."""

    record: int
    pattern: str = "*"
    members: str = "*"

    @property
    def doi(self) -> str:
        """The digital object identifier.

        >>> STUDIES["gluino"].doi
        '10.5281/zenodo.3961917'
        """
        return f"10.5281/zenodo.{self.record}"


STUDIES = {
    "gluino": Study(3961917, "training_files.tar", "chan2b/*"),  # background, and signals such as gluino pairs
    "darkmachines": Study(3961917),  # channels 1, 2a, 2b and 3 of the challenge
    "darkmachines-secret": Study(4443151),
    "darkmachines-processes": Study(3685861),  # simulated events, not split into channels
}


@dataclass(frozen=True)
class _File:
    key: str
    checksum: str
    links: dict[str, str]


@dataclass(frozen=True)
class _Record:
    files: list[_File]


def list_study(study: str, *, directory: str | Path | None = None, pattern: str | None = None) -> dict[str, str]:
    """Names and checksums of the files that :func:`download_study` would fetch; the parameters are the same."""
    store, names, _ = _record(study, directory, pattern)
    return {name: str(store.registry[name]) for name in names}


def download_study(
    study: str, *, directory: str | Path | None = None, pattern: str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Fetch the files of a public study that are not here yet, and give the paths of its data.

    Every file is checked against the checksum of the record, also one that is here already. Tar archives are unpacked
    into a folder beside them; a file there that is not as in its archive is unpacked again.

    Parameters
    ----------
    study
        A name in ``STUDIES``.
    directory
        Where the files are or go; by default ``$UNMASK_DATA_DIR``, else a folder in the user's cache.
    pattern
        Which files of the record, as in a shell; by default those that the study needs.
    progress
        Called as bytes arrive.

    Raises
    ------
    UsageError
        If there is no such study or no file matches ``pattern``.
    BadDataError
        If a file has another checksum than in the record; one that was just downloaded is removed.
    UnmaskError
        If the network, the server or the disk fails.
    """
    store, names, index = _record(study, directory, pattern)
    text = "".join(f"{shlex.quote(name)} {checksum}\n" for name, checksum in store.registry.items())
    with suppress(OSError):  # a shared folder may be read-only; if the disk is at fault, the download fails too
        if not index.is_file() or index.read_text() != text:
            with atomic_path(index) as scratch:
                scratch.write_text(text)
    paths: list[Path] = []
    for name in names:
        path = Path(store.path) / name
        with making(Path(store.path)), _failures_named(path, store.registry[name]):
            store.fetch(name, progressbar=_Bar(name, progress) if progress else False)
            paths += _unpack(path, STUDIES[study].members) if tarfile.is_tarfile(path) else [path]
    return paths


def _record(name: str, directory: str | Path | None, pattern: str | None) -> tuple[Any, list[str], Path]:
    """The folder of a study as pooch knows it, the files to fetch, and the file that keeps the checksums."""
    if name == "four-top":
        raise UsageError(
            "no public download of the four-top study is known; give your own event files, in any format unmask reads"
        )
    if name not in STUDIES:
        raise UsageError(f"unknown study {name!r}; {nearest(name, STUDIES)}")
    study = STUDIES[name]
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    override = directory or os.environ.get(DATA_DIR_VARIABLE)
    folder = Path(override).expanduser() if override else Path(pooch.os_cache("unmask")) / f"zenodo-{study.record}"
    index = folder / f"zenodo-{study.record}.txt"
    files = f"{_ZENODO}/records/{study.record}/files/"
    store = pooch.create(path=folder, base_url=files, allow_updates=False)
    try:
        for file in _fetch_record(study).files:
            store.registry[file.key], store.urls[file.key] = file.checksum, file.links["self"]
    except (requests.RequestException, OSError, KeyError, ValueError, RecursionError) as error:
        if not index.is_file():
            raise UnmaskError(
                f"cannot read the record {study.doi} ({type(error).__name__}); check the network. Without one, copy a "
                f"folder that unmask has downloaded to (with its {index.name}), and name it with --directory or "
                f"{DATA_DIR_VARIABLE}"
            ) from None
        with _failures_named(index):
            store.load_registry(index)
    for file in store.registry:
        if not _is_inside(file):
            raise BadDataError(f"file name {file!r} of {study.doi} leads out of the folder")
    shell_pattern = pattern or study.pattern
    chosen = [file for file in store.registry if fnmatchcase(file, shell_pattern)]
    if not chosen:
        listed = ", ".join(store.registry) or "no files"
        raise UsageError(f"no file of {study.doi} matches {shell_pattern!r}; it holds {listed}")
    return store, chosen, index


def _fetch_record(study: Study) -> _Record:
    """Content of a record, from Zenodo's interface."""
    import requests

    address = f"{_ZENODO}/api/records/{study.record}"
    with requests.get(address, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        answer.raise_for_status()
        content = answer.raw.read(_MAX_RECORD_BYTES + 1, decode_content=True)
    if len(content) > _MAX_RECORD_BYTES:
        raise ValueError("too long for a record")
    return checked(_Record, json.loads(content), Path(study.doi))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not {"..", "\\", "\0"} & {*path.parts, *name}


class _Bar:
    """Progress bar in the form that pooch takes."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name, self.progress = name, progress
        self.total = self.n_bytes = 0

    def update(self, n_bytes: int) -> None:
        self.n_bytes = min(self.n_bytes + n_bytes, self.total)
        self.progress(self.name, self.n_bytes, self.total)

    def reset(self) -> None:
        self.n_bytes = 0

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def _failures_named(path: Path, checksum: str = "") -> Iterator[None]:
    """Turn what the network, the disk and damaged files raise into errors that name the file."""
    import requests

    is_here = path.exists()
    try:
        yield
    except UnmaskError:
        raise
    except requests.RequestException as error:  # is an OSError too
        raise UnmaskError(f"cannot fetch {path.name} ({error}); check the network, and run it again") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadDataError(f"the archive cannot be unpacked ({error})", path=path) from None
    except OSError as error:
        raise UnmaskError(f"{path}: cannot be read or written ({error.strerror or error})") from None
    except ValueError:  # how pooch reports a wrong hash; a file that has arrived is removed
        advice = "move or remove it" if is_here else "what arrived was removed; try again"
        raise BadDataError(f"is not the file of the record ({checksum}); {advice}", path=path) from None


def _unpack(archive: Path, members: str) -> list[Path]:
    """Unpack the files of a tar archive that match into a folder of its name, unless they are there already."""
    folder = archive.with_name(archive.name.split(".")[0])
    paths = []
    with tarfile.open(archive) as tar:
        for member in filter(tarfile.TarInfo.isfile, tar):
            if not _is_inside(member.name):
                raise BadDataError(f"member {member.name!r} leads out of the folder", path=archive)
            # Some archives have all below a folder of their own name, some have not.
            parts = PurePosixPath(member.name).parts
            inner = "/".join(parts[1:] if parts[0] == folder.name else parts)
            if fnmatchcase(inner, members):
                paths.append(folder / inner)
                with cast("IO[bytes]", tar.extractfile(member)) as source:  # it is a file, so there is one
                    _copy(source, member.size, folder / inner)
    if not paths:
        raise BadDataError(f"the archive holds no {members}", path=archive)
    return sorted(paths)


def _copy(source: Any, size: int, path: Path) -> None:
    """Write the content of ``source`` to ``path``, unless it is there."""
    if path.is_file() and path.stat().st_size == size:
        if file_digest(source, "sha256").hexdigest() == sha256_of_file(path):
            return
        source.seek(0)
    with atomic_path(path) as scratch, scratch.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
