"""How this program starts itself again: as a child process, and as the next server of an upgrade.

Python runs it from its modules, or it is the one file that `make binary` makes. That file holds
Python as a library, so it takes none of an interpreter's options; but it runs a module that
`-m MODULE` names (deploy/binary/main.py).
"""

from __future__ import annotations

import sys


def is_binary() -> bool:
    """Return whether this is the binary (PyInstaller sets `sys.frozen`)."""
    return bool(getattr(sys, "frozen", False))


def module_command(name: str, *interpreter: str) -> list[str]:
    """Return the command that runs a module of schedo as `__main__`; its arguments may follow.

    The arguments of the interpreter are `-m` and the name, or others that come to the same, such as
    options and the path of the module.
    """
    if is_binary() or not interpreter:
        return [sys.executable, "-m", name]
    return [sys.executable, *interpreter]


def executable_of_a_new_version() -> str:
    """Return the file that a new version of this program replaces: the interpreter, or the binary.

    The binary runs from a directory to which it has unpacked itself, and has its own path as
    the first argument.
    """
    return sys.orig_argv[0] if is_binary() else sys.executable
