"""Tables of estimates about detectors, or regions and signals, rendered for a terminal, in Markdown, LaTeX and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from unmask.scores.intervals import Estimate

#: A number with its interval, or text: counts, names, why there is no number.
Cell = Estimate | str
_LATEX = {
    "ε_S": r"$\epsilon_S$", "ε_B": r"$\epsilon_B$", "√": r"$\surd$", "Δ": r"$\Delta$",
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_TO_ESCAPE = re.compile("|".join(map(re.escape, _LATEX)))


def latex_text(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> print(latex_text("lut_456: ε_S at 5%"))
    lut\_456: $\epsilon_S$ at 5\%
    """
    return _TO_ESCAPE.sub(lambda found: _LATEX[found[0]], text)


def markdown_text(text: str) -> str:
    r"""Text in a Markdown table, as it is.

    >>> print(markdown_text("a|b <c> < 5"))
    a\|b &lt;c> < 5
    """
    return re.sub("<(?! )", "&lt;", text.replace("|", r"\|"))


def html_text(text: str) -> str:
    """Text in HTML, with the subscripts of efficiencies."""
    return re.sub("ε_([SB])", r"ε<sub>\1</sub>", escape(text))


@dataclass(frozen=True)
class Row:
    """A row: the name of what it is about, and cells."""

    name: str
    cells: tuple[Cell, ...]
    is_untrained: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells that stay numbers until they are rendered; ``first`` is the title of the column of names.

    >>> row = Row("default", (Estimate(0.9980, 0.9973, 0.9986), "17"))
    >>> print(Table("Test results", ("AUC", "epochs"), (row,)).terminal())
    Test results
    detector    AUC                        epochs
    ─────────────────────────────────────────────
    default     0.9980 [0.9973, 0.9986]    17
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    first: str = "detector"

    def only(self, columns: Sequence[str]) -> Table:
        """The table with some of its columns."""
        places = [self.columns.index(column) for column in columns]
        rows = (Row(row.name, tuple(row.cells[i] for i in places), row.is_untrained) for row in self.rows)
        return Table(self.title, tuple(columns), tuple(rows), self.first)

    def terminal(self, width: int = 80) -> str:
        """Aligned text; long names are cut so that no line has more than ``width`` characters, if that can be."""
        lines = self._texts()
        widths = [max(len(line[i]) for line in lines) + 4 for i in range(len(lines[0]))]
        widths[-1] -= 4
        widths[0] = max(min(widths[0], width - sum(widths[1:])), 12)
        total = sum(widths)

        def line(cells: list[str]) -> str:
            name = cells[0] if len(cells[0]) < widths[0] else f"{cells[0][: widths[0] - 3]}… "
            return "".join(cell.ljust(size) for cell, size in zip([name, *cells[1:]], widths, strict=True)).rstrip()

        rendered = [self.title, line(lines[0]), "─" * total]
        is_trained = True
        for row, cells in zip(self.rows, lines[1:], strict=True):
            if row.is_untrained and is_trained:
                rendered.append("── untrained ".ljust(total, "─"))
            is_trained = not row.is_untrained
            rendered.append(line(cells))
        return "\n".join(rendered)

    def markdown(self) -> str:
        """A Markdown table, aligned so that it can also be read as it is."""
        lines = [[markdown_text(cell) for cell in line] for line in self._texts()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        lines.insert(1, ["-" * width for width in widths])
        return "".join(
            f"| {' | '.join(text.ljust(width) for text, width in zip(line, widths, strict=True))} |\n" for line in lines
        )

    def latex(self) -> str:
        """The table for a paper (booktabs)."""

        def cell(content: Cell) -> str:
            if isinstance(content, str):
                return latex_text(content)
            value, interval = content.texts()
            return rf"${value}\;{interval}$"

        lines: list[tuple[Cell, ...]] = [(self.first, *self.columns), *((row.name, *row.cells) for row in self.rows)]
        head, *body = (" & ".join(map(cell, line)) + r" \\" for line in lines)
        n_columns = len(self.columns)
        title = rf"\multicolumn{{{n_columns + 1}}}{{l}}{{{latex_text(' '.join(self.title.split()))}}} \\"
        start = [rf"\begin{{tabular}}{{l{'c' * n_columns}}}", title, r"\toprule"]
        return "\n".join([*start, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def html(self) -> str:
        """The table as an HTML element."""

        def cell(content: Cell) -> str:
            if isinstance(content, str):
                return f"<td>{html_text(content)}</td>"
            value, interval = content.texts()
            return f'<td>{value}<span class="interval">{interval}</span></td>'

        head = "".join(f'<th scope="col">{html_text(column)}</th>' for column in (self.first, *self.columns))
        body = "\n".join(
            f'<tr{" class=untrained" if row.is_untrained else ""}><th scope="row">{escape(row.name)}</th>'
            f"{''.join(map(cell, row.cells))}</tr>"
            for row in self.rows
        )
        return f'<table class="numbers">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'

    def _texts(self) -> list[list[str]]:
        return [[self.first, *self.columns], *([row.name, *map(str, row.cells)] for row in self.rows)]
