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
from tests.cli.running import failing, running

from unmask.artifacts import making
from unmask.errors import BadDataError, UnmaskError, UsageError
from unmask.io.download import STUDIES, download_study, list_study

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
    requests: list[str] = field(default_factory=list)

    @property
    def file_requests(self) -> list[str]:
        return [request for request in self.requests if request.startswith("/files/")]

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
            zenodo.requests.append(self.path)
            name = self.path.rsplit("/", 1)[-1]
            if name in zenodo.status:
                self.send_error(zenodo.status[name])
                return
            if self.path.startswith("/api/records/"):
                content, n_sent = zenodo.record_json(), None
            else:
                content = zenodo.files[name]
                n_sent = zenodo.breaks_after.pop(0) if zenodo.breaks_after else None
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:n_sent])

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def zenodo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Zenodo]:
    state = Zenodo()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr("unmask.io.download._ZENODO", state.url)
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


def download(folder: Path, **options: object) -> list[Path]:
    return download_study("darkmachines", directory=folder, **options)  # type: ignore[arg-type]


def test_everything_is_fetched_checked_and_silent(zenodo, tmp_path, capfd):
    paths = download(tmp_path / "data")
    assert paths == [tmp_path / "data/events.csv", tmp_path / "data/notes.txt"]
    assert [path.read_bytes() for path in paths] == [CONTENT, b"hello"]
    assert zenodo.requests[0] == "/api/records/3961917"
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "events.csv",
        "notes.txt",
        "zenodo-3961917.txt",
    ]
    assert capfd.readouterr() == ("", "")


def test_files_are_known_before_and_progress_ends_at_their_size(zenodo, tmp_path):
    listed = list_study("darkmachines", directory=tmp_path)
    assert listed == {
        name: f"md5:{hashlib.md5(content).hexdigest()}"
        for name, content in (("events.csv", CONTENT), ("notes.txt", b"hello"))
    }
    assert not list(tmp_path.iterdir())  # to list is not to write
    calls: list[tuple[str, int, int]] = []
    download(tmp_path, progress=lambda *call: calls.append(call))
    first = [n_bytes for name, n_bytes, size in calls if name == "events.csv" and size == len(CONTENT)]
    assert first[-1] == len(CONTENT)
    assert first == sorted(first)


def test_second_call_asks_for_no_file(zenodo, tmp_path):
    first = download(tmp_path)
    zenodo.requests.clear()
    assert download(tmp_path) == first
    assert zenodo.requests == ["/api/records/3961917"]


def test_pattern_chooses_files(zenodo, tmp_path):
    assert download(tmp_path, pattern="*.txt") == [tmp_path / "notes.txt"]
    assert zenodo.file_requests == ["/files/notes.txt"]
    with pytest.raises(UsageError, match=r"matches '\*\.root'; it holds events\.csv, notes\.txt"):
        download(tmp_path, pattern="*.root")


