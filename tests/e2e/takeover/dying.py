"""`schedo`, but one of the two processes of an upgrade is killed at a step that a file names.

TAKEOVER_DEATH is the path of the file. It has the process and the step, such as "new frozen"; the
steps are what the processes log. Whichever process logs the step kills the one that must die, and
removes the file. Beside it, `PATH.done` has the pid and CLOCK_MONOTONIC of the kill.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from schedo.cli.main import main
from schedo.handover.command import VARIABLE

PATH_VARIABLE = "TAKEOVER_DEATH"


class Killer(logging.Handler):
    """Kills the old or the new process when this one logs the step."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._pids: dict[str, int] = {}
        if VARIABLE in os.environ:  # this is the new process
            self._pids = {"old": os.getppid(), "new": os.getpid()}

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if found := re.match(r"upgrade: process (\d+) starts", message):
            self._pids = {"old": os.getpid(), "new": int(found[1])}
        elif message.startswith("handover: "):
            self._note(message.removeprefix("handover: "))

    def _note(self, logged: str) -> None:
        with suppress(FileNotFoundError):
            process, step = self._path.read_text().split()
            if step == logged:
                self._path.unlink()
                pid = self._pids[process]
                self._path.with_suffix(".done").write_text(f"{pid} {time.monotonic()}")
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    logging.getLogger("schedo").addHandler(Killer(Path(os.environ[PATH_VARIABLE])))
    main()
