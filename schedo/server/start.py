"""What only one start of a server does, beside its settings."""

from __future__ import annotations

from typing import NamedTuple

from schedo.handover.command import Command


class Start(NamedTuple):
    """What only this start does.

    accept_loss: start although a part of the store is missing; the jobs in that part are lost.
    is_resuming: end the pauses of the server. is_pruning: delete the schedules that the code of the
    app no longer declares. has_test_clock: use a clock that only POST /v1/clock:advance moves.
    is_reloading: replace the child processes when a source file changes. command: how the process
    was started, for its upgrade; None: it is not known.
    """

    accept_loss: bool = False
    is_resuming: bool = False
    is_pruning: bool = False
    has_test_clock: bool = False
    is_reloading: bool = False
    command: Command | None = None


PLAIN_START = Start()
