"""Declaring tasks: valid functions and valid names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.tasks.arguments import Arguments
from schedo.tasks.registry import Registry, TaskSpec, check_function


async def ticks() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "a task must be a function"),
        (int, "a task must be a function"),
        (ticks, "must not be a generator"),
    ],
    ids=["number", "class", "generator"],
)
def test_an_invalid_task_function_is_refused(function: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_function(function)


@pytest.mark.parametrize(
    ("name", "message"), [("shell", "name of a built-in task"), ("send", "two tasks named 'send'")]
)
def test_a_task_name_that_is_taken_is_refused(name: str, message: str) -> None:
    registry = Registry()
    registry.add_task(TaskSpec("send", print, Arguments("send", lambda: None)))

    with pytest.raises(ValueError, match=message):
        registry.add_task(TaskSpec(name, print, Arguments("send", lambda: None)))
