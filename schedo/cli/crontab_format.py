"""Whether each line of a crontab names a user before its command, as in /etc/crontab.

Nothing in the file says so, and a wrong guess runs "root cd / && ..." as a command. So every line
counts as evidence, also one that cannot be taken over: a single bad line does not turn the others
into something else. Where the lines disagree, the person who imports the file decides.
"""

from __future__ import annotations

import pwd
import shutil
from pathlib import Path

import click

from schedo.cli.crontab import CrontabLine, list_entries

_NUMBERS_SHOWN = 5


def is_system_crontab(path: str, text: str) -> bool:
    """Say whether each line names a user; raise click.UsageError if the file does not tell."""
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
        raise _ask(
            f"line {_numbers(named)} could begin with a user ({users}), but line {_numbers(others)}"
            " begins with no user of this machine"
        )
    if any(entry.word == "root" for entry in named):
        return True
    # Debian has users named "backup" and "list", which are good names for a script, too.
    raise _ask(f"every line could begin with a user ({users}) or with a command")


def _ask(reason: str) -> click.UsageError:
    return click.UsageError(f"{reason}; say which with --system or --user-format")


def _numbers(entries: list[CrontabLine]) -> str:
    numbers = [str(entry.number) for entry in entries]
    more = " and others" if len(numbers) > _NUMBERS_SHOWN else ""
    return ", ".join(numbers[:_NUMBERS_SHOWN]) + more


def _names_user(word: str) -> bool:
    """Say whether the word can hardly be anything but a user: no command is called so."""
    return _is_user(word) and shutil.which(word) is None


def _is_user(word: str) -> bool:
    try:
        pwd.getpwnam(word)
    except (KeyError, ValueError):  # ValueError: bytes that no name has
        return False
    return True
