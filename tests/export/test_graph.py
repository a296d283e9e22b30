"""An exported graph gives what the detector gives, without torch, and refuses what it cannot score."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unmask
from tests.cli.running import failing
from unmask.errors import ArtifactError, UnmaskError, UsageError
from unmask.events.event_set import EventSet
from unmask.export import write
from unmask.export.graphs import ContrastGraph
from unmask.export.onnx_detector import OnnxDetector
from unmask.io.sample import sample_path
from unmask.scores.calibration import Calibration
from unmask.scores.score_table import origin_of_file, read_scores

#: Runs commands with torch blocked, as where it is not installed.
WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Blocked())
from unmask.cli import main

for command in {commands!r}:
    sys.argv = ["unmask", *command]
    try:
        main()
    except SystemExit as end:
        assert (end.code or 0) == (2 if command[0] == "train" else 0), command
"""


@pytest.fixture(scope="module")
def graph(exported: Path) -> OnnxDetector:
    loaded = unmask.load(exported / "model.onnx")
    assert isinstance(loaded, OnnxDetector)
    return loaded


@pytest.fixture(scope="module")
def detector() -> unmask.ContrastDetector:
    loaded = unmask.load("sample:gluino-model")
    assert isinstance(loaded, unmask.ContrastDetector)
    return loaded


def test_scores_are_those_of_the_detector(
    graph: OnnxDetector, detector: unmask.ContrastDetector, some: EventSet
) -> None:
    np.testing.assert_allclose(graph.score_events(some), detector.score_events(some), rtol=1e-5, atol=1e-5)
    assert graph.scores(some).n_trained_on == detector.scores(some).n_trained_on > 100


@given(seed=st.integers(0, 2**32 - 1), max_objects=st.integers(0, 18))
@settings(max_examples=10, deadline=None)
def test_scores_agree_on_any_events(
    graph: OnnxDetector,
    detector: unmask.ContrastDetector,
    make_events: Callable[..., EventSet],
    seed: int,
    max_objects: int,
) -> None:
    events = make_events(20, seed=seed, max_objects=max_objects)
    np.testing.assert_allclose(graph.score_events(events), detector.score_events(events), rtol=1e-5, atol=1e-5)


def test_the_content_of_padding_and_the_size_of_a_batch_do_not_matter(graph: OnnxDetector, some: EventSet) -> None:
    inputs = write.inputs_of(some[:5])
    (score,) = graph.session.run(["score"], inputs)
    dirty = {name: np.where(inputs["tag"] == 0, 7, array).astype(array.dtype) for name, array in inputs.items()
             if array.ndim == 2 and name != "tag"}  # fmt: skip
    np.testing.assert_array_equal(graph.session.run(["score"], inputs | dirty)[0], score)
    one = [graph.session.run(["score"], {name: array[i : i + 1] for name, array in inputs.items()}) for i in range(5)]
    np.testing.assert_allclose(np.ravel(one), score, rtol=1e-5)
    assert len(graph.score_events(some[:0])) == 0
    assert graph.run(some).keys() == {"score", "p_value", "minus_log_p"}  # what explains is large


def test_explanations_are_those_of_the_detector(
    graph: OnnxDetector, detector: unmask.ContrastDetector, some: EventSet
) -> None:
    events = some[-40:]
    for ours, theirs in zip(graph.explain(events), detector.explain(events), strict=True):
        np.testing.assert_allclose(ours.object_contribution, theirs.object_contribution, rtol=1e-3, atol=1e-3)
        assert [(term.name, term.text) for term in ours.terms] == [(term.name, term.text) for term in theirs.terms]


def test_p_values_are_those_of_the_calibration(exported: Path, graph: OnnxDetector, some: EventSet) -> None:
    outputs = graph.run(some)
    expected = Calibration.load(exported / "calibration").survival.p_values(outputs["score"])
    np.testing.assert_allclose(outputs["p_value"], expected, rtol=1e-12)


def test_the_reference_is_reproduced_by_the_runtime_alone(exported: Path) -> None:
    session = onnxruntime.InferenceSession(exported / "model.onnx")
    reference = json.loads((exported / "model.reference.json").read_text())
    types = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}
    inputs = {
        one.name: np.array(reference["inputs"][one.name], types[one.type])
        for one in session.get_inputs()
        if one.name != "explain"
    }
    score, p_value = session.run(["score", "p_value"], inputs)
    np.testing.assert_allclose(score, reference["outputs"]["score"], rtol=1e-5)
    np.testing.assert_allclose(p_value, reference["outputs"]["p_value"], rtol=1e-2)
    n_objects = (inputs["tag"] != 0).sum(1)
    assert n_objects.min() == 0
    assert n_objects.max() == 18
    assert np.abs(inputs["phi"]).max() == np.float32(np.pi)


def test_the_file_says_what_it_is(exported: Path) -> None:
    model = onnx.load(exported / "model.onnx")
    (metadata,) = (json.loads(one.value) for one in model.metadata_props)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", metadata["opset"])] == [("", 17)]
    assert metadata["kind"] == "contrast"
    names = [node.name for node in model.graph.node]  # without which older runtimes refuse it
    assert all(names)
    assert len(names) == len(set(names))
    assert metadata["object_types"]["b-jet"] == 2
    assert metadata["inputs"]["pt_mev"] == "pT in MeV"
    assert metadata["model"] == write.sha256_of_file(sample_path("gluino-model") / "manifest.json")
    assert "unmask export" in metadata["provenance"]["command"]


