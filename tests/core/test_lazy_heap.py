"""The lazy heap returns items in the order of their current keys."""

from __future__ import annotations

import random

from schedo.core.lazy_heap import Key, LazyHeap


def heap_of(keys: dict[str, Key]) -> LazyHeap[str]:
    heap: LazyHeap[str] = LazyHeap(keys.get)
    for item, key in keys.items():
        heap.push(item, key)
    return heap


def drain(heap: LazyHeap[str]) -> list[str]:
    found = []
    while (item := heap.pop()) is not None:
        found.append(item)
    return found


def test_the_item_with_the_smallest_key_comes_first() -> None:
    assert drain(heap_of({"b": (2,), "c": (3,), "a": (1,)})) == ["a", "b", "c"]


def test_an_item_whose_key_has_grown_sinks() -> None:
    keys: dict[str, Key] = {"a": (1,), "b": (2,), "c": (3,)}
    heap = heap_of(keys)

    keys["a"] = (9,)

    assert heap.first() == "b"
    assert drain(heap) == ["b", "c", "a"]


def test_an_item_without_a_key_leaves_and_comes_back_when_it_is_pushed() -> None:
    keys: dict[str, Key] = {"a": (1,), "b": (2,)}
    heap = heap_of(keys)

    del keys["a"]
    assert heap.first() == "b"
    assert len(heap) == 1
    keys["a"] = (1,)
    assert heap.first() == "b"
    assert heap.push("a", (1,))
    assert heap.first() == "a"


def test_a_smaller_bound_moves_an_item_forward_and_a_larger_one_changes_nothing() -> None:
    keys: dict[str, Key] = {"a": (5,), "b": (2,)}
    heap = heap_of(keys)

    keys["a"] = (1,)
    assert heap.push("a", (1,))
    assert not heap.push("a", (7,))

    assert drain(heap) == ["a", "b"]


def test_a_discarded_item_does_not_leave_the_heap_any_more() -> None:
    heap = heap_of({"a": (1,), "b": (2,)})

    heap.discard("a")
    heap.discard("nothing")

    assert drain(heap) == ["b"]


def test_items_of_equal_keys_are_never_compared() -> None:
    first, second = object(), object()
    heap: LazyHeap[object] = LazyHeap(lambda item: (1,))

    heap.push(first, (1,))
    heap.push(second, (1,))

    assert heap.pop() is first
    assert heap.pop() is second
    assert heap.pop() is None


def test_a_lazy_heap_has_at_most_twice_as_many_entries_as_items() -> None:
    keys: dict[str, Key] = {"a": (0,), "b": (-1_000_000,)}
    heap = heap_of(keys)

    for number in range(10_000):
        keys["a"] = (-number,)
        heap.push("a", (-number,))

    assert len(heap._heap) <= 2 * 2 + 17


def test_items_come_out_sorted_however_their_keys_change() -> None:
    draw = random.Random(1)
    keys: dict[int, Key] = {}
    heap: LazyHeap[int] = LazyHeap(keys.get)
    for _ in range(5_000):
        item = draw.randrange(20)
        key = (draw.randrange(100), item)
        match draw.randrange(4):
            case 0:
                keys.pop(item, None)
            case 1:
                keys[item] = max(key, keys.get(item, key))
                heap.push(item, keys[item])
            case 2:
                keys[item] = key
                heap.push(item, key)
            case _:
                expected = min(keys, key=lambda each: keys[each], default=None)
                assert heap.first() == expected
