"""The report in a real browser: what a reader clicks, reads and types."""

import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.report.runs import ObjectsOnly, TermsOnly, write_run
from unmask.events.event_set import LABEL_NAMES, EventSet
from unmask.report.page import write_report
from unmask.scores.explanations import ExplainedEvent, read_explanations

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(make_events: Callable[..., EventSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("report")
    processes = (NASTY, "ttW", "ttH")
    write_run(folder / "tokens.parquet", make_events, processes=processes, n_explained=30)
    write_run(folder / "terms.parquet", make_events, processes=processes, seed=1, explainer=TermsOnly())
    write_run(folder / "objects.parquet", make_events, processes=processes, seed=2, explainer=ObjectsOnly())
    notes = ["one remark", "another"]
    runs = [folder / f"{name}.parquet" for name in ("tokens", "terms", "objects")]
    write_report(runs, folder / "report.html", notes=notes)
    return folder


@pytest.fixture(scope="module")
def explained(folder: Path) -> list[ExplainedEvent]:
    return read_explanations(folder / "tokens.explained.json").events


@pytest.fixture
def page(browser: Browser, folder: Path) -> Iterator[Page]:
    """The page, which must neither complain nor ask for anything but itself."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto((folder / "report.html").as_uri())
    yield opened
    opened.close()
    assert complaints == []
    assert requests == [(folder / "report.html").as_uri()]


def rows(page: Page) -> list[str]:
    return page.locator(".event-list:not([hidden]) tbody tr:not([hidden]) td:nth-child(1)").all_inner_texts()


def cells(page: Page, table: str) -> list[list[str]]:
    found = page.locator(f"#{table} tr").all()
    return [[cell.replace("\u2212", "-") for cell in row.locator("td").all_inner_texts()] for row in found]


def shown_metadata(page: Page) -> dict[str, str]:
    names, values = (page.locator(f"#event-metadata {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return {name: value.replace("\u2212", "-") for name, value in zip(names, values, strict=True)}


def check_shown(page: Page, event: ExplainedEvent) -> None:
    """All numbers of an event are those of the file."""
    assert page.inner_text("#event-title") == f"Rank {event.rank}: {event.process}, {LABEL_NAMES[event.label]}"
    facts = shown_metadata(page)
    assert facts["score"] == f"{event.score:.4f}"
    assert float(facts["MET [GeV]"]) == pytest.approx(event.met_mev / 1e3, abs=0.051)
    assert (facts["row"], facts["event id"]) == (str(event.row), str(event.event_id))
    *objects, met = cells(page, "object-rows")
    assert len(objects) == len(event.objects)
    for found, object_, token in zip(objects, event.objects, event.tokens, strict=False):
        assert found[1] == object_.name
        numbers = [float(found[i]) for i in (2, 3, 4, 5, 6)]
        wanted = [object_.pt_mev / 1e3, object_.eta, object_.phi, object_.energy_mev / 1e3, object_.contribution]
        assert numbers == pytest.approx(wanted, abs=0.051)
        assert float(found[7].removesuffix(" %")) == pytest.approx(100 * token.probability, rel=0.05, abs=0.5)
        assert found[8] == "b-jet, pT 58 to 90 GeV (50 %); no further object (25 %); jet (10 %)"
    assert met[1] == "MET"
    assert float(met[6]) == event.met_contribution
    assert page.locator("#display circle").count() == len(event.objects)


def test_the_first_event_is_shown_and_a_click_shows_another(page: Page, explained: list[ExplainedEvent]) -> None:
    check_shown(page, explained[0])
    for i in (4, 11):
        page.locator(".event-list:not([hidden]) tbody tr").nth(i).click()
        check_shown(page, explained[i])


def test_objects_are_where_they_are(page: Page, explained: list[ExplainedEvent]) -> None:
    """Positions fall on one straight line in eta and in phi, and areas on one in pT."""
    event = max(explained, key=lambda one: len(one.objects))
    page.locator(".event-list:not([hidden]) tbody tr").nth(event.rank - 1).click()
    titles = page.locator("#display circle title").all_text_contents()
    found = {
        title: [float(circle.get_attribute(name) or "nan") for name in ("cx", "cy", "r")]
        for title, circle in zip(titles, page.locator("#display circle").all(), strict=True)
    }
    drawn = [
        (object_, found[f"{object_.name}, pT {object_.pt_mev / 1e3:.1f} GeV, contribution {object_.contribution:.2f}"])
        for object_ in event.objects
    ]
    (a, (xa, ya, ra)), (b, (xb, yb, _)) = drawn[0], drawn[-1]
    for object_, (x, y, r) in drawn:
        assert x == pytest.approx(xa + (xb - xa) * (object_.eta - a.eta) / (b.eta - a.eta), abs=0.1)
        assert y == pytest.approx(ya + (yb - ya) * (object_.phi - a.phi) / (b.phi - a.phi), abs=0.1)
        if min(r, ra) > 4:  # the smallest size, so that soft objects are seen
            assert r / ra == pytest.approx(math.sqrt(object_.pt_mev / a.pt_mev), rel=1e-3)
        # What colour says, a number says too.
        label = f"{object_.contribution:.1f}"
        assert any(text.endswith(label) for text in page.locator("#display > svg > text").all_text_contents())
    upwards = sorted(drawn, key=lambda one: one[0].phi)
    assert [y for _, (_, y, _) in upwards] == sorted((y for _, (_, y, _) in drawn), reverse=True)


def test_filters_by_process_and_label(page: Page, explained: list[ExplainedEvent]) -> None:
    page.select_option("#choose-process", "ttW")
    wanted = [str(event.rank) for event in explained if event.process == "ttW"]
    assert rows(page) == wanted
    assert page.inner_text("#n-shown") == f"{len(wanted)} of 30 events"
    assert page.inner_text("#event-title").startswith(f"Rank {wanted[0]}: ttW")
    page.select_option("#choose-process", NASTY)
    assert rows(page) == [str(event.rank) for event in explained if event.process == NASTY]
    page.select_option("#choose-label", "background")
    assert rows(page) == [str(event.rank) for event in explained if event.process == NASTY and event.label == 0]
    page.select_option("#choose-process", "")
    page.select_option("#choose-label", "signal")
    assert rows(page) == [str(event.rank) for event in explained if event.label == 1]


def test_the_numbers_come_before_the_notes(page: Page) -> None:
    link = page.locator("#summary a[href='#notes']")
    n_notes = page.locator("#summary .notes li").count()
    assert n_notes > 1
    assert link.inner_text() == f"{n_notes} notes below"
    boxes = [each.bounding_box() for each in (link, page.locator("#summary table").first, page.locator(".notes"))]
    tops = [box["y"] for box in boxes if box is not None]
    assert len(tops) == 3
    assert tops == sorted(tops)
    link.click()
    assert page.locator("#notes").evaluate("note => note.getBoundingClientRect().top") < 900


def test_the_list_is_used_from_the_keyboard(page: Page, explained: list[ExplainedEvent]) -> None:
    page.locator(".event-list:not([hidden]) tbody button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    check_shown(page, explained[2])
    page.keyboard.press("ArrowUp")
    check_shown(page, explained[1])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    check_shown(page, explained[2])


def test_a_walk_masks_one_token_after_the_other(page: Page, explained: list[ExplainedEvent]) -> None:
    event = next(one for one in explained if len(one.objects) > 3)
    page.locator(".event-list:not([hidden]) tbody tr").nth(event.rank - 1).click()
    n_tokens = len(event.tokens)
    for i, token in enumerate(event.tokens):
        assert page.inner_text("#walk-place") == f"token {i + 1} of {n_tokens}"
        assert page.locator("#tokens b").all_inner_texts().index("[masked]") == i
        assert page.locator("#tokens b").all_inner_texts().count("[masked]") == 1
        text = page.inner_text("#masked").replace("\u2212", "-")
        words = f"{token.name}." if token.name == "empty slot" else f"{token.name}. {token.text}."
        assert text.splitlines()[0].strip() == f"Under the mask: {words}"
        assert f"token loss {token.token_loss:.2f}" in text
        assert f"expected: {token.expected[0].text}" in text
        if i < n_tokens - 1:
            page.click("#next")
    assert page.is_disabled("#next")
    page.click("#previous")
    assert page.inner_text("#walk-place") == f"token {n_tokens - 1} of {n_tokens}"
    page.locator("#tokens button").nth(1).click()
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#walk-place") == f"token 3 of {n_tokens}"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#walk-place") == f"token 1 of {n_tokens}"
    assert page.is_disabled("#previous")


def test_a_detector_without_tokens_explains_by_terms(page: Page, folder: Path) -> None:
    page.select_option("#choose-list", label="terms")
    first = read_explanations(folder / "terms.explained.json").events[0]
    assert page.inner_text("#event-title").startswith(f"Rank 1: {first.process}")
    assert shown_metadata(page)["score"] == f"{first.score:.4f}"
    assert cells(page, "term-rows") == [["number of b-jets given the rest", "5, expected 1 to 2; p = 0.002", "6.21"]]
    # Nothing is promised of the objects that is not there.
    assert not page.is_visible("#contribution-note")
    columns = page.locator("#object-table th:visible")
    assert columns.all_inner_texts() == ["#", "object", "pT [GeV]", "η", "φ", "E [GeV]"]
    assert page.locator("#display circle").count() == len(first.objects)
    assert page.is_hidden("#walk-body")
    assert page.is_visible("#walk-none")
    page.select_option("#choose-list", label="objects")
    assert columns.all_inner_texts() == ["#", "object", "pT [GeV]", "η", "φ", "E [GeV]", "contribution"]
    assert "the score falls without the object" in page.inner_text("#contribution-note")
    page.select_option("#choose-list", label="tokens")
    assert "probability that the model gave to what was there" in page.inner_text("#contribution-note")
    assert columns.count() == 9


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_the_page_never_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # It is drawn anew before the next frame.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawing = page.locator("#display svg").bounding_box()
    assert drawing is not None
    # Letters of the drawing keep their size on a narrow screen: it is drawn for the room there is.
    assert drawing["width"] == pytest.approx(
        float((page.get_attribute("#display svg", "viewBox") or "").split()[2]), rel=0.1
    )


def test_tables_fit_on_paper(page: Page) -> None:
    page.set_viewport_size({"width": 760, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") == 760
    assert page.is_hidden("nav")
    assert page.is_visible("#display svg")


def test_without_script_numbers_figures_and_lists_remain(browser: Browser, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report.html").as_uri())
    assert page.is_visible("#summary table")
    assert page.locator("#figures svg").first.is_visible()
    assert len(page.locator(".event-list tbody tr:visible").all()) == 50
    assert page.is_hidden("#event")
    assert page.is_hidden("#walk")
    assert page.get_by_text("needs JavaScript").is_visible()
    context.close()