def test_commands_need_no_torch(exported: Path, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("scores.parquet", "report.html", "flagged.parquet", "events")}
    model, test = str(exported / "model.onnx"), str(exported / "test.parquet")
    commands = [
        ["score", model, test, "--out", files["scores.parquet"], "--explain", "3"],
        ["evaluate", files["scores.parquet"]],
        ["flag", str(exported / "calibration"), files["scores.parquet"], "--out", files["flagged.parquet"]],
        ["report", files["scores.parquet"], "--out", files["report.html"]],
        ["data", "split", test, "--out", files["events"]],
        ["list"],
        ["train", test, "--out", str(tmp_path / "model")],
    ]
    code = WITHOUT_TORCH.format(commands=commands)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "masked-token" in result.stdout
    assert result.stderr.endswith(
        "error: torch is not installed, and this command needs it; run: pip install 'unmask[train]'\n"
    )
    assert all(Path(file).exists() for file in files.values())
    scores, origin = read_scores(files["scores.parquet"]), origin_of_file(Path(files["scores.parquet"]))
    assert scores.n_trained_on > 1000
    assert origin["model"] == write.sha256_of_file(sample_path("gluino-model") / "manifest.json")
    assert origin["settings"]["backbone"] == "part-pairs"


def test_nothing_is_written_if_the_runtime_disagrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ContrastGraph.score

    def wrong(self: ContrastGraph, *given: Any) -> tuple[Any, Any]:
        score, minus_log_p = right(self, *given)
        return score * 1.0001, minus_log_p

    monkeypatch.setattr(ContrastGraph, "score", wrong)
    with pytest.raises(UnmaskError, match=r"scores of ONNX Runtime and torch differ .* nothing was written"):
        write.export("sample:gluino-model", tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_no_graph_is_refused(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no graph")
    with pytest.raises(ArtifactError, match=r"model.onnx: ONNX Runtime [\d.]+ cannot run it; export it again"):
        OnnxDetector.load(path)
    model = onnx.load(exported / "model.onnx")
    old = json.loads(model.metadata_props[0].value) | {"format_version": 0}
    for metadata, message in (({}, "no graph that unmask exported"), ({"unmask": json.dumps(old)}, "Export the model")):
        onnx.helper.set_model_props(model, metadata)
        onnx.save(model, path)
        with pytest.raises(ArtifactError, match=message):
            OnnxDetector.load(path)
    model.opset_import[0].version = 99
    onnx.save(model, path)
    with pytest.raises(ArtifactError, match="cannot run it; export it again, or update onnxruntime"):
        OnnxDetector.load(path)


def test_wrong_use_is_refused(exported: Path, graph: OnnxDetector, some: EventSet, tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        code, message = failing(*arguments)
        assert code in (2, 3)
        assert message.count("\n") == 1
        return message

    graph_file, scores = exported / "model.onnx", exported / "background.scores.parquet"
    assert "must end in .onnx" in refused("export", "sample:gluino-model", "--out", tmp_path / "model.pt")
    assert "give --overwrite" in refused("export", "sample:gluino-model", "--out", graph_file)
    assert "holds a calibration" in refused("export", exported / "calibration", "--out", tmp_path / "model.onnx")
    assert "or what unmask export wrote" in refused("score", scores, "sample:gluino")
    assert "no manifest.json" in refused("score", tmp_path / "nothing", "sample:gluino")
    out = tmp_path / "scores.parquet"
    assert "on the CPU" in refused("score", graph_file, "sample:gluino", "--device", "cuda", "--out", out)
    assert "one score and no token" in refused("score", graph_file, "sample:gluino", "--token-losses", "--out", out)
    untrained = unmask.fit("untrained", some[some.label == 0], some[some.label == 0])
    untrained.save(tmp_path / "untrained")
    assert "untrained cannot be" in refused("export", tmp_path / "untrained", "--out", tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="cannot be trained"):
        graph.fit(some[some.label == 0], some[some.label == 0])


def test_a_graph_holds_the_model_card_with_its_calibration(exported: Path) -> None:
    text = onnx.load(exported / "model.onnx").doc_string
    assert text.startswith("# Model card: contrast\n")
    assert "- Training: 18,828 events" in text
    assert "unmask train events/train.parquet" in text
    assert "background efficiency" in text.split("## Performance")[1].split("## Use")[0]


def test_a_graph_with_fewer_slots_gives_the_same_scores(
    detector: unmask.ContrastDetector, some: EventSet, tmp_path: Path
) -> None:
    write.export("sample:gluino-model", tmp_path / "model.onnx", max_objects=6)
    graph = OnnxDetector.load(tmp_path / "model.onnx")
    few = some[some.n_objects <= 6]
    np.testing.assert_allclose(graph.score_events(few), detector.score_events(few), rtol=1e-5, atol=1e-5)
    ours, theirs = (each.explain(few[:5])[-1].object_contribution for each in (graph, detector))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    with pytest.raises(UsageError, match="this contrast detector has room for 6"):
        graph.score_events(some)
    with pytest.raises(UsageError, match="--max-objects is 19; expected from 1 to 18"):
        write.export("sample:gluino-model", tmp_path / "other.onnx", max_objects=19)
