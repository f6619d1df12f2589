"""Types of option values that are checked before anything is sent.

A value of the wrong form is a mistake in the command line, so the exit code is 2.
"""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.json_text import parse_json
from schedo.cli.times import parse_time, read_now
from schedo.core import limits
from schedo.protocol.times import parse_duration


class JsonValue(click.ParamType[object]):
    """A JSON value. With `takes_text`, a plain word is a text, and digits are a number."""

    name = "json"

    def __init__(self, *, takes_text: bool = False) -> None:
        self._takes_text = takes_text

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value  # click converts a default value twice
        if self._takes_text and not value.startswith(("{", "[")):
            return int(value) if value.isascii() and value.isdigit() else value
        try:
            return parse_json(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KeepValue(click.ParamType[object]):
    """How long ended jobs are kept: `completed=1h,failed=30d`, or a JSON object.

    With `word`, also this word, as it is: the caller gives it a meaning.
    """

    name = "keep"

    def __init__(self, word: str | None = None) -> None:
        self._word = word

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if value == self._word:
            return value
        if not isinstance(value, str) or value.startswith("{"):
            return JsonValue().convert(value, param, ctx)
        times: dict[str, str] = {}
        for part in value.split(","):
            state, equals, time = part.partition("=")
            if not equals:
                self.fail(f"{part!r} is no time; write it as completed=1h,failed=30d", param, ctx)
            times[state.strip()] = DURATION.convert(time.strip(), param, ctx)
        return times


class TimeValue(click.ParamType[str]):
    """A time in local notation, converted to RFC 3339 for the server."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return parse_time(str(value), read_now())
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CronValue(click.ParamType[str]):
    """A cron expression, of which the server checks everything but that it is in quotes."""

    name = "cron"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if len(str(value).split()) == 1 and not str(value).strip().startswith("@"):
            self.fail(
                f"{value!r} is only one field; put the expression in quotes, as in '30 2 * * *',"
                " or the shell splits it and turns * into names of files",
                param,
                ctx,
            )
        return str(value)


class DurationValue(click.ParamType[str]):
    """A duration, which the server gets as the user wrote it."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


DURATION = DurationValue()
TIME = TimeValue()
PRIORITY = click.IntRange(limits.PRIORITY_MIN, limits.PRIORITY_MAX)
CRON = CronValue()
