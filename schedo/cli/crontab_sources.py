"""The crontabs that one import reads: a file, stdin, a directory of crontabs or one of scripts.

cron takes only files whose names have no dot (run-parts(8)), and of scripts only executable ones.
A directory such as /etc/cron.daily holds scripts; Debian's /etc/crontab says when they run.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import click

from schedo.cli.crontab import CrontabProblem, is_anacrontab, slug_source
from schedo.cli.crontab_format import is_system_crontab
from schedo.protocol.fields import is_name

_BYTES_MAX = 1_048_576
_NAME_CHARACTERS_MAX = 64  # the command follows in the name of a schedule
_NAME_FOR_CRON = re.compile(r"[A-Za-z0-9_-]+\Z")
_SCRIPT_TIMES = {
    "cron.hourly": "17 * * * *",
    "cron.daily": "25 6 * * *",
    "cron.weekly": "47 6 * * 7",
    "cron.monthly": "52 6 1 * *",
}


class CrontabSource(NamedTuple):
    """A crontab to import."""

    path: str
    prefix: str  # what the names of its schedules begin with
    text: str
    is_system: bool  # each line names a user


class CrontabImport(NamedTuple):
    """All crontabs of one import. owner: of the schedules; ignored: files that cron ignores, too"""

    owner: str
    sources: list[CrontabSource]
    ignored: list[CrontabProblem]


def read_sources(path: str, name: str | None, is_system: bool | None) -> CrontabImport:
    """Return what there is to import at a path; "-" is stdin.

    name: of the crontab, in place of that of the file. Raise click.UsageError for a wrong one.
    """
    if name is None and path == "-":
        raise click.UsageError(
            "a crontab from stdin has no name: give one with --name, such as that of its host;"
            " another import with this name replaces it"
        )
    if name is not None and not (is_name(name) and len(name) <= _NAME_CHARACTERS_MAX):
        raise click.BadParameter(
            f"it has 1 to {_NAME_CHARACTERS_MAX} letters, digits, dots, underscores and hyphens",
            param_hint="--name",
        )
    owner = f"crontab:{name or _name_place(path)}"
    try:
        if not os.path.isdir(path):
            source = _read(path, name or slug_source(path), is_system)
            return CrontabImport(owner, [source], [])
        files = _list_files(path)
        times = _SCRIPT_TIMES.get(Path(path).absolute().name)
        ignored = [_ignore(file, times is not None) for file in files]
        taken = [file for file, reason in zip(files, ignored, strict=True) if reason is None]
        prefix = name or slug_source(path)
        if times is not None:
            sources = [_schedule_scripts(path, prefix, taken, times)]
        else:
            sources = [_read(f, _prefix(name, f), is_system) for f in map(str, taken)]
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}") from error
    return CrontabImport(owner, sources, [each for each in ignored if each is not None])


def _name_place(path: str) -> str:
    absolute = os.path.abspath(path).encode("utf-8", "replace").decode()
    return f"{socket.gethostname()}/{absolute.removeprefix('/')}"


def _prefix(name: str | None, path: str) -> str:
    return slug_source(path) if name is None else f"{name}.{slug_source(path)}"


def _list_files(path: str) -> list[Path]:
    return sorted(file for file in Path(path).iterdir() if not file.name.startswith("."))


def _ignore(file: Path, is_script: bool) -> CrontabProblem | None:
    """Return why cron ignores the file in a directory, or None."""
    reason = None
    if not file.is_file():
        reason = "it is no file"
    elif not _NAME_FOR_CRON.match(file.name):
        reason = "cron ignores it, because its name has other characters than A-Z a-z 0-9 _ -"
    elif is_script and not os.access(file, os.X_OK):
        reason = "run-parts ignores it, because it is not executable"
    return None if reason is None else CrontabProblem(0, str(file), reason, is_notice=True)


def _schedule_scripts(path: str, prefix: str, files: list[Path], times: str) -> CrontabSource:
    """Return the crontab that runs each script at the time of Debian's /etc/crontab."""
    commands = (shlex.quote(str(file.absolute())).replace("%", r"\%") for file in files)
    text = "".join(f"{times} root {command}\n" for command in commands)
    return CrontabSource(path, prefix, text, is_system=True)


def _read(path: str, prefix: str, is_system: bool | None) -> CrontabSource:
    if path == "-":
        data = sys.stdin.buffer.read(_BYTES_MAX + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise click.BadParameter(f"{path} is larger than {_BYTES_MAX} bytes; it is not a crontab")
    text = data.decode("utf-8", "surrogateescape")
    if is_anacrontab(text):
        raise click.BadParameter(
            f"{path} is an anacrontab (period, delay, identifier, command), not a crontab; create"
            " a schedule for each line: schedo schedules put NAME --cron @daily -- COMMAND"
        )
    if is_system is None:
        is_system = is_system_crontab(path, text)
    return CrontabSource(path, prefix, text, is_system)
