"""README and the documentation: their commands and code run, their links lead somewhere, and they are short."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from typer.main import get_command

import unmask
from tests.cli.running import running
from tests.io import root_events
from tests.test_layout import ORDER, SOURCE
from unmask import EventSet, load_sample, write_events
from unmask.detectors.alterations import Alterations
from unmask.events.columns import Names
from unmask.io.darkmachines import write_csv
from unmask.io.sample import sample_path
from unmask.scores.score_table import Scores, write_scores
from unmask.workflow.settings import load_settings

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
LINKED = [*PAGES, ARCHITECTURE, ROOT / "CHANGELOG.md", *(ROOT / "research").glob("*.md")]
MAX_WORDS = 1500

_TORCHRUN = "torchrun --standalone --nproc-per-node 4 -m unmask train background.parquet"
#: Blocks of commands that are parsed but not run, by their first command, with the reason.
NOT_RUN = {
    "unmask search sample:gluino-model --background sample:gluino \\": "tests/cli/test_search_command.py",
    "pip install '.[train,dask]'": "needs a cluster; tests/workflow/test_dask.py starts one",
    "unmask study run --background bkg.csv --signal sig.csv --out my-study": "the study of README on other files",
    "unmask data split sample:gluino --out events --seed 1": "tests/test_examples.py runs the examples",
    "unmask train background.root --prior stop:stop_600.root --prior zprime:zprime_*.root --out model": (
        "tests/cli/test_study.py runs a study with a prior"
    ),
    "python -m simulation list": "tests/test_simulation.py runs it",
    "unmask study run gluino --only lut-456 --benchmark-dir DIR --out published": "needs the published data",
    f"{_TORCHRUN} --out model": "tests/training/test_distributed.py starts several processes",
    "#!/bin/bash": "a job for a batch system",
    "universe = vanilla": "a job for a batch system",
    "unmask study run --background bkg.root --signal sig.root --out my-study": "README runs it",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Words of each line that calls unmask, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("unmask ")]

    @property
    def first(self) -> str:
        """The first line, without a comment."""
        return re.sub(r"\s+# .*", "", self.text.splitlines()[0])


def blocks(page: Path) -> Iterator[Block]:
    for language, text in re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if not language.startswith("{"):
            yield Block(language, text)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_is_short_and_begins_with_a_task(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= MAX_WORDS
    title, _, purpose = text.split("\n")[:3]
    assert title.startswith("# ")
    assert purpose or page.name == "api.md"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        file, _, anchor = target.partition("#")
        if re.match(r"https?:", target):
            continue
        goal = (page.parent / file) if file else page
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(target)
    assert not broken


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ARCHITECTURE], ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"\b((?:research|examples|scripts|docs|src|tests)/[\w./-]*\w)", page.read_text())
    assert [file for file in named if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_parsed(page: Path) -> None:
    for block in blocks(page):
        for words in block.commands:
            parse(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_options_and_presets_in_the_text_exist(page: Path) -> None:
    text = page.read_text()
    every = {name for command, _ in commands() for option in command.params for name in option.opts} | {"--help"}
    others = {"--nnodes", "--nproc-per-node"}  # of torchrun
    spans = re.findall(r"`([^`\n]+)`", prose(page))
    for span in spans:
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", span)) <= every | others | script_options(span), span
        if span.startswith("unmask "):
            command, rest = resolved(shlex.split(span)[1:])
            given = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert given <= {name for option in command.params for name in option.opts}, span
    for name in re.findall(r"--preset ([\w-]+)(?![\w./-])", text):
        load_settings(name)


def test_the_architecture_page_is_that_of_the_source() -> None:
    page = ARCHITECTURE.read_text()
    rooms = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(rooms) == there - {"__init__", "__main__"}
    assert rooms == [room for room in ORDER if room in rooms]
    named = re.findall(r"`((?:src/unmask/)?[a-z_]+/[a-z_/]*(?:\.py)?|[a-z_]+\.py)`", page)
    missing = [name for name in named if not (SOURCE / name.removeprefix("src/unmask/")).exists()]
    assert [name for name in missing if not name.startswith("tests/")] == []


def script_options(span: str) -> set[str]:
    """Options of a script or of the benchmarks are theirs."""
    return set(re.findall(r"--[a-z][\w-]*", span)) if span.startswith("python ") else set()


def commands() -> Iterator[tuple[Any, tuple[str, ...]]]:
    """All commands with their names."""
    todo: list[tuple[Any, tuple[str, ...]]] = [(get_command(_app()), ())]
    while todo:
        command, names = todo.pop()
        yield command, names
        todo += [(sub, (*names, name)) for name, sub in getattr(command, "commands", {}).items()]


def _app() -> Any:
    from unmask.cli import app

    return app


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words call, and what is left of them."""
    command: Any = get_command(_app())
    rest = list(words)
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, " ".join(words)
        command = command.commands[rest.pop(0)]
    return command, rest


