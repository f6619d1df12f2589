"""Changes of many jobs that the user or the server refuses."""

from __future__ import annotations

import io
import signal
from typing import Any

import pytest

from schedo.cli import bulk, main
from tests.cli.conftest import Call
from tests.cli.test_bulk import arrange, operation
from tests.client.server import FakeServer


def test_of_two_limits_the_refusal_names_the_one_that_was_not_met(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_POLL_S", 0)
    args = ("jobs", "cancel", "--queue", "mail", "--max-jobs", "2000", "--expected-count", "40")
    arrange(
        server,
        operation(state="refused", max_jobs=2_000, expected_count=40, matched=0, done=0),
    )

    result = schedo(*args, "--yes")

    assert result.stderr == "1,234 jobs match, not 40 as expected; none was changed\n"


@pytest.mark.parametrize("action", ["cancel", "retry", "run", "delete"])
def test_an_operation_takes_one_state_as_its_help_says(
    server: FakeServer, schedo: Call, action: str
) -> None:
    result = schedo("jobs", action, "--state", "failed,cancelled", "--yes")

    assert result.exit_code == 2
    assert "'--state': give one state; begin an operation for each" in result.stderr
    assert "STATE[,...]" not in schedo("jobs", action, "--help").stdout
    assert server.requests == []


class InterruptedInput(io.BytesIO):
    """A terminal at which the user types Ctrl-C."""

    def read1(self, size: int | None = -1, /) -> bytes:
        raise KeyboardInterrupt


def test_ctrl_c_at_the_question_ends_the_command_as_sigint_does(
    server: FakeServer, schedo: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange(server)
    ended_by: list[signal.Signals] = []
    monkeypatch.setattr(main, "_end_by", ended_by.append)
    monkeypatch.setattr(bulk, "_can_ask", lambda: True)

    call: Any = schedo
    call("jobs", "cancel", "--queue", "mail", input=InterruptedInput())

    assert ended_by == [signal.SIGINT]
    assert len(server.requests) == 1
