"""How this program starts itself again: as a child process, and as the next server of an upgrade;
and how it gets the packages of an extra.

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


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, such as grpc, for an error."""
    in_a_clone = f"in a clone of schedo: pip install '.[{extra}]'"
    if is_binary():
        version = ".".join(map(str, sys.version_info[:2]))
        target = f"--target DIR, with Python {version}, and set PYTHONPATH=DIR for this binary"
        return f"{in_a_clone} {target}"
    return f"pip install 'schedo[{extra}]', or {in_a_clone}"
