"""Parses a crontab file into entries, and reports the lines that cannot be imported.

The rules are those of Debian's crontab(5). A setting applies to the lines below it. In a command,
the first `%` ends the command and starts its standard input, in which each `%` is a line break;
`\\%` is a plain `%`. CRON_TZ sets the time zone of the lines below it (as in cronie); TZ is only a
variable of the commands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from schedo.core.cron import check_zone, parse_cron
from schedo.errors import Invalid

_DEFAULT_SHELL = "/bin/sh"
_SOURCE_CHARACTERS_MAX = 20
_COMMAND_CHARACTERS_MAX = 19
_FIELDS = 5
_SETTING = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)""")
_QUOTED = re.compile(r"""("[^"]*"|'[^']*')\s*\Z""")
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?\Z")
# A period in days or a macro, a delay in minutes, and an identifier that cannot be a day of month.
_ANACRON = re.compile(r"(?:[0-9]+|@[a-z]+)\s+[0-9]+\s+(?![0-9*,/?#LWH()-]+\s)[^\s=]+\s+\S", re.I)
_RUN_PARTS = re.compile(r"\brun-parts\b.* (/etc/cron\.(?:hourly|daily|weekly|monthly))\b")
_REDIRECTION = re.compile(r"\s*[0-9&]?[<>]")
_NO_UTF8 = re.compile("[\ud800-\udfff]")  # surrogateescape decodes invalid bytes to these
_TO_PERCENT = re.compile(r"(?:[^\\%]|\\.|\\\Z)*")


@dataclass(frozen=True, slots=True)
class CrontabEntry:
    """A line of a crontab that becomes a schedule."""

    line_number: int
    cron: str  # normalized
    tz: str | None  # None: the machine's own zone, as under cron
    command: str  # the shell runs it with -c
    user: str | None  # only lines of a system crontab name a user
    environment: dict[str, str]
    stdin: str | None
    name: str  # it depends only on the command, so that each import finds the same schedule

    @property
    def shell(self) -> str:
        return self.environment.get("SHELL", _DEFAULT_SHELL)


@dataclass(frozen=True, slots=True)
class CrontabProblem:
    """A line that is not imported, or a notice about a part of a line that has no effect."""

    line_number: int
    text: str
    reason: str
    is_notice: bool = False


@dataclass(slots=True)
class CrontabFile:
    """The content of a crontab file, in the order of its lines."""

    entries: list[CrontabEntry] = field(default_factory=list)
    problems: list[CrontabProblem] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # of all entries, even those with invalid times


@dataclass(frozen=True, slots=True)
class CrontabLine:
    """The first word after the time fields of a line: a user or a command."""

    number: int
    word: str
    has_more: bool  # other words follow it


def is_anacrontab(text: str) -> bool:
    """Return whether each line is one of anacron: period, delay, identifier, command.

    Settings do not count. All lines are checked, because some lines of an anacrontab are valid
    lines of a crontab, too.
    """
    entries = [line for _, line in _list_lines(text) if not _SETTING.match(line)]
    return bool(entries) and all(map(_ANACRON.match, entries))


def list_entries(text: str) -> list[CrontabLine]:
    """Return the lines that run a command, whether or not they can be imported."""
    found = []
    for number, line in _list_lines(text):
        with suppress(_BadLine):
            if not _SETTING.match(line):
                words = _split_times(line)[1].split(maxsplit=1)
                found.append(CrontabLine(number, "".join(words[:1]), len(words) > 1))
    return [each for each in found if each.word]


def _list_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is neither empty nor a comment."""
    for number, whole in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = whole.strip(" \t\r")
        if line and not line.startswith("#"):
            yield number, line


def slug_source(path: str) -> str:
    """Return what the names of a file's entries begin with."""
    return _slug(path.rstrip("/").rsplit("/", 1)[-1], _SOURCE_CHARACTERS_MAX)


def parse_crontab(
    text: str, *, system: bool, source: str, current_user: str | None = None
) -> CrontabFile:
    """Return the entries of a crontab; each line of a `system` crontab names a user.

    The names start with `source` and a dot. An entry of another user than
    `current_user` is returned with a notice; the caller decides what to do with it.
    """
    reader = _Reader(system, source, current_user)
    for number, line in _list_lines(text):
        reader.read(number, line)
    return reader.file


class _BadLine(Exception):
    """The line cannot be imported; the message gives the reason."""


