"""Prints plain tables and JSON on stdout.

A table is cut to the terminal's width only if stdout is a terminal. Headers, states and the first
column, which holds the id or name, are never cut. A column that would be useless with its end cut
off has a compact form.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import click

from schedo.cli.escapes import escape, measure, truncate

CompactForms = Mapping[str, Callable[[str], str]]  # by header: shortens a cell of that column
_NO_COMPACT_FORMS: CompactForms = {}
_GAP = 2
_COLUMN_MIN = 6
# Columns whose end says nothing in a few characters: optional columns are left out for them.
_LEAST = {"WORK": 16, "ERROR": 16}
_NEVER_CUT = ("STATE", "OUTCOME", "RESULT")
# ASCII replacements, for terminals whose encoding lacks these characters.
_IN_ASCII = str.maketrans({"µ": "u", "…": "~", **dict.fromkeys("█▉▊▋▌▍▎▏", "#")})
_COLORS = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "retrying": "yellow",
    "cancelled": "bright_black",
    "expired": "bright_black",
    "paused": "yellow",
}


def print_json(value: object) -> None:
    """Print a value as JSON. It is ASCII only, so that no control character reaches a terminal."""
    click.echo(json.dumps(value, indent=2))


def print_text(text: str) -> None:
    """Print text with its colours, in characters that stdout's encoding has."""
    click.echo(make_printable(text), color=True)


def make_printable(text: str) -> str:
    """Return the text in characters that stdout's encoding has: as ASCII or escaped if needed."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_IN_ASCII)
        return plain.encode(encoding, "backslashreplace").decode(encoding)
    return text


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    compact: CompactForms = _NO_COMPACT_FORMS,
    *,
    optional: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal; states are coloured unless NO_COLOR is set.

    optional: headers of columns that are left out, in this order, if the terminal is too narrow.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in render_fitting(headers, [*rows], width, compact, optional):
        print_text(line)


def render_fitting(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    compact: CompactForms,
    optional: Sequence[str],
) -> list[str]:
    """Return the lines of a table without as many of the optional columns as it takes to fit."""
    lines: list[str] = []
    for count in range(len(optional) + 1):
        kept = [index for index, name in enumerate(headers) if name not in optional[:count]]
        names, *shown = ([row[index] for index in kept] for row in (headers, *rows))
        forms = {name: form for name, form in compact.items() if name in names}
        lines = render_table(names, shown, width, has_colors(), forms)
        if width is None or max(measure(click.unstyle(line)) for line in lines) <= width:
            break
    return lines


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print each name and its value on a line, with the values in one column."""
    pairs = list(facts)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        shown = escape(value, keep="\n").replace("\n", "\n" + " " * (width + _GAP))
        print_text(f"{name:<{width}}  {shown}")


def has_colors() -> bool:
    """Return whether output is coloured: on a terminal, or as NO_COLOR and FORCE_COLOR say."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or has_screen()


def has_screen() -> bool:
    """Return whether the output goes to a terminal that knows colours and can be redrawn.

    A terminal that does neither, such as the shell of an editor, sets TERM to dumb.
    """
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    is_coloured: bool = False,
    compact: CompactForms = _NO_COMPACT_FORMS,
    *,
    is_whole: bool = True,
) -> list[str]:
    """Return the lines of a table, cut to `width` columns.

    With `is_whole`, the first column is never cut, so a line may be wider. Without it, the first
    column is cut as well, and columns at the end are left out.
    """
    cells = [[escape(cell) for cell in row] for row in (headers, *rows)]
    widths = _measure_columns(cells)
    if width is not None and _find_excess(widths, width) > 0:
        for header, shorten in compact.items():
            column = headers.index(header)
            for row in cells[1:]:
                row[column] = shorten(row[column])
        whole = set(map(headers.index, compact))
        least = [_COLUMN_MIN] * len(headers)
        if is_whole:
            whole |= {0, *(at for at, name in enumerate(headers) if name in _NEVER_CUT)}
            least = [_LEAST.get(name, max(_COLUMN_MIN, measure(name))) for name in headers]
        widths = _shrink(_measure_columns(cells), width, whole, least)
        if not is_whole:
            widths = list(_fill(widths, width))
    return [_render_row(row, widths, is_coloured) for row in cells]


def _measure_columns(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(measure, column)) for column in zip(*cells, strict=True)]


def _find_excess(widths: Sequence[int], total: int) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) - total


def _shrink(
    widths: list[int], total: int, whole: Collection[int], least: Sequence[int]
) -> list[int]:
    """Make the widest columns narrower until the total fits; never those in `whole`."""
    widths = list(widths)
    excess = _find_excess(widths, total)
    columns = {column for column in range(len(widths)) if column not in whole}
    while excess > 0 and columns:
        widest = max(columns, key=lambda column: widths[column])
        if widths[widest] <= least[widest]:
            columns.discard(widest)
        else:
            widths[widest] -= 1
            excess -= 1
    return widths


def _fill(widths: Sequence[int], total: int) -> Iterator[int]:
    """Yield the widths of the columns that begin within the total; the last one is cut to fit."""
    for width in widths:
        if total <= 0:
            return
        yield min(width, total)
        total -= width + _GAP


def _render_row(row: Sequence[str], widths: Sequence[int], is_coloured: bool) -> str:
    parts = []
    for cell, width in zip(row, widths, strict=False):  # there may be fewer widths than cells
        shown = truncate(cell, width)
        padding = " " * (width - measure(shown))
        if is_coloured and cell in _COLORS:
            shown = click.style(shown, fg=_COLORS[cell])
        parts.append(shown + padding)
    return (" " * _GAP).join(parts).rstrip()
