"""What declares a named expectation, and what its declarations do."""

from __future__ import annotations

import pytest

from schedo.core import expectation_table
from schedo.core.commands import PutEffect
from schedo.core.expectation_table import DeclareExpectations, DeleteExpectation, PutExpectation
from schedo.core.expectations import Expectation, ExpectationSpec
from schedo.core.model import Expect
from schedo.errors import Conflict, NotFound
from tests.core.builders import HOUR, T0, every
from tests.core.server import Server

FILE = "file:jobs.toml"


def spec(name: str = "laptop", within_us: int = HOUR) -> ExpectationSpec:
    return ExpectationSpec(name, every(3_600), Expect(within_us=within_us))


def declare(
    server: Server, *specs: ExpectationSpec, removed: tuple[str, ...] = (), owner: str = FILE
) -> list[tuple[str, PutEffect]]:
    """Declare the expectations; return what that did by name."""
    done = server.apply(DeclareExpectations(owner, specs, removed), T0)
    server.round(T0)
    return [(each.expectation.name, each.effect) for each in done]


def owners(server: Server) -> dict[str, str]:
    """Return the owners in the store, by the name of the expectation."""
    stored = [each for each in server.store.expectations.values() if each is not None]
    return {each.name: each.owner for each in stored}


def test_a_declaration_creates_changes_and_removes_what_its_owner_has() -> None:
    server = Server()

    first = declare(server, spec("a"), spec("b"), spec("old"))
    second = declare(server, spec("a"), spec("b", 2 * HOUR), removed=("old",))

    created = PutEffect.CREATED
    assert first == [("a", created), ("b", created), ("old", created)]
    assert second == [
        ("a", PutEffect.UNCHANGED),
        ("b", PutEffect.CHANGED),
        ("old", PutEffect.REMOVED),
    ]
    assert owners(server) == {"a": FILE, "b": FILE}


def test_what_belongs_to_others_is_taken_over_but_not_removed() -> None:
    server = Server()
    server.apply(PutExpectation(spec("by-hand")), T0)
    declare(server, spec("theirs"), owner="file:other")

    done = declare(server, spec("by-hand"), removed=("theirs", "gone"))

    assert done == [("by-hand", PutEffect.UNCHANGED)]
    assert owners(server) == {"by-hand": FILE, "theirs": "file:other"}


def test_a_put_by_hand_keeps_the_owner() -> None:
    server = Server()
    declare(server, spec())

    known, effect = server.apply(PutExpectation(spec(within_us=2 * HOUR)), T0)

    assert (effect, known.owner, known.spec) == (PutEffect.CHANGED, FILE, spec(within_us=2 * HOUR))


def test_too_many_expectations_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 2)
    server = Server()
    declare(server, spec("a"))

    with pytest.raises(Conflict):
        server.apply(DeclareExpectations(FILE, [spec("a"), spec("b"), spec("c")]), T0)

    assert declare(server, spec("a"), spec("b")) == [
        ("a", PutEffect.UNCHANGED),
        ("b", PutEffect.CREATED),
    ]


def test_expectations_that_take_the_place_of_others_need_no_further_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 2)
    server = Server()
    declare(server, spec("a"), spec("b"))

    with pytest.raises(Conflict):  # one more than there is room for
        declare(server, spec("c"), spec("d"), spec("e"), removed=("a", "b"))
    with pytest.raises(Conflict):  # those of another owner stay
        declare(server, spec("c"), removed=("a",), owner="file:other")
    declare(server, spec("c"), spec("d"), removed=("a", "b"))

    assert owners(server) == {"c": FILE, "d": FILE}


def test_more_expectations_than_there_may_be_can_still_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    declare(server, spec("a"), spec("b"))
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 1)  # as with shards of two servers

    done = declare(server, spec("a", 2 * HOUR), spec("b"))

    assert done == [("a", PutEffect.CHANGED), ("b", PutEffect.UNCHANGED)]


def test_what_was_removed_is_gone() -> None:
    server = Server()
    declare(server, spec())
    declare(server, removed=("laptop",))

    with pytest.raises(NotFound):
        server.apply(DeleteExpectation("laptop"), T0)


def test_a_record_without_an_owner_was_put_by_hand() -> None:
    assert Expectation(1, "e", False, every(60), Expect(), T0, T0, T0, T0).owner == "api"