def parse(words: list[str]) -> None:
    """Let the command line read the words, without doing what they say."""
    command, rest = resolved(words)
    command.make_context("unmask", rest)  # unknown options, missing arguments and wrong choices are errors


# What the pages say, done.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of the names that the pages use."""
    folder = tmp_path_factory.mktemp("files")
    background, signal = small_sample()
    write_events(folder / "background.parquet", [background])
    write_events(folder / "signal.parquet", [signal])
    write_events(folder / "data.parquet", [background[::4], signal])
    write_csv(folder / "background.csv", [background])
    write_csv(folder / "background.csv.gz", [background])
    data = EventSet.concatenate([background[::4], signal[:10]])
    for name, events in {"bkg": background, "sig": signal, "data": data}.items():
        write_delphes(folder / f"{name}.root", events)
    for name in ("up", "down"):
        (folder / f"{name}.root").symlink_to(folder / "bkg.root")
    running("data", "split", folder / "background.parquet", "--out", folder / "events", "--seed", "1")
    for part in ("train", "validation", "test"):
        (folder / f"{part}.parquet").symlink_to(folder / "events" / f"{part}.parquet")
    (folder / "files").mkdir()
    write_events(folder / "files" / "one.parquet", [background[:200], signal])
    for name in ("model", "MODEL"):
        (folder / name).symlink_to(sample_path("gluino-model"))
    return folder


def small_sample() -> tuple[EventSet, EventSet]:
    sample = load_sample("gluino")
    return sample[sample.label == 0][::12], sample[sample.label == 1][::30]


def write_delphes(path: Path, events: EventSet) -> None:
    one = np.ones(len(events), np.int64)

    def of(*tags: int, **columns: Any) -> dict[str, Any]:
        chosen = np.isin(events.tag, tags)
        found = {"PT": events.pt_mev / 1e3, "Eta": events.eta, "Phi": events.phi} | columns
        return {name: ak.unflatten(values[chosen], chosen.sum(1)) for name, values in found.items()}

    charge, nothing = np.where(events.tag % 2, -1, 1), np.zeros(events.tag.shape)
    groups: root_events.Groups = {
        "Event": {"Number": ak.unflatten(events.row, one), "Weight": ak.unflatten(np.ones(len(events)), one)},
        "Jet": of(1, 2, Mass=nothing, BTag=(events.tag == 2).astype(np.uint32)),
        "Electron": of(3, 4, Charge=charge, IsolationVar=nothing),
        "Muon": of(5, 6, Charge=charge, IsolationVar=nothing),
        "Photon": of(7, E=events.energy_mev / 1e3),
        "MissingET": {
            "MET": ak.unflatten(events.met_mev / 1e3, one),
            "Eta": ak.unflatten(one * 0.0, one),
            "Phi": ak.unflatten(events.met_phi, one),
        },
    }
    root_events.write(path, "delphes", groups)


