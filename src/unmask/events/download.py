"""Public data sets by DOI: fetched from Zenodo once, checked against the record's checksums, resumed when interrupted.

A folder of data holds the files under the names of the record, ``NAME.part`` while a file is on its way, and
``zenodo-RECORD.json``, the checksums as the record gave them, with which the folder serves without a network.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from unmask.artifacts import Json, atomic_path
from unmask.errors import BadDataError, UnmaskError, UsageError, nearest

DEFAULT_API = "https://zenodo.org/api"
#: Environment variable with the folder to use instead of the user's cache.
DATA_DIR_VARIABLE = "UNMASK_DATA_DIR"
_TIMEOUT_S = (10, 60)  # to connect, and between two pieces of an answer
# What is lost when a connection breaks is the last piece, so pieces are small.
_PIECE_BYTES = 1 << 16
_RESUME = "; what has arrived is kept: run it again to continue"
_CHECKSUM = re.compile(r"(md5|sha1|sha256|sha512):[0-9a-f]+")


@dataclass(frozen=True)
class Study:
    """A public data set.

    Attributes
    ----------
    record : number of the Zenodo record.
    description : what it holds, in a line.
    pattern : which files of the record are fetched.
    members : which files are unpacked from its tar archives, as a pattern of paths within the archive.
    """

    record: int
    description: str
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
    "gluino": Study(
        3961917,
        "Dark Machines channel 2b: Standard Model background and signals, among them gluino pairs (1 TeV)",
        pattern="training_files.tar",
        members="chan2b/*",
    ),
    "darkmachines": Study(3961917, "Dark Machines challenge: background and signals of channels 1, 2a, 2b and 3"),
    "darkmachines-secret": Study(4443151, "Dark Machines challenge: the secret data of channels 1, 2a, 2b and 3"),
    "darkmachines-processes": Study(3685861, "Dark Machines simulated LHC events, not split into channels"),
}


@dataclass(frozen=True)
class RemoteFile:
    """A file of a record: its name, size in bytes, checksum (``md5:...``) and address."""

    name: str
    size: int
    checksum: str
    url: str


#: Called with a file on its way and how many of its bytes are here; first with what was here before.
Progress = Callable[[RemoteFile, int], None]


def list_study(
    study: str, *, directory: str | Path | None = None, pattern: str | None = None, api: str = DEFAULT_API
) -> list[RemoteFile]:
    """Say which files :func:`download_study` would fetch, with their sizes; the parameters are the same.

    Without a network, this is what ``directory`` remembers of the record.
    """
    chosen = _study(study)
    return _select(chosen, _record_files(chosen, _folder(chosen, directory), api), pattern)


def download_study(
    study: str,
    *,
    directory: str | Path | None = None,
    pattern: str | None = None,
    progress: Progress | None = None,
    api: str = DEFAULT_API,
) -> list[Path]:
    """Fetch the files of a public study that are not here yet, and give the paths of its data.

    Every file is checked against the checksum that the record states, also one that is here already. What an
    interrupted download has left is continued. Tar archives are unpacked into a folder beside them.

    Parameters
    ----------
    study : a name in ``STUDIES``.
    directory : where the files are or go; by default ``$UNMASK_DATA_DIR``, else a folder in the user's cache.
    pattern : which files of the record, as in a shell; by default those that the study needs.
    progress : called as bytes arrive.
    api : address of the Zenodo interface.

    Returns
    -------
    Paths of the files; in place of an archive, those of the files of the study that were unpacked from it.

    Raises
    ------
    UsageError
        If there is no such study or no file matches ``pattern``.
    BadDataError
        If a file is not what the record says; a download that failed the check is removed.
    UnmaskError
        If the network, the server or the disk fails.
    """
    chosen = _study(study)
    folder = _folder(chosen, directory)
    everything = _record_files(chosen, folder, api)
    files = _select(chosen, everything, pattern)
    with suppress(OSError):  # a shared folder may be read-only; if the disk is at fault, the download says so
        _write_index(_index(chosen, folder), chosen, everything)
    paths: list[Path] = []
    for file in files:
        try:
            path = _fetch(file, folder, progress or (lambda *_: None))
            paths += _unpack(path, chosen.members) if tarfile.is_tarfile(path) else [path]
        except OSError as error:
            raise UnmaskError(f"{folder / file.name}: cannot be read or written ({error.strerror or error})") from None
    return paths


def _study(name: str) -> Study:
    if name == "four-top":
        raise UsageError(
            "no public download of the four-top study is known; give your own event files, in any format unmask reads"
        )
    if name not in STUDIES:
        raise UsageError(f"unknown study {name!r}; {nearest(name, STUDIES)}")
    return STUDIES[name]


def _folder(study: Study, directory: str | Path | None) -> Path:
    override = directory or os.environ.get(DATA_DIR_VARIABLE)
    if override:
        return Path(override).expanduser()
    import pooch

    return Path(pooch.os_cache("unmask")) / f"zenodo-{study.record}"


def _select(study: Study, files: list[RemoteFile], pattern: str | None) -> list[RemoteFile]:
    wanted = pattern or study.pattern
    chosen = [file for file in files if fnmatchcase(file.name, wanted)]
    if not chosen:
        names = ", ".join(file.name for file in files)
        raise UsageError(f"no file of {study.doi} matches {wanted!r}; it holds {names or 'no files'}")
    return chosen


def _index(study: Study, folder: Path) -> Path:
    return folder / f"zenodo-{study.record}.json"


def _record_files(study: Study, folder: Path, api: str) -> list[RemoteFile]:
    """The files that the record lists now or, when it cannot be reached, listed at the last download to ``folder``."""
    url = f"{api.rstrip('/')}/records/{study.record}"
    index = _index(study, folder)
    try:
        with _get(url) as response:
            return _parse_record(response.json(), url)
    except BadDataError:
        raise
    except UnmaskError as error:
        try:
            return _parse_record(json.loads(index.read_text()), index)
        except FileNotFoundError:
            raise UnmaskError(
                f"{error}. Without a network, a folder is needed that unmask has downloaded to before (with its "
                f"{index.name}): copy one, and name it with --directory or {DATA_DIR_VARIABLE}"
            ) from None
        except (OSError, json.JSONDecodeError, UnicodeDecodeError) as damage:
            raise BadDataError(f"cannot be read ({damage}), and {error}", path=index) from None


def _parse_record(record: Json, source: str | Path) -> list[RemoteFile]:
    try:
        files = [
            RemoteFile(
                str(entry["key"]), int(entry["size"]), str(entry["checksum"]).lower(), str(entry["links"]["self"])
            )
            for entry in record["files"]
        ]
    except (KeyError, TypeError, ValueError):
        raise BadDataError(
            "not a Zenodo record; expected files with key, size, checksum and links.self", path=source
        ) from None
    for file in files:
        if not _is_inside(file.name):
            raise BadDataError(f"file name {file.name!r} leads out of the folder", path=source)
        if not _CHECKSUM.fullmatch(file.checksum):
            raise BadDataError(f"checksum {file.checksum!r} of {file.name}; accepted: md5:, sha256: ...", path=source)
    return files


def _write_index(index: Path, study: Study, files: list[RemoteFile]) -> None:
    """Keep what is known of the record, in the form of the record itself."""
    entries = [
        {"key": file.name, "size": file.size, "checksum": file.checksum, "links": {"self": file.url}} for file in files
    ]
    with atomic_path(index) as scratch:
        scratch.write_text(json.dumps({"doi": study.doi, "files": entries}, indent=1) + "\n")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
    )


def _fetch(file: RemoteFile, folder: Path, progress: Progress) -> Path:
    import pooch

    path = folder / file.name
    if path.exists():
        algorithm, digest = file.checksum.split(":")
        if pooch.file_hash(str(path), alg=algorithm) != digest:
            # It may be the user's own file of that name, so it is not for us to replace.
            raise BadDataError(f"is not the file of the record ({file.checksum}); move or remove it", path=path)
        return path
    try:
        with _silent(pooch.get_logger()):
            pooch.retrieve(
                file.url,
                known_hash=file.checksum,
                fname=file.name,
                path=folder,
                downloader=_ResumingDownloader(file, path.with_name(f"{path.name}.part"), progress),
            )
    except UnmaskError:
        raise
    except ValueError:  # how pooch reports a wrong hash, after it has removed the file
        raise BadDataError(
            f"what arrived has not the checksum of the record ({file.checksum}) and was removed; try again", path=path
        ) from None
    return path


@dataclass(frozen=True)
class _ResumingDownloader:
    """What pooch calls to fetch a file: it goes on where ``part`` ends."""

    file: RemoteFile
    part: Path
    progress: Progress

    def __call__(self, url: str, output_file: str, _: Any) -> None:
        self.part.touch()
        n_present = self.part.stat().st_size
        self.progress(self.file, n_present)
        if n_present < self.file.size:
            self._continue(url, n_present)
        self.part.replace(output_file)

    def _continue(self, url: str, n_present: int) -> None:
        range_wanted = {"Range": f"bytes={n_present}-"} if n_present else {}
        with _get(url, range_wanted, advice=_RESUME) as response:
            if response.status_code != 206:
                n_present = 0  # the server cannot continue and sends the whole file
            with self.part.open("ab" if n_present else "wb") as part:
                for piece in response.iter_content(_PIECE_BYTES):
                    part.write(piece)
                    n_present += len(piece)
                    self.progress(self.file, n_present)
                    if n_present > self.file.size:
                        break  # not our file; the checksum will tell
        if n_present < self.file.size:
            raise UnmaskError(f"{url} ended after {n_present} of {self.file.size} bytes{_RESUME}")


@contextmanager
def _get(url: str, headers: dict[str, str] | None = None, *, advice: str = "") -> Iterator[Any]:
    """Ask for ``url``; an answer other than success, and any trouble while it is read, is an UnmaskError."""
    import requests

    try:
        # Identity: bytes are counted, so none may be compressed on the way.
        headers = {"Accept-Encoding": "identity", **(headers or {})}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as response:
            if response.status_code not in (200, 206):
                raise UnmaskError(f"{url} answered {response.status_code} {response.reason}{advice}")
            yield response
    except requests.RequestException as error:
        raise UnmaskError(f"cannot fetch {url} ({type(error).__name__}); check the network{advice}") from None


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _unpack(archive: Path, members: str) -> list[Path]:
    """Unpack the files of a tar archive that match into a folder of its name, unless they are there already."""
    folder = archive.with_name(archive.name.split(".")[0])
    paths = []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.isfile():
                    continue
                if not _is_inside(member.name):
                    raise BadDataError(f"member {member.name!r} leads out of the folder", path=archive)
                # Some archives have all below a folder of their own name, some have not.
                parts = PurePosixPath(member.name).parts
                inner = "/".join(parts[1:] if parts[0] == folder.name else parts)
                if not fnmatchcase(inner, members):
                    continue
                path = folder / inner
                if not path.is_file() or path.stat().st_size != member.size:
                    source = tar.extractfile(member)
                    assert source is not None  # it is a file
                    with source, atomic_path(path) as scratch, scratch.open("wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                paths.append(path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadDataError(f"the archive cannot be unpacked ({error})", path=archive) from None
    if not paths:
        raise BadDataError(f"the archive holds no {members}", path=archive)
    return sorted(paths)
