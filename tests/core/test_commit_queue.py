"""The commit queue: items are released by the commit that follows them."""

from __future__ import annotations

from schedo.core.commit_queue import CommitQueue


def test_an_item_is_released_by_its_own_commit() -> None:
    queue: CommitQueue[str] = CommitQueue()
    queue.add("a")
    assert (queue.take(), queue.new) == ([], ["a"])

    queue.begin_commit()
    queue.add("b")
    queue.committed()

    assert (queue.take(), queue.take(), queue.new) == (["a"], [], ["b"])


def test_items_of_two_commits_are_taken_in_order() -> None:
    queue: CommitQueue[str] = CommitQueue()
    for item in "ab":
        queue.add(item)
        queue.begin_commit()
        queue.committed()

    assert queue.take() == ["a", "b"]
    assert queue.new == []