@pytest.fixture
def workplace(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for the small files, in which commands run."""
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run_in_order(page: Path, workplace: Path) -> None:
    if page.name == "evaluation.md":
        write_example_scores(workplace)
    for block in blocks(page):
        for words in block.commands if block.first not in NOT_RUN else []:
            out = Path(words[words.index("--out") + 1]) if "--out" in words else None
            if out is not None and (workplace / out).is_symlink():
                (workplace / out).unlink()
            running(*shortened(words))
            assert out is None or out.exists(), words
    if page == README:
        rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", (ROOT / "docs" / "studies.md").read_text(), re.MULTILINE)
        named = {name for row in rows for name in names_of_files(row[0])}
        assert_there(workplace / "my-study", named - {"flagged/", "search/"})  # of data
        (results,) = [content for name, content in rows if name == "`results/`"]
        assert_there(workplace / "my-study" / "results", names_of_files(results))
        assert_there(workplace / "my-study" / "figures" / "default", {"altered-copies-beside-background.svg"})
    if page.name == "evaluation.md":
        (paragraph,) = re.findall(r"`--out` gets (.*?)\. `--json`", page.read_text(), re.DOTALL)
        assert_there(workplace / "results", names_of_files(paragraph))


def names_of_files(text: str) -> set[str]:
    return set(re.findall(r"`(\w[\w-]*(?:\.\w+|/))`", text))


def assert_there(folder: Path, names: set[str]) -> None:
    assert names
    assert {name for name in names if not (folder / name).exists()} == set()


def write_example_scores(folder: Path) -> None:
    """Scores of two detectors, of a control region and of data, by no model in particular."""
    background, signal = small_sample()
    both = EventSet.concatenate([background, signal])
    rng = np.random.default_rng(1)
    held_out = replace(background, file_names=Names.constant("validation.csv", len(background)))
    files = {"scores": both, "one": both, "other": both, "control-region": background}
    for name, events in (files | dict.fromkeys(["one-validation", "other-validation"], held_out)).items():
        scores = Scores.of(events, events.n_objects + rng.normal(size=len(events)))
        write_scores(folder / f"{name}.parquet", [scores])
    (folder / "data.parquet").unlink()
    write_scores(folder / "data.parquet", [Scores.of(signal, signal.n_objects + 0.5)])


def shortened(words: list[str]) -> list[str]:
    """The same command with less work."""
    extra: list[str] = []
    if words[0] == "train":
        extra = ["--set", "training.max_epochs=1"] + (["--set", "size=tiny"] if "ddd-part-sm" in words else [])
    elif words[:2] == ["study", "run"]:
        extra = ["--epochs", "1"]
    elif words[:2] == ["tokenizer", "fit"] and any("vq" in word for word in words):
        extra = ["--set", "training.max_epochs=1"]
    elif words[0] == "calibrate":
        extra = ["--background-efficiency", "0.1"]
    elif words[0] == "tune":
        extra = ["--trials", "3", "--epochs", "1", "--events", "300"]
    return [*words, *extra]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_runs_in_order(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    background, signal = small_sample()
    monkeypatch.setattr(unmask, "load_sample", lambda _: EventSet.concatenate([background, signal]))
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, page.name, "exec"), names)


def test_what_is_not_run_is_there() -> None:
    assert set(NOT_RUN) <= {block.first for page in PAGES for block in blocks(page)}


# What the pages say of the code.


def test_the_most_anomalous_event_of_readme(workplace: Path) -> None:
    running("score", "sample:gluino-model", "sample:gluino", "--explain", "1", "--out", "scores.parquet")
    (event,) = json.loads((workplace / "scores.explained.json").read_text())["events"]
    text = " ".join(README.read_text().split())
    found = re.search(
        r"By `sample:gluino-model` the most anomalous event is a gluino pair with (\d+) b-jets, MET of (\d+) GeV and "
        r"(\d+) GeV of summed pT\. Its (\S+) of (\d+) GeV contributes most\.",
        text,
    )
    assert found
    assert event["process"] == "gluino_1000_1"
    pt = [object_["pt_mev"] / 1e3 for object_ in event["objects"]]
    largest = max(event["objects"], key=lambda object_: float(object_["contribution"]))
    assert found.groups() == (
        str(sum(object_["name"] == "b-jet" for object_ in event["objects"])),
        f"{event['met_mev'] / 1e3:.0f}",
        f"{sum(pt):.0f}",
        largest["name"],
        f"{largest['pt_mev'] / 1e3:.0f}",
    )


def test_the_parameters_and_alterations_of_the_default_are_those_of_its_page() -> None:
    page = (ROOT / "docs" / "default.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d., ]+) \|", page, re.MULTILINE)
    default = Alterations()
    shown = {
        field.name: ", ".join(f"{value:g}" for value in np.atleast_1d(getattr(default, field.name)))
        for field in fields(default)
    }
    assert dict(rows) == shown
    model = unmask.load("sample:gluino-model")
    n = sum(parameter.numel() for parameter in model.network_.parameters())
    assert f"{n:,} parameters" in page
    assert f"({n:,} parameters)" in README.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_python_and_samples_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"`(unmask(?:\.\w+)+)", prose(page)):
        parts = name.split(".")
        n = next(n for n in range(len(parts), 0, -1) if find_spec_of(".".join(parts[:n])))
        value = import_module(".".join(parts[:n]))
        for part in parts[n:]:
            value = getattr(value, part)
    for sample in re.findall(r"\bsample:([\w-]+)", text):
        assert sample_path(sample).exists()


def find_spec_of(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_the_interface_page_has_all_public_names() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^\.\. (?:auto|py:)\w+:: unmask\.(\w+)$", page, re.MULTILINE)) == sorted(unmask.__all__)
