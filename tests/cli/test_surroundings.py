"""Odd names, environments and sizes: an error that names the cause, never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from tests.cli.running import failing, unmask
from unmask import cli, load_sample, write_events


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sample = load_sample("gluino")
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    write_events(path, sample[sample.label == 0][:200])
    return path


def test_odd_environments_do_no_harm(events: Path, tmp_path: Path) -> None:
    environment = {"PYTHONIOENCODING": "ascii", "MPLBACKEND": "nonsense", "WORLD_SIZE": "abc"}
    figure = tmp_path / "ε_S.png"
    result = unmask("data", "inspect", events, "--figure", figure, environment=environment)
    assert result.returncode == 0, result.stderr
    assert figure.exists()
    assert "figure -> " in result.stderr


def test_a_wrong_number_of_processes_is_named(events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "abc")
    code, message = failing("train", events, "--out", tmp_path / "model")
    assert code == 2
    assert "WORLD_SIZE is 'abc'; expected a whole number" in message


@pytest.mark.parametrize("command", [("data", "inspect"), ("evaluate",), ("score", "sample:gluino-model")])
def test_a_loop_of_links_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    loop = tmp_path / "loop.parquet"
    loop.symlink_to(loop)
    code, message = failing(*command, loop)
    assert code == 3
    assert "loop.parquet" in message


def test_a_name_that_is_not_text_is_named(events: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff.parquet")
    odd.write_bytes(events.read_bytes())
    for arguments in (
        (odd, "--out", tmp_path / "out.parquet"),
        (events, "--out", tmp_path / os.fsdecode(b"out\xff.parquet")),
    ):
        code, message = failing("data", "convert", *arguments)
        assert code == 3
        assert "a name that is not UTF-8 text; rename it" in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--seed", "-1"), "should be greater than or equal to 0"),
        (("--set", "training.seed=-1"), "seed is -1; expected 0 or more"),
        (
            ("--preset", "masked-token", "--set", "hidden=10000000000"),
            "hidden is 10000000000; expected from 1 to 1,048,576",
        ),
        (("--preset", "masked-token", "--set", "n_layers=10000000"), "n_layers is 10000000; expected from 1 to 1,000"),
    ],
)
def test_sizes_beyond_reason_are_refused(
    events: Path, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    code, message = failing("train", events, "--out", tmp_path / "model", "--device", "cpu", *arguments)
    assert code in (1, 2)
    assert expected in " ".join(message.replace("│", " ").split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("fail", [lambda: torch.empty(1 << 60), lambda: bytearray(1 << 60)])
def test_an_allocation_that_fails_is_an_error(fail: Callable[[], object]) -> None:
    with patch.object(cli, "app", fail):
        code, message = failing("list")
    assert code == 1
    assert "not enough memory" in message
    assert "make the network, training.batch_size or --chunk-events smaller" in message


def test_settings_that_are_nested_too_deeply_are_an_error(events: Path, tmp_path: Path) -> None:
    preset = tmp_path / "deep.toml"
    preset.write_text(f"[detector]\nkind = {'[' * 5000}{']' * 5000}\n")
    code, message = failing("train", events, "--preset", preset, "--out", tmp_path / "model")
    assert code == 3
    assert "nested too deeply" in message
