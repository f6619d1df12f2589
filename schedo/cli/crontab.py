"""Read a crontab file: which schedules it means, and what of it cannot be taken over.

The rules are those of Debian's crontab(5): settings apply to the lines below them; in a command the
first `%` ends it and starts its standard input, where each `%` is a new line; `\\%` is a plain `%`.
CRON_TZ sets the zone of the lines below it (cronie); TZ is only a variable of the commands.
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
_READABLE_CHARACTERS_MAX = 40
_FIELDS = 5
_SETTING = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)""")
_QUOTED = re.compile(r"""("[^"]*"|'[^']*')\s*\Z""")
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?\Z")
# Period in days or a macro, delay in minutes, an identifier (which no day of the month looks like).
_ANACRON = re.compile(r"(?:[0-9]+|@[a-z]+)\s+[0-9]+\s+(?![0-9*,/?#LWH()-]+\s)[^\s=]+\s+\S", re.I)
_NO_UTF8 = re.compile("[\ud800-\udfff]")  # how such bytes are decoded
_TO_PERCENT = re.compile(r"(?:[^\\%]|\\.|\\\Z)*")


@dataclass(frozen=True, slots=True)
class CrontabEntry:
    """One line that becomes a schedule."""

    line_number: int
    cron: str  # normalized
    tz: str | None  # None: the machine's own zone, which is what cron uses
    command: str  # for the shell, as `shell -c command`
    user: str | None  # system crontabs only
    environment: dict[str, str]
    stdin: str | None
    name: str  # the same at every import, as long as the command stays

    @property
    def shell(self) -> str:
        return self.environment.get("SHELL", _DEFAULT_SHELL)


@dataclass(frozen=True, slots=True)
class CrontabProblem:
    """A line that is not taken over; or, as a notice, one that is, but not with all it means."""

    line_number: int
    text: str
    reason: str
    is_notice: bool = False


@dataclass(slots=True)
class CrontabFile:
    """What a crontab file says, in the order of its lines."""

    entries: list[CrontabEntry] = field(default_factory=list)
    problems: list[CrontabProblem] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # of entries, and of lines with unusable times


@dataclass(frozen=True, slots=True)
class CrontabLine:
    """What stands behind the times of a line: its first word, and whether there is more."""

    number: int
    word: str
    has_more: bool


def is_anacrontab(text: str) -> bool:
    """Say whether all lines that run something are anacron's: period, delay, identifier, command.

    By themselves some of them can be read as lines of a crontab.
    """
    entries = [line for _, line in _list_lines(text) if not _SETTING.match(line)]
    return bool(entries) and all(map(_ANACRON.match, entries))


def list_entries(text: str) -> list[CrontabLine]:
    """Return the lines that run something, whether or not they can be taken over."""
    found = []
    for number, line in _list_lines(text):
        with suppress(_Unusable):
            if not _SETTING.match(line):
                words = _split_times(line)[1].split(maxsplit=1)
                found.append(CrontabLine(number, "".join(words[:1]), len(words) > 1))
    return [each for each in found if each.word]


def _list_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, with its number."""
    for number, whole in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = whole.strip(" \t\r")
        if line and not line.startswith("#"):
            yield number, line


def slug_source(source: str) -> str:
    """Return what the names of a file's entries begin with, before a dot."""
    return _slug(source.rstrip("/").rsplit("/", 1)[-1], _SOURCE_CHARACTERS_MAX)


def parse_crontab(
    text: str, *, system: bool, source: str, current_user: str | None = None
) -> CrontabFile:
    """Return the entries of a crontab; a system one names a user in each line.

    Names start with the last part of `source`. An entry for another user than the current one is
    returned all the same, with a notice: the caller decides.
    """
    reader = _Reader(system, source, current_user)
    for number, line in _list_lines(text):
        reader.read(number, line)
    return reader.file


class _Unusable(Exception):
    """The line cannot be taken over."""


