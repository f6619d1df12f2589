"""The rows of tallies: how they are stored, and what becomes of those that are too large."""

from __future__ import annotations

from schedo.core.sketch import BUCKETS
from schedo.core.tallies import (
    NAMES_MAX,
    OTHER,
    ROW_BYTES_MAX,
    Tally,
    add_tallies,
    decode_row,
    encode_row,
)


def tally(completed: int, buckets: int = 1) -> Tally:
    found = Tally()
    found.counts["completed"] = completed
    found.run = dict.fromkeys(range(buckets), completed)
    found.late = dict.fromkeys(range(BUCKETS - buckets, BUCKETS), 1)
    return found


def test_a_row_is_read_as_it_was_written() -> None:
    written = {"mail": tally(3, 9), "resize": Tally()}

    read = decode_row(encode_row(written))

    assert list(read) == ["mail", "resize"]
    assert (read["mail"].counts, read["resize"].counts) == (tally(3).counts, Tally().counts)
    assert (read["mail"].run, read["mail"].late) == (written["mail"].run, written["mail"].late)


def test_a_row_that_is_too_large_keeps_those_with_the_most() -> None:
    written = {f"{number:0128}": tally(number, BUCKETS) for number in range(NAMES_MAX)}

    text = encode_row(written)
    read = decode_row(text)

    assert len(text) <= ROW_BYTES_MAX
    assert NAMES_MAX > len(read) > NAMES_MAX // 8
    assert f"{NAMES_MAX - 1:0128}" in read
    assert sum(each.ended for each in read.values()) == sum(range(NAMES_MAX))
    assert sum(read[OTHER].run.values()) > 0


def test_the_largest_possible_row_of_one_name_fits() -> None:
    huge = tally(10**15, BUCKETS)

    assert len(encode_row({OTHER: huge, "x" * 128: huge})) <= ROW_BYTES_MAX


def test_adding_leaves_the_added_tallies_alone() -> None:
    added = {"mail": tally(1)}
    into = {"mail": tally(2)}

    add_tallies(into, added)
    add_tallies(into, added)

    assert (into["mail"].ended, added["mail"].ended) == (4, 1)
    assert added["mail"].run == {0: 1}
