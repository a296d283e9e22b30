"""Downloads, against a server on this machine that speaks as much of Zenodo's interface as is used."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unmask.errors import BadDataError, UnmaskError, UsageError
from unmask.events.download import STUDIES, RemoteFile, download_study, list_study

CONTENT = b"".join(b"%d;background;1;5e4;0.1;j,6e4,5e4,0.2,1.0\n" % i for i in range(20_000))


@dataclass
class Zenodo:
    """A record with its files, what goes wrong with them, and the requests that came in."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"events.csv": CONTENT, "notes.txt": b"hello"})
    checksums: dict[str, str] = field(default_factory=dict)
    record: bytes | None = None  # sent instead of the true record
    status: dict[str, int] = field(default_factory=dict)  # last part of the address -> status to answer
    breaks_after: list[int] = field(default_factory=list)  # bytes after which the next file answers break off
    knows_range: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def api(self) -> str:
        return f"{self.url}/api"

    @property
    def file_requests(self) -> list[tuple[str, str | None]]:
        return [request for request in self.requests if request[0].startswith("/files/")]

    def record_json(self) -> bytes:
        if self.record is not None:
            return self.record
        files = [
            {
                "key": name,
                "size": len(content),
                "checksum": self.checksums.get(name, f"md5:{hashlib.md5(content).hexdigest()}"),
                "links": {"self": f"{self.url}/files/{name}"},
            }
            for name, content in self.files.items()
        ]
        return json.dumps({"id": 1, "files": files}).encode()


def _handler(zenodo: Zenodo) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            zenodo.requests.append((self.path, wanted))
            name = self.path.rsplit("/", 1)[-1]
            if name in zenodo.status:
                self.send_error(zenodo.status[name])
                return
            if self.path.startswith("/api/records/"):
                content, n_sent = zenodo.record_json(), None
            else:
                content = zenodo.files[name]
                n_sent = zenodo.breaks_after.pop(0) if zenodo.breaks_after else None
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and zenodo.knows_range else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][:n_sent])

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def zenodo() -> Iterator[Zenodo]:
    state = Zenodo()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's cache nor a proxy takes part."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("UNMASK_DATA_DIR", raising=False)


def download(zenodo: Zenodo, folder: Path, **options: object) -> list[Path]:
    return download_study("darkmachines", directory=folder, api=zenodo.api, **options)  # type: ignore[arg-type]


def test_everything_is_fetched_checked_and_silent(zenodo, tmp_path, capfd):
    paths = download(zenodo, tmp_path / "data")
    assert paths == [tmp_path / "data/events.csv", tmp_path / "data/notes.txt"]
    assert [path.read_bytes() for path in paths] == [CONTENT, b"hello"]
    assert zenodo.requests[0] == ("/api/records/3961917", None)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "events.csv",
        "notes.txt",
        "zenodo-3961917.json",
    ]
    assert capfd.readouterr() == ("", "")


def test_sizes_are_known_before_and_progress_ends_at_them(zenodo, tmp_path):
    listed = list_study("darkmachines", directory=tmp_path, api=zenodo.api)
    assert [(file.name, file.size) for file in listed] == [("events.csv", len(CONTENT)), ("notes.txt", 5)]
    assert listed[1].checksum == f"md5:{hashlib.md5(b'hello').hexdigest()}"
    assert not list(tmp_path.iterdir())  # to list is not to write
    calls: list[tuple[RemoteFile, int]] = []
    download(zenodo, tmp_path, progress=lambda file, n_bytes: calls.append((file, n_bytes)))
    first = [n_bytes for file, n_bytes in calls if file == listed[0]]
    assert first[0] == 0
    assert first[-1] == len(CONTENT)
    assert first == sorted(first)


def test_second_call_asks_for_no_file(zenodo, tmp_path):
    first = download(zenodo, tmp_path)
    zenodo.requests.clear()
    assert download(zenodo, tmp_path) == first
    assert zenodo.requests == [("/api/records/3961917", None)]


def test_pattern_chooses_files(zenodo, tmp_path):
    assert download(zenodo, tmp_path, pattern="*.txt") == [tmp_path / "notes.txt"]
    assert zenodo.file_requests == [("/files/notes.txt", None)]
    with pytest.raises(UsageError, match=r"matches '\*\.root'; it holds events\.csv, notes\.txt"):
        download(zenodo, tmp_path, pattern="*.root")


