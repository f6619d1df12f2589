"""The table of the built-in tasks."""

from __future__ import annotations

import pytest

from schedo.core.built_in import find_isolated, find_permissions, may_run


class Settings:
    """The settings of a machine that allows commands or not."""

    def __init__(self, allow_shell: bool) -> None:
        self.allow_shell = allow_shell


@pytest.mark.parametrize(
    ("task", "allow_shell", "expected"),
    [
        ("shell", False, False),
        ("shell", True, True),
        ("http", False, True),
        ("of-an-application", False, True),
    ],
)
def test_shell_is_the_only_built_in_task_that_needs_a_permission(
    task: str, allow_shell: bool, expected: bool
) -> None:
    assert may_run(task, find_permissions(Settings(allow_shell))) is expected


def test_poison_suspects_of_built_in_tasks_may_run_beside_other_jobs() -> None:
    assert find_isolated(["http", "shell", "of-an-application"]) == {"http", "shell"}
