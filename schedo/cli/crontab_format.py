"""Detects whether the lines of a crontab name a user before the command, as in /etc/crontab.

The file does not declare its format, and a wrong guess would run "root cd / && ..." as a command.
So every line counts as evidence, even one that cannot be imported: one bad line must not change
how the others are read. If the lines contradict each other, the user must give an option.
"""

from __future__ import annotations

import pwd
import shutil
from pathlib import Path

import click

from schedo.cli.crontab import CrontabLine, list_entries

_NUMBERS_SHOWN = 5


def is_system_crontab(path: str, text: str) -> bool:
    """Return whether each line names a user; raise click.UsageError if this is ambiguous."""
    absolute = Path(path).absolute()
    if absolute.parent.name == "cron.d" or str(absolute) == "/etc/crontab":
        return True
    entries = list_entries(text)
    named = [entry for entry in entries if _names_user(entry.word)]
    if not any(entry.has_more for entry in named):
        return False
    users = ", ".join(sorted({entry.word for entry in named}))
    others = [entry for entry in entries if not _is_user(entry.word)]
    if others:
        raise _ambiguous(
            f"line {_numbers(named)}: a user ({users}) seems to precede the command, but"
            f" line {_numbers(others)} names no user of this machine"
        )
    if any(entry.word == "root" for entry in named):
        return True
    # Debian has users named "backup" and "list", and a script may have such a name, too.
    raise _ambiguous(f"the first word of every command could also be a user ({users})")


def _ambiguous(reason: str) -> click.UsageError:
    return click.UsageError(f"{reason}; use --system if each line names a user, else --user-format")


def _numbers(entries: list[CrontabLine]) -> str:
    numbers = [str(entry.number) for entry in entries]
    more = " and others" if len(numbers) > _NUMBERS_SHOWN else ""
    return ", ".join(numbers[:_NUMBERS_SHOWN]) + more


def _names_user(word: str) -> bool:
    """Return whether the word is the name of a user and not the name of a command."""
    return _is_user(word) and shutil.which(word) is None


def _is_user(word: str) -> bool:
    try:
        pwd.getpwnam(word)
    except (KeyError, ValueError):  # ValueError: bytes that no user name may contain
        return False
    return True
