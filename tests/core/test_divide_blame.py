"""Which attempts of a lost remote worker may have killed it."""

from __future__ import annotations

import pytest

from schedo.core.leases import Blame, Lease
from schedo.core.model import PLAIN, LeaseKey, Trigger
from schedo.core.outcomes import divide_blame

SOLE, SHARED, NONE = Blame.SOLE, Blame.SHARED, Blame.NONE


def lease(job_id: int, attempt: int = 1, *, task: str = "work", is_suspect: bool = False) -> Lease:
    key = LeaseKey(job_id, attempt, 1)
    return Lease(key, "far", task, "default", b"null", PLAIN, 0, Trigger.SUBMIT, 0, is_suspect)


@pytest.mark.parametrize(
    ("lost", "blames"),
    [
        ([], []),
        ([lease(1)], [SOLE]),
        ([lease(1), lease(2)], [NONE, NONE]),
        ([lease(1, 2), lease(2), lease(3, 5)], [SHARED, NONE, SHARED]),
        ([lease(1, 3, is_suspect=True), lease(2), lease(3, 2)], [SOLE, NONE, SHARED]),
        ([lease(1, task="shell")], [SOLE]),
        ([lease(1, 2, task="shell"), lease(2, 2, task="shell")], [NONE, NONE]),
        ([lease(1, 2, task="shell", is_suspect=True), lease(2)], [NONE, SOLE]),
    ],
    ids=[
        "no attempt",
        "one attempt",
        "first attempts",
        "repeated attempts",
        "a suspect and others",
        "an isolated attempt alone",
        "isolated attempts",
        "an isolated suspect and another",
    ],
)
def test_a_loss_is_counted_only_for_an_attempt_that_alone_can_have_caused_it(
    lost: list[Lease], blames: list[Blame]
) -> None:
    divided = divide_blame(lost, isolates=lambda task: task == "shell")

    assert list(divided.values()) == blames