def test_broken_download_leaves_nothing_and_starts_again(zenodo, tmp_path):
    zenodo.breaks_after = [len(CONTENT) // 2]
    with pytest.raises(UnmaskError, match=r"cannot fetch events\.csv .*run it again"):
        download(tmp_path, pattern="*.csv")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["zenodo-3961917.txt"]
    (path,) = download(tmp_path, pattern="*.csv")
    assert path.read_bytes() == CONTENT


def test_wrong_checksum_leaves_nothing_behind(zenodo, tmp_path):
    zenodo.checksums["events.csv"] = f"md5:{'0' * 32}"
    with pytest.raises(BadDataError, match=r"events\.csv: is not .*\(md5:0000.*try again") as caught:
        download(tmp_path)
    assert caught.value.exit_code == 3
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["zenodo-3961917.txt"]


def test_file_already_in_the_override_directory_is_used(zenodo, tmp_path, monkeypatch):
    (tmp_path / "events.csv").write_bytes(CONTENT)
    monkeypatch.setenv("UNMASK_DATA_DIR", str(tmp_path))
    assert download_study("darkmachines", pattern="*.csv") == [tmp_path / "events.csv"]
    assert zenodo.file_requests == []


def test_another_file_of_that_name_is_refused_and_kept(zenodo, tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"mine")
    with pytest.raises(BadDataError, match=r"notes\.txt: is not the file of the record .*move or remove it"):
        download(tmp_path, pattern="*.txt")
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"


def test_default_is_the_cache_and_the_environment_overrides_it(zenodo, tmp_path, monkeypatch):
    (path,) = download_study("darkmachines", pattern="*.txt")
    assert path.is_relative_to(tmp_path)
    assert path.parent.name == "zenodo-3961917"
    monkeypatch.setenv("UNMASK_DATA_DIR", str(tmp_path / "elsewhere"))
    assert download_study("darkmachines", pattern="*.txt") == [tmp_path / "elsewhere/notes.txt"]


@pytest.mark.parametrize("trouble", ["no network", "server error"])
def test_folder_serves_without_the_record_and_is_still_checked(zenodo, tmp_path, trouble, monkeypatch):
    paths = download(tmp_path)
    if trouble == "no network":
        monkeypatch.setattr("unmask.io.download._ZENODO", "http://127.0.0.1:1")
    else:
        zenodo.status["3961917"] = 500
    assert download(tmp_path) == paths
    assert list(list_study("darkmachines", directory=tmp_path)) == ["events.csv", "notes.txt"]
    paths[1].write_bytes(b"hellO")
    with pytest.raises(BadDataError, match=r"notes\.txt"):
        download(tmp_path)


@pytest.mark.parametrize("record", [None, b"[]", b"{}", b'{"files": [{"key": "x"}]}', b"<html>log in</html>"])
def test_no_record_and_nothing_here_says_what_to_do(zenodo, tmp_path, record):
    zenodo.record = record
    if record is None:
        zenodo.status["3961917"] = 500
    with pytest.raises(UnmaskError, match=r"cannot read the record .*check the network.*UNMASK_DATA_DIR") as caught:
        download(tmp_path)
    assert caught.value.exit_code == 1


def test_a_record_without_end_is_not_read(zenodo, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.io.download._MAX_RECORD_BYTES", 2000)
    zenodo.record = zenodo.record_json() + b" " * 2000
    with pytest.raises(UnmaskError, match="cannot read the record"):
        download(tmp_path / "d")


def test_one_process_downloads_to_a_folder(zenodo, tmp_path):
    with making(tmp_path / "d"), pytest.raises(UnmaskError, match="another process is writing it"):
        download(tmp_path / "d")


def test_an_unpacked_file_that_was_changed_is_unpacked_again(zenodo, tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        info = tarfile.TarInfo("chan2b/events.csv")
        info.size = len(CONTENT)
        tar.addfile(info, io.BytesIO(CONTENT))
    zenodo.files = {"training_files.tar": content.getvalue()}
    (path,) = download_study("gluino", directory=tmp_path / "d")
    path.write_bytes(CONTENT.replace(b"background", b"Background"))  # of the same size
    assert download_study("gluino", directory=tmp_path / "d") == [path]
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 500])
def test_refusal_of_the_server_is_told(zenodo, tmp_path, status):
    zenodo.status["events.csv"] = status
    with pytest.raises(UnmaskError, match=rf"cannot fetch events\.csv \({status}"):
        download(tmp_path)
    assert not (tmp_path / "events.csv").exists()


def test_disk_error_is_told(zenodo, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UnmaskError, match="cannot be read or written"):
        download(tmp_path / "file")


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/tmp/x", "..\\x", "", "."])
def test_names_that_lead_out_of_the_folder_are_refused(zenodo, tmp_path, key):
    zenodo.files = {key: b"evil"}
    with pytest.raises(BadDataError, match="leads out of the folder"):
        download(tmp_path / "data")
    assert zenodo.file_requests == []


def test_files_in_folders_keep_their_place(zenodo, tmp_path):
    record = json.loads(zenodo.record_json())
    record["files"][1]["key"] = "sub/notes.txt"
    zenodo.record = json.dumps(record).encode()
    assert download(tmp_path, pattern="*.txt") == [tmp_path / "sub/notes.txt"]


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
    paths = download_study("gluino", directory=tmp_path)
    assert paths == [tmp_path / "training_files" / name for name in names[1:]]
    assert [path.read_text() for path in paths] == names[1:]
    assert not (tmp_path / "training_files/chan1").exists()
    assert zenodo.file_requests == ["/files/training_files.tar"]

    paths[0].write_bytes(b"cut short")  # as by a copy of the folder that failed
    paths[1].write_bytes(paths[1].read_bytes().upper())
    assert download_study("gluino", directory=tmp_path) == paths
    assert [path.read_text() for path in paths] == names[1:]


@pytest.mark.parametrize("name", ["../x.csv", "/x.csv"])
def test_archive_that_leads_out_of_the_folder_is_refused(zenodo, tmp_path, name):
    zenodo.files = {"data.tar": _archive({name: b"evil"})}
    with pytest.raises(BadDataError, match="leads out of the folder"):
        download(tmp_path / "data")
    assert not list(tmp_path.rglob("x.csv"))


def test_archive_without_the_study_is_told(zenodo, tmp_path):
    zenodo.files = {"training_files.tar": _archive({"chan1/x.csv": b"1"})}
    with pytest.raises(BadDataError, match=r"training_files\.tar: the archive holds no chan2b/\*"):
        download_study("gluino", directory=tmp_path)


def test_archive_that_is_damaged_is_told(zenodo, tmp_path):
    whole = _archive({"a.csv": b"1" * 1000, "b.csv": b"2" * 100_000})
    zenodo.files = {"data.tar": whole[:20_000]}
    with pytest.raises(BadDataError, match="cannot be unpacked"):
        download(tmp_path)


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
    code = "import sys, unmask.io.download; print(sorted({'requests', 'pooch', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_from_the_command_line(zenodo: Zenodo, tmp_path: Path) -> None:
    assert "events.csv" in running("data", "download", "darkmachines", "--list")[0]
    assert not zenodo.file_requests
    arguments = ("data", "download", "darkmachines", "--pattern", "*.csv", "--directory", tmp_path / "data")
    assert running(*arguments)[0].strip() == str(tmp_path / "data" / "events.csv")
    assert (tmp_path / "data" / "events.csv").read_bytes() == CONTENT
    zenodo.checksums["events.csv"] = "md5:" + "0" * 32
    assert failing(*arguments[:-1], tmp_path / "other")[0] == 3
    assert not (tmp_path / "other" / "events.csv").exists()
