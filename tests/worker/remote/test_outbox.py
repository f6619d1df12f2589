"""The outbox keeps messages until they are confirmed; a bad message does not block the others."""

from __future__ import annotations

import json

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
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


KEY = LeaseKey(1, 1, 1)


def sent(messages: list[Message]) -> list[tuple[str, object]]:
    return [(message.field, json.loads(message.body).get("percent")) for message in messages]


def test_progress_that_waits_is_one_message_for_each_attempt() -> None:
    outbox = Outbox()
    for percent in range(100):
        outbox.add_progress(KEY, ProgressUpdate(float(percent)))
        outbox.put_back(outbox.take())  # the server is away
    outbox.add_progress(LeaseKey(2, 1, 1), ProgressUpdate(5.0))
    outbox.add(Message("results", "a", b"{}"))

    assert len(outbox) == 3
    assert sent(outbox.take()) == [("results", None), ("progress", 99.0), ("progress", 5.0)]
    assert not outbox.has_messages


def test_progress_that_did_not_arrive_is_older_than_what_waits() -> None:
    outbox = Outbox()
    outbox.add_progress(KEY, ProgressUpdate(1.0, "begun", "line 1"))
    taken = outbox.take()
    outbox.add_progress(KEY, ProgressUpdate(2.0, None, "line 2"))

    outbox.put_back(taken)

    (message,) = outbox.take()
    assert message.progress == (KEY, ProgressUpdate(2.0, "begun", "line 1\nline 2"))


def test_progress_that_is_refused_alone_is_dropped() -> None:
    outbox = Outbox()
    outbox.add_progress(KEY, ProgressUpdate(1.0))

    outbox.refuse(outbox.take(), REFUSAL)

    assert (len(outbox), outbox.has_messages) == (0, False)
