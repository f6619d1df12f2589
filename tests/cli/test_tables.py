"""Tables are aligned, fit the terminal, and contain no escape sequences of their data."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper

import pytest

from schedo.cli.escapes import measure
from schedo.cli.tables import print_text, render_fitting, render_table


def test_columns_are_aligned() -> None:
    lines = render_table(("ID", "STATE"), [("1", "queued"), ("1000", "failed")])

    assert lines == ["ID    STATE", "1     queued", "1000  failed"]


def test_wide_characters_keep_the_columns_aligned() -> None:
    lines = render_table(("NAME", "X"), [("漢字", "1"), ("abcd", "2")])

    assert lines == ["NAME  X", "漢字  1", "abcd  2"]


def test_a_table_is_cut_to_the_width_but_not_its_first_column() -> None:
    lines = render_table(("ID", "WHAT"), [("01K0000000001", "x" * 100)], width=30)

    assert lines == [
        "ID             WHAT",
        "01K0000000001  xxxxxxxxxxxxxx…",
    ]
    assert max(map(measure, lines)) == 30


def test_the_widest_column_is_cut_first() -> None:
    (_, line) = render_table(("A", "B", "C"), [("1", "y" * 20, "z" * 10)], width=24)

    assert line == "1  yyyyyyyy…  zzzzzzzzzz"


def test_a_column_with_a_compact_form_is_not_cut() -> None:
    rows = [("1", "12:00:05 (in 5s)", "z" * 20)]
    compact = {"B": lambda text: text[10:-1]}

    (_, wide) = render_table(("A", "B", "C"), rows, width=41, compact=compact)
    (_, narrow) = render_table(("A", "B", "C"), rows, width=24, compact=compact)

    assert wide == "1  12:00:05 (in 5s)  zzzzzzzzzzzzzzzzzzzz"
    assert narrow == "1  in 5s  zzzzzzzzzzzzz…"


def test_columns_stay_readable_in_a_very_narrow_terminal() -> None:
    (_, line) = render_table(("A", "B"), [("1" * 10, "y" * 20)], width=5)

    assert line == "1111111111  yyyyy…"


def test_a_table_whose_names_may_be_cut_is_never_wider_than_the_terminal() -> None:
    rows = [("漢" * 20, "y" * 20, "z" * 20)]

    for width in range(1, 70):
        lines = render_table(("A", "B", "C"), rows, width, is_whole=False)
        assert max(map(measure, lines)) <= width

    assert render_table(("A", "B", "C"), rows, 40, is_whole=False)[1] == (
        "漢漢漢漢漢…   yyyyyyyyyyy…  zzzzzzzzzzz…"
    )
    assert render_table(("A", "B", "C"), rows, 16, is_whole=False)[1] == "漢漢…   yyyyy…"


def test_characters_that_stdout_lacks_are_replaced_by_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = BytesIO()
    stdout = TextIOWrapper(written, encoding="latin-1", write_through=True)
    monkeypatch.setattr(sys, "stdout", stdout)

    print_text("häß")
    print_text("ä 85µs █▌ 漢…")

    assert written.getvalue().decode("latin-1") == "häß\nä 85us ## \\u6f22~\n"


def test_escape_sequences_in_a_cell_are_escaped() -> None:
    (_, line) = render_table(("NAME",), [("\x1b[2Jgone\n",)])

    assert line == r"\x1b[2Jgone\n"


def test_colours_are_optional_and_do_not_move_columns() -> None:
    plain = render_table(("STATE", "X"), [("failed", "1")])
    coloured = render_table(("STATE", "X"), [("failed", "1")], is_coloured=True)

    assert plain == ["STATE   X", "failed  1"]
    assert coloured == ["STATE   X", "\x1b[31mfailed\x1b[0m  1"]


def test_a_table_without_rows_has_only_headers() -> None:
    assert render_table(("ID", "STATE"), []) == ["ID  STATE"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (None, ["ID", "STATE", "QUEUE", "WORK"]),
        (80, ["ID", "STATE", "QUEUE", "WORK"]),
        (42, ["ID", "STATE", "WORK"]),
        (41, ["ID", "WORK"]),
        (5, ["ID", "WORK"]),
    ],
)
def test_optional_columns_are_left_out_until_the_table_fits(
    width: int | None, shown: list[str]
) -> None:
    row = ("01K0000000001", "completed", "default", "x" * 40)

    lines = render_fitting(("ID", "STATE", "QUEUE", "WORK"), [row], width, {}, ("QUEUE", "STATE"))

    assert lines[0].split() == shown


def test_states_and_headers_are_never_cut_and_the_work_stays_readable() -> None:
    row = ("01K0000000001", "completed", "x" * 30, "y" * 30)
    headers = ("ID", "STATE", "PRIORITY STEP", "WORK")

    lines = render_table(headers, [row], 40)

    assert lines == [
        "ID             STATE      PRIORITY STEP  WORK",
        "01K0000000001  completed  xxxxxxxxxxxx…  yyyyyyyyyyyyyyy…",
    ]