def test_broken_download_is_continued(zenodo, tmp_path):
    zenodo.breaks_after = [len(CONTENT) // 2]
    with pytest.raises(UnmaskError, match="run it again to continue"):
        download(zenodo, tmp_path, pattern="*.csv")
    assert not (tmp_path / "events.csv").exists()
    n_kept = (tmp_path / "events.csv.part").stat().st_size
    assert len(CONTENT) // 2 - 100_000 < n_kept <= len(CONTENT) // 2

    first_progress: list[int] = []
    (path,) = download(zenodo, tmp_path, pattern="*.csv", progress=lambda file, n_bytes: first_progress.append(n_bytes))
    assert path.read_bytes() == CONTENT
    assert zenodo.file_requests == [("/files/events.csv", None), ("/files/events.csv", f"bytes={n_kept}-")]
    assert first_progress[0] == n_kept
    assert not (tmp_path / "events.csv.part").exists()


def test_interrupted_by_the_user_is_continued(zenodo, tmp_path):
    def interrupt(file: RemoteFile, n_bytes: int) -> None:
        if n_bytes > 200_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(zenodo, tmp_path, pattern="*.csv", progress=interrupt)
    (path,) = download(zenodo, tmp_path, pattern="*.csv")
    assert path.read_bytes() == CONTENT
    assert int(zenodo.file_requests[1][1].removeprefix("bytes=").rstrip("-")) >= 200_000


def test_server_without_range_starts_again_from_zero(zenodo, tmp_path):
    zenodo.knows_range = False
    zenodo.breaks_after = [len(CONTENT) // 2]
    with pytest.raises(UnmaskError):
        download(zenodo, tmp_path, pattern="*.csv")
    (path,) = download(zenodo, tmp_path, pattern="*.csv")
    assert zenodo.file_requests[1][1] is not None  # it did ask to continue
    assert path.read_bytes() == CONTENT


def test_complete_part_needs_no_request(zenodo, tmp_path):
    (tmp_path / "events.csv.part").write_bytes(CONTENT)
    (path,) = download(zenodo, tmp_path, pattern="*.csv")
    assert path.read_bytes() == CONTENT
    assert zenodo.file_requests == []


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * (len(CONTENT) + 1)], ids=["short", "too long"])
def test_part_of_another_file_is_found_out_and_does_not_stay(zenodo, tmp_path, rubbish):
    (tmp_path / "events.csv.part").write_bytes(rubbish)
    with pytest.raises(BadDataError, match="checksum"):
        download(zenodo, tmp_path, pattern="*.csv")
    (path,) = download(zenodo, tmp_path, pattern="*.csv")
    assert path.read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing_behind(zenodo, tmp_path):
    zenodo.checksums["events.csv"] = f"md5:{'0' * 32}"
    with pytest.raises(BadDataError, match=r"events\.csv: .*checksum of the record \(md5:0000") as caught:
        download(zenodo, tmp_path)
    assert caught.value.exit_code == 3
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["zenodo-3961917.json"]


def test_endless_answer_is_cut_off(zenodo, tmp_path):
    checksum = hashlib.md5(b"hello").hexdigest()
    entry = {"key": "notes.txt", "size": 5, "checksum": f"md5:{checksum}"}
    zenodo.record = json.dumps({"files": [{**entry, "links": {"self": f"{zenodo.url}/files/events.csv"}}]}).encode()
    seen: list[int] = []
    with pytest.raises(BadDataError, match="checksum"):
        download(zenodo, tmp_path, progress=lambda file, n_bytes: seen.append(n_bytes))
    assert seen[-1] < len(CONTENT) / 2


def test_file_already_in_the_override_directory_is_used(zenodo, tmp_path, monkeypatch):
    (tmp_path / "events.csv").write_bytes(CONTENT)
    monkeypatch.setenv("UNMASK_DATA_DIR", str(tmp_path))
    assert download_study("darkmachines", pattern="*.csv", api=zenodo.api) == [tmp_path / "events.csv"]
    assert zenodo.file_requests == []


