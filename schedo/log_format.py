"""The formats of log lines: one line for each message, as text or JSON.

Characters that control a terminal, have no width or turn the direction of text are escaped. Child
processes write theirs in the same format as the server.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any, Literal

import orjson

LogFormat = Literal["text", "json"]
# The debug messages of these libraries contain SQL values, requests and addresses.
_LIBRARIES = ("aiosqlite", "asyncio", "concurrent", "httptools", "uvicorn", "uvloop")
# Those that join letters or emoji stay, because words of some languages need them.
_HIDDEN = r"\u200b\u2028-\u202e\u2060\u2066-\u2069\ufeff"
_UNSAFE = re.compile(rf"[\x00-\x1f\x7f-\x9f{_HIDDEN}]")


def quiet_libraries() -> None:
    """Log only warnings and errors of the libraries that schedo uses, at any log level."""
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def make_handler(form: LogFormat) -> logging.Handler:
    """Return a handler that writes to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(form))
    return handler


def make_formatter(form: LogFormat) -> logging.Formatter:
    """Return the formatter of log lines."""
    return JsonFormatter() if form == "json" else TextFormatter()


class TextFormatter(logging.Formatter):
    """Formats a record as "instant level logger: message"."""

    def format(self, record: logging.LogRecord) -> str:
        job = _job(record)
        of_job = f"job {job['job']} of task {job['task']}: " if job else ""
        level = record.levelname.lower()
        text = f"{_instant(record)} {level:7} {record.name}: {of_job}{_text(record)}"
        return _UNSAFE.sub(_escape, text)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object, with the members of its `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(_job(record))
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = logging.Formatter().formatException(record.exc_info)
        # An exception's text may contain lone surrogates, for example from file names.
        text = orjson.dumps({key: _clean(value) for key, value in line.items()}).decode()
        return _UNSAFE.sub(_escape_json, text)


def _job(record: logging.LogRecord) -> dict[str, Any]:
    """Return the job and the task of the handler that logged it, if one did."""
    job = getattr(record, "schedo_job", "-")
    return {} if job == "-" else {"job": job, "task": getattr(record, "schedo_task", "-")}


def _clean(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _instant(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += " | " + logging.Formatter().formatException(record.exc_info)
    return text


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def _escape_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"
