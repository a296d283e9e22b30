"""`unmask explain`: one event in words, by a model and by its graph."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.running import failing, running
from unmask.report.explained import draw_explained, object_rows
from unmask.scores.explanations import ExplainedEvent, ExplainedObject, Guess, TokenExplanation

EVENT = "620"


def explained_object(name: str, pt_gev: float, contribution: float | None) -> ExplainedObject:
    return ExplainedObject(name[0], name, pt_gev * 1e3, 0.5, 0.0, pt_gev * 1.2e3, contribution)


@pytest.fixture
def event() -> ExplainedEvent:
    objects = [
        explained_object("jet", 90, 0.301),
        explained_object("jet", 40, 0.299),
        explained_object("b-jet", 200, 1.5),
        explained_object("jet", 30, -0.2),
    ]
    return ExplainedEvent(1, 4.5, "data.root", 7, 12, "data", -1, 1.0, 250e3, 0.1, objects, 0.5, [], [])


def test_equal_objects_are_one_row_and_the_largest_comes_first(event: ExplainedEvent) -> None:
    assert [row.cells[:3] for row in object_rows(event)] == [
        ("b-jet", "pT 200 GeV, eta 0.50", "+1.50"),
        ("MET", "250 GeV, phi 0.10", "+0.50"),
        ("2 jets", "pT 40 to 90 GeV", "+0.30"),
        ("jet", "pT 30 GeV, eta 0.50", "-0.20"),
    ]


def test_what_was_expected_instead_is_no_repetition_of_what_is_there(event: ExplainedEvent) -> None:
    expected = [Guess("b-jet, pT 58 to 90 GeV", 0.4), Guess("jet, pT 58 to 90 GeV", 0.25)]
    token = TokenExplanation("b-jet", "b-jet in full", 1.5, 0.2, expected[0], expected, object=2)
    rows = {row.what: row.instead for row in object_rows(replace(event, tokens=[token]))}
    assert rows == {"b-jet": "jet, pT 58 to 90 GeV (25%)", "MET": "", "2 jets": "", "jet": ""}


def test_the_figure_has_a_bar_of_each_row(event: ExplainedEvent) -> None:
    (axis,) = draw_explained(event).figure.axes
    assert [bar.get_width() for bar in axis.patches] == pytest.approx([1.5, 0.5, 0.3, -0.2])
    assert [text.get_text() for text in axis.get_yticklabels()][2] == "2 jets, pT 40 to 90 GeV"


def test_a_graph_explains_as_its_model_does(exported: Path, tmp_path: Path) -> None:
    figure, files = tmp_path / "event.png", ("sample:gluino", "--event", EVENT)
    by_graph, by_model = (
        json.loads(running("explain", model, *files, "--json")[0])
        for model in (exported / "model.onnx", "sample:gluino-model")
    )
    shown, _ = running("explain", "sample:gluino-model", *files, "--figure", figure)
    assert "pT 715 GeV" in shown
    assert f"{max(one['contribution'] for one in by_model[0]['objects']):+.2f}" in shown
    assert "number of b-jets" in shown
    assert figure.stat().st_size > 10_000
    assert [one["terms"][1]["text"] for one in by_graph] == [one["terms"][1]["text"] for one in by_model]
    for one, other in zip(by_graph[0]["objects"], by_model[0]["objects"], strict=True):
        assert one == other | {"contribution": pytest.approx(other["contribution"], abs=1e-3)}


def test_an_event_that_is_not_there_is_named(exported: Path) -> None:
    code, message = failing("explain", exported / "model.onnx", "sample:gluino", "--event", "-5")
    assert code == 2
    assert "--event -5: no event has this id in" in message