def test_another_file_of_that_name_is_refused_and_kept(zenodo, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"mine")
    with pytest.raises(BadDataError, match=r"notes\.txt: is not the file of the record .*move or remove it"):
        download(zenodo, tmp_path, pattern="*.txt")
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"


def test_default_is_the_cache_and_the_environment_overrides_it(zenodo, tmp_path, monkeypatch):
    (path,) = download_study("darkmachines", pattern="*.txt", api=zenodo.api)
    assert path.is_relative_to(tmp_path)
    assert path.parent.name == "zenodo-3961917"
    monkeypatch.setenv("UNMASK_DATA_DIR", str(tmp_path / "elsewhere"))
    assert download_study("darkmachines", pattern="*.txt", api=zenodo.api) == [tmp_path / "elsewhere/notes.txt"]


@pytest.mark.parametrize("trouble", ["no network", "server error"])
def test_folder_serves_without_the_record_and_is_still_checked(zenodo, tmp_path, trouble):
    paths = download(zenodo, tmp_path)
    if trouble == "no network":
        zenodo.url = "http://127.0.0.1:1"
    else:
        zenodo.status["3961917"] = 500
    assert download(zenodo, tmp_path) == paths
    assert [file.name for file in list_study("darkmachines", directory=tmp_path, api=zenodo.api)] == [
        "events.csv",
        "notes.txt",
    ]
    paths[1].write_bytes(b"hellO")
    with pytest.raises(BadDataError, match=r"notes\.txt"):
        download(zenodo, tmp_path)


def test_no_network_and_nothing_here_says_what_to_do(zenodo, tmp_path):
    zenodo.url = "http://127.0.0.1:1"
    with pytest.raises(UnmaskError, match=r"check the network.*UNMASK_DATA_DIR") as caught:
        download(zenodo, tmp_path)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize("where", ["3961917", "events.csv"])
def test_refusal_of_the_server_is_told(zenodo, tmp_path, status, where):
    zenodo.status[where] = status
    with pytest.raises(UnmaskError, match=f"{where} answered {status}"):
        download(zenodo, tmp_path)
    assert not (tmp_path / "events.csv").exists()


def test_disk_error_is_told(zenodo, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UnmaskError, match="cannot be read or written"):
        download(zenodo, tmp_path / "file")


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/tmp/x", "..\\x", "", "."])
def test_names_that_lead_out_of_the_folder_are_refused(zenodo, tmp_path, key):
    zenodo.files = {key: b"evil"}
    with pytest.raises(BadDataError, match="leads out of the folder"):
        download(zenodo, tmp_path / "data")
    assert zenodo.file_requests == []


def test_files_in_folders_keep_their_place(zenodo, tmp_path):
    record = json.loads(zenodo.record_json())
    record["files"][1]["key"] = "sub/notes.txt"
    zenodo.record = json.dumps(record).encode()
    assert download(zenodo, tmp_path, pattern="*.txt") == [tmp_path / "sub/notes.txt"]


@pytest.mark.parametrize(
    "record", [b"[]", b"{}", b'{"files": [{"key": "x"}]}', b'{"files": 3}', b'{"files": [{"key": "x", "size": null}]}']
)
def test_answer_that_is_no_record_is_told(zenodo, tmp_path, record):
    zenodo.record = record
    with pytest.raises(BadDataError, match="not a Zenodo record"):
        download(zenodo, tmp_path)


def test_record_without_usable_checksum_is_refused(zenodo, tmp_path):
    zenodo.checksums["notes.txt"] = "crc32:00"
    with pytest.raises(BadDataError, match=r"checksum 'crc32:00' of notes\.txt"):
        download(zenodo, tmp_path)


def test_page_that_is_not_json_is_told(zenodo, tmp_path):
    zenodo.record = b"<html>log in to the network</html>"
    with pytest.raises(UnmaskError, match="cannot fetch"):
        download(zenodo, tmp_path)


def test_damaged_index_is_told(zenodo, tmp_path):
    (tmp_path / "zenodo-3961917.json").write_text("{")
    zenodo.status["3961917"] = 500
    with pytest.raises(BadDataError, match=r"zenodo-3961917\.json: cannot be read"):
        download(zenodo, tmp_path)


