"""The command line as a whole: few commands, short help, and presets that are offered."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.running import running, unmask
from unmask.cli import app
from unmask.workflow.settings import preset_names


def commands() -> Iterator[tuple[str, Any]]:
    """All commands by their full names."""
    todo = [("unmask", get_command(app))]
    while todo:
        name, command = todo.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            todo += [(f"{name} {key}", each) for key, each in inner.items()]


def test_there_are_few_commands_and_presets() -> None:
    assert len([*commands()]) <= 22
    assert len(preset_names()) <= 24
    shown, _ = running("list")
    for name in preset_names():
        assert re.search(rf"^  {name} ", shown, re.MULTILINE)


@pytest.mark.parametrize(("name", "command"), [*commands()], ids=lambda value: value if isinstance(value, str) else "")
def test_help_is_short(name: str, command: Any) -> None:
    first, *_ = command.help.split("\n\n")
    assert first.endswith(".")
    assert not first.split()[0].endswith("s"), f"{name}: not an imperative"
    for option in command.params:
        text = getattr(option, "help", None) or ""
        assert len(text) <= 70, f"{name} {option.name}: {text}"
        assert option.name == "help" or text, f"{name} {option.name} has no help"


def test_options_of_input_have_a_panel_of_their_own() -> None:
    shown = unmask("score", "--help", environment={"COLUMNS": "160"}).stdout
    assert "File format [default: detected from content]." in shown
    panel = shown.split("─ Input ─")[1].split("╰")[0]
    options = {"--format", "--unit", "--process", "--label", "--signal-process", "--tree", "--dataset", "--select"}
    assert options | {"--skip-bad", "--chunk-events", "--max-objects"} <= set(re.findall(r"--[a-z-]+", panel))
