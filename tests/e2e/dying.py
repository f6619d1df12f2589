"""`schedo`, but the old or the new process of an upgrade dies by SIGKILL at one of its steps.

DIES names the process and the step, such as "new frozen". The steps are what the processes log.
"""

import logging
import os
import signal

from schedo.cli.main import main
from schedo.handover.command import VARIABLE


class Killer(logging.Handler):
    """Kills this process when it logs the step."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self._message = f"handover: {step}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self._message:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    process, _, step = os.environ.get("DIES", "none ").partition(" ")
    if process == ("new" if VARIABLE in os.environ else "old"):
        logging.getLogger("schedo.handover").addHandler(Killer(step))
    main()
