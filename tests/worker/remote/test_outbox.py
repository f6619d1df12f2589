"""The outbox keeps messages until they are confirmed; a bad message does not block the others."""

from __future__ import annotations

import json

from schedo.errors import Invalid
from schedo.worker.remote.outbox import BATCH_BYTES_MAX, Message, Outbox

REFUSAL = Invalid("/results/0/result: the number does not fit")


def word(lease: str, size: int = 2) -> Message:
    return Message("results", lease, b'"' + b"x" * (size - 2) + b'"')


def filled(*leases: str) -> Outbox:
    outbox = Outbox()
    for lease in leases:
        outbox.add(word(lease))
    return outbox


def test_messages_are_sent_together_and_in_order() -> None:
    assert filled("a", "b", "c").take() == [word("a"), word("b"), word("c")]


def test_a_message_counts_until_it_is_confirmed() -> None:
    outbox = filled("a", "b")
    taken = outbox.take()

    assert (len(outbox), outbox.leases, outbox.has_messages) == (2, ["a", "b"], False)
    outbox.confirm(taken)
    assert (len(outbox), outbox.leases) == (0, [])


def test_messages_whose_request_failed_are_sent_first() -> None:
    outbox = filled("a", "b")
    taken = outbox.take()
    outbox.add(word("c"))

    outbox.put_back(taken)

    assert outbox.leases == ["a", "b", "c"]
    assert [each.lease for each in outbox.take()] == ["a", "b", "c"]


def test_a_batch_is_bounded_in_bytes_but_takes_one_message_of_any_size() -> None:
    outbox = Outbox()
    for lease in ("a", "b"):
        outbox.add(word(lease, BATCH_BYTES_MAX + 1))

    assert [len(outbox.take()), len(outbox.take()), len(outbox.take())] == [1, 1, 0]


def test_a_refused_batch_is_sent_one_by_one_and_later_messages_together() -> None:
    outbox = filled("a", "b")

    outbox.refuse(outbox.take(), REFUSAL)
    outbox.add(word("c"))
    outbox.add(word("d"))

    assert [len(outbox.take()) for _ in range(4)] == [1, 1, 2, 0]


def test_a_result_refused_alone_becomes_a_failure() -> None:
    outbox = filled("a")

    outbox.refuse(outbox.take(), REFUSAL)

    (instead,) = outbox.take()
    assert json.loads(instead.body) == {
        "lease": "a",
        "outcome": "failed",
        "error": {
            "type": "result-refused",
            "message": "the server refused the result: /results/0/result: the number does not fit",
        },
        "retryable": False,
    }


def test_a_replacement_that_is_refused_is_dropped() -> None:
    outbox = filled("a")
    outbox.refuse(outbox.take(), REFUSAL)
    outbox.refuse(outbox.take(), REFUSAL)

    assert (len(outbox), outbox.has_messages) == (0, False)
