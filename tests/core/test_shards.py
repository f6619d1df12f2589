"""Which shard a text belongs to, and which server should own each shard."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.shards import SHARDS, assign, shard_of

MEMBERS = st.sets(st.integers(1, 61), min_size=1, max_size=SHARDS)
OWNERS = st.dictionaries(st.integers(0, SHARDS - 1), st.integers(1, 61))


@pytest.mark.parametrize(
    ("text", "shard"), [("", 25), ("nightly", 24), ("schlüssel", 11), ("a" * 1_000, 28)]
)
def test_a_text_has_the_same_shard_forever(text: str, shard: int) -> None:
    assert shard_of(text) == shard


def test_texts_spread_over_all_shards() -> None:
    counts = Counter(shard_of(f"key {number}") for number in range(32_000))

    assert len(counts) == SHARDS
    assert max(counts.values()) < 1.2 * min(counts.values())


@given(MEMBERS, OWNERS)
def test_members_own_equally_many_shards(members: set[int], owners: dict[int, int]) -> None:
    counts = Counter(assign(members, owners).values())

    assert sum(counts.values()) == SHARDS
    assert set(counts) == members
    assert max(counts.values()) - min(counts.values()) <= 1


@given(MEMBERS, OWNERS)
def test_an_assignment_that_was_carried_out_stays(
    members: set[int], owners: dict[int, int]
) -> None:
    assigned = assign(members, owners)

    assert assign(members, assigned) == assigned


@given(MEMBERS, OWNERS)
def test_members_are_given_the_same_shards_in_whatever_order_they_are_known(
    members: set[int], owners: dict[int, int]
) -> None:
    assert assign(sorted(members), owners) == assign(sorted(members, reverse=True), owners)


@given(MEMBERS, st.integers(1, 61))
def test_a_shard_moves_only_to_the_server_that_joins(members: set[int], new: int) -> None:
    before = assign(members - {new} or {62}, {})
    joined = {*before.values(), new}

    after = assign(joined, before)

    moved = [shard for shard in after if after[shard] != before[shard]]
    assert {after[shard] for shard in moved} <= {new}
    assert len(moved) == Counter(after.values())[new]


@given(MEMBERS)
def test_only_the_shards_of_a_server_that_leaves_move(members: set[int]) -> None:
    before = assign(members | {62}, {})

    after = assign(members, before)

    assert all(after[shard] == owner for shard, owner in before.items() if owner != 62)


def test_without_a_member_no_shard_has_an_owner() -> None:
    assert assign([], {0: 1}) == {}
