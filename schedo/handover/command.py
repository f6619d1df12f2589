"""How a server process was started, so that a new one can be started in the same way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

VARIABLE = "HANDOVER_FDS"  # of the new process: its end of the link, and the true standard error
# What only one start does; an upgrade must not repeat it.
_ONCE = frozenset({"--accept-loss", "--resume"})


class Command(NamedTuple):
    """How this process was started."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str

    @classmethod
    def of_this_process(
        cls, arguments: Sequence[str], executable: str, environment: Mapping[str, str]
    ) -> Command:
        """Return the command; `arguments` begin with the name of the interpreter.

        The directory keeps the name that the shell has for it: if that is a link, it may lead to
        the directory of a new release by now.
        """
        directory = environment.get("PWD", "")
        try:
            is_named = os.path.samefile(directory, ".")
        except OSError:
            is_named = False
        again = [each for each in arguments[1:] if each not in _ONCE]
        return cls([executable, *again], dict(environment), directory if is_named else os.getcwd())
