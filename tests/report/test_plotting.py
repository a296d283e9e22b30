"""How figures look and are written: styles, formats, and SVG for a page with several of them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from unmask.errors import UsageError
from unmask.report.style import (
    STYLES,
    Drawing,
    Style,
    legend_below,
    line_styles,
    name_simulation,
    new_figure,
    write_drawings,
)


def drawing(style: Style = "plain") -> Drawing:
    with new_figure(1, 1, (3, 2), style=style) as (made, axes):
        axes[0, 0].plot([0, 1], [1, 0], label="a line <&>")
        axes[0, 0].stairs([1, 2], [0, 1, 2], hatch="//", label="steps")  # hatches are referred to by id
        axes[0, 0].set(xlabel="x [GeV]", ylabel="y")
        name_simulation(made, axes[0, 0])
        legend_below(made.figure, axes[0, 0])
    return made


def test_one_call_writes_all_formats(tmp_path: Path) -> None:
    paths = drawing().write(tmp_path / "new" / "v1.2", ("pdf", "svg", "png"))
    assert [path.name for path in paths] == ["v1.2.pdf", "v1.2.svg", "v1.2.png"]
    assert sorted((tmp_path / "new").iterdir()) == sorted(paths)
    starts = [path.read_bytes()[:5] for path in paths]
    assert starts == [b"%PDF-", b"<?xml", b"\x89PNG\r"]
    assert drawing().write(tmp_path / "one.pdf") == [tmp_path / "one.pdf"]
    again = write_drawings(tmp_path / "again", {"v1.2": drawing()}, ("pdf", "svg", "png"))
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_panels_are_at_the_same_place_in_all_formats(tmp_path: Path) -> None:
    made = drawing()
    place = made.figure.axes[0].get_position().bounds
    for name in ("one.pdf", "one.png"):
        made.write(tmp_path / name)
        assert made.figure.axes[0].get_position().bounds == place


def test_nothing_is_written_if_one_format_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = drawing()
    with pytest.raises(UsageError, match=r"roc\.gif: a figure is written as png, pdf, svg"):
        made.write(tmp_path / "roc", ("png", "gif"))
    save = made.figure.savefig

    def fail_at_pdf(path: Path, **options: object) -> None:
        if path.suffix == ".pdf":
            raise OSError("disk full")
        save(path, **options)

    monkeypatch.setattr(made.figure, "savefig", fail_at_pdf)
    with pytest.raises(OSError, match="disk full"):
        made.write(tmp_path / "roc", ("png", "pdf"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("style", STYLES)
def test_svg_of_several_figures_fit_in_one_page(style: Style) -> None:
    elements = [drawing(style).svg(name, 'the "first" & only') for name in ("first", "second")]
    assert all(element.startswith('<svg id="') for element in elements)
    page = ElementTree.fromstring(f"<html>{''.join(elements)}</html>")
    assert [svg.get("aria-label") for svg in page] == ['the "first" & only'] * 2
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > 10
    used = re.findall(r'(?:url\(#|href="#)([^)"]+)', "".join(elements))
    assert used
    assert set(used) <= set(ids)
    rules = [element.text or "" for element in page.iter() if element.tag.endswith("style")]
    assert [rule.strip().split("{")[0] for rule in rules] == ["#first *", "#second *"]


def test_styles_look_different_and_leave_no_trace(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    before, open_figures = dict(mpl.rcParams), plt.get_fignums()
    images, ticks = {}, {}
    for style in STYLES:
        made = drawing(style)
        images[style] = made.write(tmp_path / f"{style}.png")[0].read_bytes()
        axis = made.figure.axes[0]
        font = b"DejaVuSans" if style == "plain" else b"TeXGyreHeros"
        assert font in made.write(tmp_path / f"{style}.pdf")[0].read_bytes()
        ticks[style] = axis.xaxis.get_major_ticks()[0].get_tickdir()
        # The label of the experiments' styles names no experiment.
        assert axis.get_title("right") == ("" if style == "plain" else "Simulation")
    assert len(set(images.values())) == len(STYLES)
    assert ticks == {"plain": "out", "atlas": "in", "cms": "in"}
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_figures


def test_settings_of_the_user_do_not_change_figures(tmp_path: Path) -> None:
    usual = drawing().write(tmp_path / "usual.png")[0].read_bytes()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert drawing().write(tmp_path / "other.png")[0].read_bytes() == usual


def test_unknown_style_is_refused() -> None:
    with pytest.raises(UsageError, match="no style 'atlsa': did you mean 'atlas'"):
        drawing("atlsa")  # type: ignore[arg-type]


@pytest.mark.parametrize("style", STYLES)
def test_lines_differ_without_colour_and_are_seen_on_white(style: Style) -> None:
    with new_figure(1, 1, (3, 2), style=style):
        styles = [look for look, _ in zip(line_styles(), range(8), strict=False)]
    assert len({str(look["linestyle"]) for look in styles}) == 8
    with new_figure(1, 1, (3, 2), style=style):
        many = [str(look) for look, _ in zip(line_styles(), range(40), strict=False)]
    assert len(set(many)) == 40
    grey = np.array([mpl.colors.to_rgb(look["color"]) for look in styles]) @ [0.299, 0.587, 0.114]
    assert grey.max() < 0.75