def _archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("top", ["training_files/", "./training_files/", ""])
def test_gluino_gives_the_files_of_channel_2b(zenodo, tmp_path, top):
    names = ["chan1/background_chan1_7.79.csv", "chan2b/background_chan2b_7.8.csv", "chan2b/gluino.csv"]
    zenodo.files["training_files.tar"] = _archive({top + name: name.encode() for name in names})
    paths = download_study("gluino", directory=tmp_path, api=zenodo.api)
    assert paths == [tmp_path / "training_files" / name for name in names[1:]]
    assert [path.read_text() for path in paths] == names[1:]
    assert not (tmp_path / "training_files/chan1").exists()
    assert zenodo.file_requests == [("/files/training_files.tar", None)]

    paths[0].write_bytes(b"cut short")  # as by a copy of the folder that failed
    assert download_study("gluino", directory=tmp_path, api=zenodo.api) == paths
    assert paths[0].read_text() == names[1]


@pytest.mark.parametrize("name", ["../x.csv", "/x.csv"])
def test_archive_that_leads_out_of_the_folder_is_refused(zenodo, tmp_path, name):
    zenodo.files = {"data.tar": _archive({name: b"evil"})}
    with pytest.raises(BadDataError, match="leads out of the folder"):
        download(zenodo, tmp_path / "data")
    assert not list(tmp_path.rglob("x.csv"))


def test_archive_without_the_study_is_told(zenodo, tmp_path):
    zenodo.files = {"training_files.tar": _archive({"chan1/x.csv": b"1"})}
    with pytest.raises(BadDataError, match=r"training_files\.tar: the archive holds no chan2b/\*"):
        download_study("gluino", directory=tmp_path, api=zenodo.api)


def test_archive_that_is_damaged_is_told(zenodo, tmp_path):
    whole = _archive({"a.csv": b"1" * 1000, "b.csv": b"2" * 100_000})
    zenodo.files = {"data.tar": whole[:20_000]}
    with pytest.raises(BadDataError, match="cannot be unpacked"):
        download(zenodo, tmp_path)


def test_unknown_study_names_the_nearest(tmp_path):
    with pytest.raises(
        UsageError, match=r"unknown study 'gluon'; did you mean 'gluino'\? choose from gluino, darkmachines"
    ):
        download_study("gluon", directory=tmp_path)


def test_four_top_has_no_download_and_says_so(tmp_path):
    with pytest.raises(
        UsageError, match="no public download of the four-top study is known; give your own event files"
    ):
        list_study("four-top", directory=tmp_path)


def test_studies_name_the_records():
    assert {name: study.doi for name, study in STUDIES.items()} == {
        "gluino": "10.5281/zenodo.3961917",
        "darkmachines": "10.5281/zenodo.3961917",
        "darkmachines-secret": "10.5281/zenodo.4443151",
        "darkmachines-processes": "10.5281/zenodo.3685861",
    }


def test_import_is_light():
    code = "import sys, unmask.events.download; print(sorted({'requests', 'pooch', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_from_the_command_line(zenodo: Zenodo, tmp_path: Path) -> None:
    from tests.cli.running import unmask

    environment = {"UNMASK_ZENODO_API": zenodo.api}
    listed = unmask("data", "download", "darkmachines", "--list", environment=environment)
    assert listed.returncode == 0, listed.stderr
    assert "events.csv" in listed.stdout
    assert not zenodo.file_requests
    arguments = ("data", "download", "darkmachines", "--pattern", "*.csv", "--directory", tmp_path / "data")
    fetched = unmask(*arguments, environment=environment)
    assert fetched.returncode == 0, fetched.stderr
    assert fetched.stdout.strip() == str(tmp_path / "data" / "events.csv")
    assert (tmp_path / "data" / "events.csv").read_bytes() == CONTENT
    zenodo.checksums["events.csv"] = "md5:" + "0" * 32
    wrong = unmask(*arguments[:-1], tmp_path / "other", environment=environment)
    assert wrong.returncode == 3
    assert not (tmp_path / "other" / "events.csv").exists()
    assert "Traceback" not in wrong.stderr