class _Reader:
    """Reads line by line and keeps the settings of the lines above."""

    def __init__(self, system: bool, source: str, current_user: str | None) -> None:
        self.file = CrontabFile()
        self._system = system
        self._source = source
        self._current_user = current_user
        self._environment: dict[str, str] = {}
        self._tz: str | None = None
        self._bad_tz_line: int | None = None

    def read(self, number: int, line: str) -> None:
        try:
            _check_characters(line)
            if setting := _SETTING.match(line):
                self._read_setting(number, line, setting)
            else:
                self._read_entry(number, line)
        except _BadLine as error:
            shown = line.encode(errors="surrogateescape").decode(errors="replace")
            self.file.problems.append(CrontabProblem(number, shown, str(error)))

    def _read_setting(self, number: int, line: str, setting: re.Match[str]) -> None:
        name, value = setting[1].strip("\"'"), setting[2].rstrip()
        if value.startswith(('"', "'")):
            quoted = _QUOTED.match(value)
            if quoted is None:
                raise _BadLine("the closing quote of the value is missing, or text follows it")
            value = quoted[1][1:-1]
        if name in _MAIL:
            if value:  # an empty MAILTO turns mail off, and schedo sends none anyway
                self._note(number, line, f"{name} has no effect: schedo sends no mail")
            return
        if name == "CRON_TZ":
            self._set_zone(number, value)
            return
        if name == "TZ":
            self._note(
                number, line, "TZ is only passed to commands; CRON_TZ sets the zone of the times"
            )
        self._environment[name] = value

    def _set_zone(self, number: int, zone: str) -> None:
        self._tz, self._bad_tz_line = None, None
        if not zone:
            return
        try:
            check_zone(zone)
        except Invalid as error:
            self._bad_tz_line = number
            raise _BadLine(error.problems[0].detail) from None
        self._tz = zone

    def _read_entry(self, number: int, line: str) -> None:
        if _ANACRON.match(line):
            raise _BadLine("this is a line of an anacrontab: period, delay, identifier, command")
        times, rest = _split_times(line)
        user = None
        if self._system:
            user, rest = _split_user(rest)
        command, stdin = _split_command(rest)
        if not command:
            raise _BadLine("the line has no command")
        name = self._choose_name(f"{user}\n{command}\n{stdin}", command)
        self.file.names.add(name)
        cron = _check_times(times, name)
        if self._bad_tz_line is not None:
            raise _BadLine(f"the CRON_TZ of line {self._bad_tz_line} is not a known time zone")
        if (scripts := _RUN_PARTS.search(command)) is not None:
            self._note(
                number,
                line,
                f"it runs all scripts of {scripts[1]} as one job; schedo crontab import"
                f" {scripts[1]} makes a schedule of each",
            )
        if user is not None and user != self._current_user:
            self._note(
                number, line, f"cron runs it as {user}; schedo runs it as the server's own user"
            )
        environment = dict(self._environment)
        self.file.entries.append(
            CrontabEntry(number, cron, self._tz, command, user, environment, stdin, name)
        )

    def _note(self, number: int, line: str, reason: str) -> None:
        self.file.problems.append(CrontabProblem(number, line, reason, is_notice=True))

    def _choose_name(self, identity: str, command: str) -> str:
        """Return a unique name, made of the file's name, the command and a hash."""
        digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:8]
        name = first = f"{self._source}.{_slug_command(command)}-{digest}"
        count = 1
        while name in self.file.names:
            count += 1
            name = f"{first}-{count}"
        return name


def _check_characters(line: str) -> None:
    for character, name in (("\0", "a NUL character"), ("\r", "a carriage return")):
        if character in line:
            raise _BadLine(f"the line contains {name}")
    if wrong := _NO_UTF8.search(line):
        raise _BadLine(f"character {wrong.start() + 1} is a byte that is not UTF-8")


def _slug(text: str, characters_max: int) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text)[:characters_max].strip("-.") or "crontab"


def _slug_command(command: str) -> str:
    """Return the command without folders and redirections; of a long one the first and last word.

    The last one tells the lines apart that run different scripts in the same way.
    """
    words = [word.rstrip("/").rsplit("/", 1)[-1] for word in _REDIRECTION.split(command)[0].split()]
    words = [word for word in words if re.search(r"[A-Za-z0-9]", word)]
    names = [word for word in words if not word.startswith("-")]
    if len(" ".join(words)) > _COMMAND_CHARACTERS_MAX and len(names) > 1:
        words = [names[0][: _COMMAND_CHARACTERS_MAX // 2], names[-1]]
    return _slug(" ".join(words), _COMMAND_CHARACTERS_MAX)


def _split_times(line: str) -> tuple[str, str]:
    words = 1 if line.startswith("@") else _FIELDS
    parts = line.split(maxsplit=words)
    if len(parts) < words:
        raise _BadLine("the line is neither NAME=value nor five time fields and a command")
    return " ".join(parts[:words]), "".join(parts[words:])


def _split_user(rest: str) -> tuple[str, str]:
    user, *command = rest.split(maxsplit=1) or [""]
    if not _USER.match(user):
        raise _BadLine(
            f"{user!r} is not a user name; in a system crontab a user precedes each command"
        )
    return user, "".join(command)


def _split_command(rest: str) -> tuple[str, str | None]:
    """Return the command and its standard input, by the rules of Debian's cron."""
    whole = _TO_PERCENT.match(rest)
    assert whole is not None, "the pattern also matches nothing"
    command = re.sub(r"\\([%\\])", r"\1", whole[0]).strip()
    given = rest[whole.end() + 1 :]
    if not given:
        return command, None
    stdin = re.sub(r"\\?%", lambda found: "\n" if found[0] == "%" else "%", given)
    return command, stdin if stdin.endswith("\n") else f"{stdin}\n"


def _check_times(times: str, name: str) -> str:
    """Return the cron expression in its normalized form; raise _BadLine if it is not valid."""
    if times.lower() == "@every":
        raise _BadLine("a crontab has no @every; use: schedo schedules put NAME --every DURATION")
    try:
        parsed = parse_cron(times, seed=name)
    except Invalid as error:
        raise _BadLine(error.problems[0].detail) from None
    assert parsed.normalized is not None, "only @every has no fields"
    return parsed.normalized
