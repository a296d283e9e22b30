"""The report holds the numbers that it was made from, escapes what the data say, and works with little or no labels."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.report.runs import write_run
from unmask.errors import BadDataError, UsageError
from unmask.evaluation.evaluate import evaluate
from unmask.events.event_set import EventSet
from unmask.io.parquet import write_events
from unmask.report.page import Figure, write_report
from unmask.scores.explanations import read_explanations
from unmask.scores.score_table import Scores, read_scores, write_scores

MakeEvents = Callable[..., EventSet]
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"


class Page(HTMLParser):
    """The tables of a page as texts, its tags, and the text of everything else."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "span" and self._in_cell:
            self.rows[-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data.strip()
        self.text += data


def data_of(page: str) -> dict[str, list[object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    content: dict[str, list[object]] = json.loads(found[1])
    return content


def test_the_metrics_are_those_of_evaluation(make_events: MakeEvents, tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / f"{name}.parquet", make_events, seed=seed) for seed, name in enumerate(("one", "two"))
    ]
    write_report(paths, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    found = evaluate({path.stem: read_scores(path) for path in paths})
    rows = {row[0]: row for row in reversed(page.rows)}  # the first row of a name is that of the metrics
    for row in found.rows_of():
        assert rows[row.name][1] == str(row.metrics.auc)
        assert rows[row.name][2].strip() == str(row.cells()[found.short[1]])
    assert ["one", "two", str(found.comparisons[0].difference)] in [row[:3] for row in page.rows]
    for pair in found.verdicts():
        assert [pair.name, str(pair.difference), pair.difference.verdict] in page.rows
    for note in found.notes:
        assert note in page.text
    assert f"{len(read_scores(paths[0]))} events each, scored by one, two." in page.text
    assert page.tags.count("figure") == 5  # ROC, improvement, two histograms; the event display
    assert "unmask score model" in page.text  # where it came from


def test_a_folder_stands_for_its_scores_files(make_events: MakeEvents, tmp_path: Path) -> None:
    for run in ("a", "b"):
        write_run(tmp_path / run / "scores.parquet", make_events)
    write_events(tmp_path / "a" / "events.parquet", [make_events(3)])
    runs = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html")
    assert [run.name for run in runs] == ["a/scores", "b/scores"]
    assert all(run.explanations for run in runs)
    with pytest.raises(UsageError, match="given twice"):
        write_report([tmp_path / "a", tmp_path / "a" / "scores.parquet"], tmp_path / "report.html")
    # A study holds them in a folder, whatever lies beside that.
    write_run(tmp_path / "study" / "scores" / "one.parquet", make_events)
    write_run(tmp_path / "study" / "bound.parquet", make_events)
    assert [run.name for run in write_report([tmp_path / "study"], tmp_path / "report.html")] == ["one"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no scores files"):
        write_report([tmp_path / "empty"], tmp_path / "report.html")
    with pytest.raises(UsageError, match=r"must end in \.html"):
        write_report([tmp_path / "a"], tmp_path / "report.pdf")


def test_scores_in_memory_make_a_report(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events)
    scores = read_scores(path)
    write_report({"one": scores, "two": scores}, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    auc = evaluate({"one": scores}).rows[0].metrics.auc
    assert {row[0] for row in page.rows if row[1:2] == [str(auc)]} == {"one", "two"}
    write_report(path, tmp_path / "alone.html")  # a single path needs no list
    assert "scored by one." in (tmp_path / "alone.html").read_text()
    with pytest.raises(UsageError, match="no scores to report on"):
        write_report({}, tmp_path / "report.html")


def test_figures_with_panels_side_by_side_need_the_width_of_the_page() -> None:
    sizes = {(576, 324): True, (576, 514): True, (396, 288): False, (396, 540): False}
    figures = {size: Figure("", f'<svg viewBox="0 0 {size[0]} {size[1]}">') for size in sizes}
    assert {size: figure.is_wide for size, figure in figures.items()} == sizes


def test_what_the_data_say_never_becomes_markup(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "<i>name&.parquet", make_events, processes=(NASTY, "ttW"), file=NASTY)
    write_report([path], tmp_path / "report.html", title=f"Title {NASTY}")
    page = (tmp_path / "report.html").read_text()
    parsed = Page(page)
    assert "alert(1)</script>" not in page
    assert parsed.tags.count("script") == 2  # the data and the one script
    assert not {"img", "i", "iframe", "link"} & set(parsed.tags)
    assert any(NASTY in row for row in parsed.rows)
    assert NASTY in json.dumps(data_of(page)).replace('\\"', '"')


def test_nothing_is_fetched(make_events: MakeEvents, tmp_path: Path) -> None:
    write_report([write_run(tmp_path / "one.parquet", make_events)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:|//)|@import|url\(\s*[\"']?http", page)
    assert "default-src 'none'" in page
    assert len(page.encode()) < 1_000_000


def test_unlabeled_events_have_scores_and_a_browser_but_no_metrics(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "data.parquet", make_events, labels=(-1, -1))
    write_report([path], tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert "AUC" not in page.text
    assert "no metrics of data: no events have a label" in page.text
    assert page.tags.count("figure") == 2  # the distribution; the event display
    header = next(row for row in page.rows if row[:2] == ["rank", "process"])
    assert "p" not in header
    assert sum(row[0].isdigit() and row[2] == "unlabeled" for row in page.rows) == 10


@pytest.mark.parametrize(("labels", "missing"), [((0, 0), "signal"), ((1, -1), "background")])
def test_one_class_alone_has_no_metrics_and_the_page_says_why(
    make_events: MakeEvents, tmp_path: Path, labels: tuple[int, int], missing: str
) -> None:
    paths = [write_run(tmp_path / f"{name}.parquet", make_events, labels=labels) for name in ("one", "two")]
    write_report(paths, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    assert f"no metrics of one, two: no events are labeled {missing}" in text


def test_warnings_come_before_the_numbers_and_remarks_after(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events, labels=(0, 1, -1))
    write_report([path], tmp_path / "report.html", notes=["a remark"])
    before, _, after = (tmp_path / "report.html").read_text().partition("<table")
    warning = "have no label; metrics leave them out"
    assert warning in before
    assert warning not in after
    assert "a remark" in after
    assert "a remark" not in before


def test_settings_are_those_that_the_scores_tell(make_events: MakeEvents, tmp_path: Path) -> None:
    metadata: dict[str, object] = {
        "detector": "masked-token",
        "settings": {"hidden": 64, "training": {"seed": 17}},
        "tokenizer": {"kind": "lut", "settings": {"n_bins": 5}},
        "fitted_on": {"n_train": 9},
    }
    told = write_run(tmp_path / "told.parquet", make_events, provenance=metadata)
    plain = tmp_path / "plain.csv"
    plain.write_text("score,label\n1,0\n2,1\n3,1\n")
    write_report([told, plain], tmp_path / "report.html")
    rows = Page((tmp_path / "report.html").read_text()).rows
    for row in (
        ["detector", "masked-token"],
        ["settings hidden", "64"],
        ["settings training seed", "17"],
        ["tokenizer kind", "lut"],
        ["tokenizer settings n_bins", "5"],
        ["fitted_on n_train", "9"],
        ["settings", "not known: unmask did not write these scores"],
    ):
        assert row in rows


def test_unlabeled_events_among_labeled_ones_are_left_out_and_counted(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "some.parquet", make_events, labels=(0, 1, -1))
    write_report([path], tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    assert "some: 200 of 600 events have no label; metrics leave them out" in text
    assert "AUC" in text


def test_scores_of_different_events_are_not_compared(make_events: MakeEvents, tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path / "one.parquet", make_events),
        write_run(tmp_path / "two.parquet", make_events, file="x.csv"),
    ]
    write_report(paths, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert "measured one by one, not compared" in page.text
    assert "Paired differences" not in page.text


def test_negative_weights_give_all_figures(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events, weight_of_first=-0.5)
    write_report([path], tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert page.tags.count("figure") == 4


def test_scores_without_explanations_have_no_browser(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events, n_explained=0)
    (run,) = write_report([path], tmp_path / "report.html")
    assert run.explanations is None
    page = (tmp_path / "report.html").read_text()
    assert "Most anomalous" not in page
    assert "AUC" in page


def test_constant_scores_are_reported_and_scores_without_value_refused(tmp_path: Path, make_events: MakeEvents) -> None:
    events = EventSet.concatenate([make_events(50), make_events(50, label=1, file="signal.csv")])
    write_scores(tmp_path / "constant.parquet", [Scores.of(events, np.full(100, 2.0))])
    write_report([tmp_path / "constant.parquet"], tmp_path / "report.html")
    assert "constant score: constant gives all events the score 2" in (tmp_path / "report.html").read_text()
    write_scores(tmp_path / "bad.parquet", [Scores.of(events, np.where(events.row == 7, np.nan, 2.0))])
    with pytest.raises(BadDataError, match=r"bad\.parquet: 2 of 100 scores are NaN or infinite"):
        write_report([tmp_path / "bad.parquet"], tmp_path / "report.html")


def test_explanations_of_other_scores_are_refused(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events)
    write_run(path, make_events, seed=5, n_explained=0)
    with pytest.raises(BadDataError, match="explains other scores than those beside it") as raised:
        write_report([path], tmp_path / "report.html")
    assert "one.explained.json" in str(raised.value)
    assert not (tmp_path / "report.html").exists()


def test_the_page_holds_the_explained_events_and_their_p_values(make_events: MakeEvents, tmp_path: Path) -> None:
    path = write_run(tmp_path / "one.parquet", make_events)
    write_report([path], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    explained = read_explanations(tmp_path / "one.explained.json").events
    data = data_of(page)
    (shown,) = data["lists"]
    assert isinstance(shown, list)
    for compact, event in zip(shown, explained, strict=True):
        assert compact["score"] == event.score
        assert [o[2] for o in compact["objects"]] == [o.pt_mev for o in event.objects]
        assert [[data["texts"][text] for text, _ in token[6]] for token in compact["tokens"]] == [
            [guess.text for guess in token.expected] for token in event.tokens
        ]
    scores = read_scores(path)
    is_background = scores.label == 0
    listed = [row for row in Page(page).rows if len(row) == 6 and row[0].isdigit()]
    assert len(listed) == len(explained)
    for row, event in zip(listed, explained, strict=True):
        weight = scores.weight[is_background]
        n = weight.sum() ** 2 / (weight**2).sum()
        share = weight[scores.score[is_background] >= event.score].sum() / weight.sum()
        value = float(row[4].replace("\u2212", "-"))
        assert value == pytest.approx((1 + n * share) / (1 + n), rel=0.06)
        parts = [o.contribution for o in event.objects if o.contribution is not None] + [event.met_contribution or 0]
        assert row[5].endswith(f"({np.max(parts):.1f})")
