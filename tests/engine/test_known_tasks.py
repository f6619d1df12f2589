"""The tasks that workers have offered, and the hint at the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from schedo.engine import known_tasks
from schedo.engine.known_tasks import KnownTasks


def test_a_hint_follows_the_workers_that_have_come_since() -> None:
    tasks = KnownTasks()
    assert tasks.suggest("send_emial") == ""
    tasks.note({"send_email"})
    assert tasks.suggest("send_emial") == "; did you mean send_email?"
    tasks.note({"send_emial"})
    assert tasks.suggest("send_emial") == ""


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were compared with all others."""
    names: list[str] = []

    def suggest(name: str, known: Iterable[str]) -> str:
        names.append(name)
        return "?"

    monkeypatch.setattr(known_tasks, "suggest", suggest)
    return names


def test_a_name_is_compared_with_the_others_once(compared: list[str]) -> None:
    tasks = KnownTasks()
    assert [tasks.suggest("later") for _ in range(3)] == ["?"] * 3
    assert compared == ["later"]


def test_few_hints_are_remembered(compared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tasks, "_HINTS_MAX", 2)
    tasks = KnownTasks()
    for name in ("a", "b", "c", "c", "a"):
        tasks.suggest(name)
    assert compared == ["a", "b", "c", "a"]