class _Reader:
    """Reads line by line and keeps the settings made so far."""

    def __init__(self, system: bool, source: str, current_user: str | None) -> None:
        self.file = CrontabFile()
        self._system = system
        self._source = slug_source(source)
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
        except _Unusable as error:
            shown = line.encode(errors="surrogateescape").decode(errors="replace")
            self.file.problems.append(CrontabProblem(number, shown, str(error)))

    def _read_setting(self, number: int, line: str, setting: re.Match[str]) -> None:
        name, value = setting[1].strip("\"'"), setting[2].rstrip()
        if value.startswith(('"', "'")):
            quoted = _QUOTED.match(value)
            if quoted is None:
                raise _Unusable("the quotes around the value are not closed, or text follows them")
            value = quoted[1][1:-1]
        if name in _MAIL:
            if value:  # an empty MAILTO asks for no mail, which is what happens
                self._note(number, line, f"{name} is not taken over: schedo sends no mail")
            return
        if name == "CRON_TZ":
            self._set_zone(number, value)
            return
        if name == "TZ":
            self._note(
                number, line, "TZ only reaches the commands; CRON_TZ sets the zone of the times"
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
            raise _Unusable(error.problems[0].detail) from None
        self._tz = zone

    def _read_entry(self, number: int, line: str) -> None:
        if _ANACRON.match(line):
            raise _Unusable("it is a line of an anacrontab: period, delay, identifier, command")
        times, rest = _split_times(line)
        user = None
        if self._system:
            user, rest = _split_user(rest)
        command, stdin = _split_command(rest)
        if not command:
            raise _Unusable("there is no command")
        name = self._choose_name(f"{user}\n{command}\n{stdin}", command)
        self.file.names.add(name)
        cron = _check_times(times, name)
        if self._bad_tz_line is not None:
            raise _Unusable(f"its CRON_TZ, in line {self._bad_tz_line}, is not a known zone")
        if user is not None and user != self._current_user:
            self._note(number, line, f"in cron it runs as {user}, in schedo as schedo's own user")
        environment = dict(self._environment)
        self.file.entries.append(
            CrontabEntry(number, cron, self._tz, command, user, environment, stdin, name)
        )

    def _note(self, number: int, line: str, reason: str) -> None:
        self.file.problems.append(CrontabProblem(number, line, reason, is_notice=True))

    def _choose_name(self, identity: str, command: str) -> str:
        """Return a name that says the file and the command, and that no earlier line has."""
        digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:8]
        slug = _slug(command, _READABLE_CHARACTERS_MAX - len(self._source) - 1)
        name = first = f"{self._source}.{slug}-{digest}"
        count = 1
        while name in self.file.names:
            count += 1
            name = f"{first}-{count}"
        return name


def _check_characters(line: str) -> None:
    for character, name in (("\0", "a NUL character"), ("\r", "a carriage return")):
        if character in line:
            raise _Unusable(f"it contains {name}")
    if wrong := _NO_UTF8.search(line):
        raise _Unusable(f"its character {wrong.start() + 1} is a byte that is not UTF-8")


def _slug(text: str, characters_max: int) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text)[:characters_max].strip("-.") or "crontab"


def _split_times(line: str) -> tuple[str, str]:
    words = 1 if line.startswith("@") else _FIELDS
    parts = line.split(maxsplit=words)
    if len(parts) < words:
        raise _Unusable("it is neither a setting (NAME=value) nor five time fields and a command")
    return " ".join(parts[:words]), "".join(parts[words:])


def _split_user(rest: str) -> tuple[str, str]:
    user, *command = rest.split(maxsplit=1) or [""]
    if not _USER.match(user):
        raise _Unusable(
            f"{user!r} is not the name of a user; a system crontab has one before each command"
        )
    return user, "".join(command)


def _split_command(rest: str) -> tuple[str, str | None]:
    """Return the command and its standard input, as Debian's cron reads them."""
    whole = _TO_PERCENT.match(rest)
    assert whole is not None, "the pattern also matches nothing"
    command = re.sub(r"\\([%\\])", r"\1", whole[0]).strip()
    given = rest[whole.end() + 1 :]
    if not given:
        return command, None
    stdin = re.sub(r"\\?%", lambda found: "\n" if found[0] == "%" else "%", given)
    return command, stdin if stdin.endswith("\n") else f"{stdin}\n"


def _check_times(times: str, name: str) -> str:
    """Return the normalized expression."""
    if times.lower() == "@every":
        raise _Unusable("@every is no crontab time; put it as a schedule of its own")
    try:
        parsed = parse_cron(times, seed=name)
    except Invalid as error:
        raise _Unusable(error.problems[0].detail) from None
    assert parsed.normalized is not None, "only @every has no fields"
    return parsed.normalized
