"""The tasks that workers have offered, and the hint at the one that was probably meant."""

from __future__ import annotations

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


def test_a_name_is_compared_with_the_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(known_tasks, "suggest", lambda name, _: compared.append(name) or "?")
    tasks = KnownTasks()
    assert [tasks.suggest("later") for _ in range(3)] == ["?"] * 3
    assert compared == ["later"]


def test_few_hints_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(known_tasks, "suggest", lambda name, _: compared.append(name) or "")
    monkeypatch.setattr(known_tasks, "_HINTS_MAX", 2)
    tasks = KnownTasks()
    for name in ("a", "b", "c", "c", "a"):
        tasks.suggest(name)
    assert compared == ["a", "b", "c", "a"]
