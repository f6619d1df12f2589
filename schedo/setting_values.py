"""The values of settings: each function reads one kind, or raises ValueError.

A value comes from a file, the environment or a flag, so a number may be a text.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence

from schedo.core.lateness import DURATION_BOUNDS_US
from schedo.protocol.public_url import PublicUrl, parse_public_url
from schedo.protocol.times import parse_duration, render_duration
from schedo.tasks.targets import explain_path


def read_text(value: object) -> str:
    """Return the text without spaces around it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected a non-empty text")
    if any(ord(character) < 32 for character in value):
        raise ValueError("expected a text without control characters")
    return value.strip()


UNIX = "unix:"
_UNIX_PATH_BYTES_MAX = 107  # sun_path of unix(7), without its end


def unix_path(host: str) -> str | None:
    """Return the path of a host such as unix:/run/schedo/api.sock; None for any other host."""
    return host.removeprefix(UNIX) if host.startswith(UNIX) else None


def read_host(value: object) -> str:
    """Return a host, or unix: and the absolute path of a Unix socket."""
    text = read_text(value)
    path = unix_path(text)
    if path is None:
        return text
    if not os.path.isabs(path) or path.endswith("/"):
        raise ValueError("expected the absolute path of a file, as in unix:/run/schedo/api.sock")
    if len(os.fsencode(path)) > _UNIX_PATH_BYTES_MAX:
        raise ValueError(f"the path of a Unix socket has at most {_UNIX_PATH_BYTES_MAX} bytes")
    return text


def read_mode(value: object) -> str:
    """Return the permissions of a file as octal digits, such as 0660."""
    text = str(value).strip() if isinstance(value, str) else ""
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError('expected octal digits as a text, as in "0660"')
    return text


def read_number(low: int, high: int) -> Callable[[object], int]:
    """Return the parser of a whole number from `low` to `high`."""

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return value

    return parse


_SWITCH = {"1": True, "true": True, "yes": True, "on": True}
_SWITCH |= {"0": False, "false": False, "no": False, "off": False}


def read_switch(value: object) -> bool:
    """Return whether the value means yes."""
    flag = value if isinstance(value, bool) else _SWITCH.get(str(value).strip().lower())
    if flag is None:
        raise ValueError("expected true or false")
    return flag


def read_choice(*words: str) -> Callable[[object], str]:
    """Return the parser of one of the words."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value.strip().lower() not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return value.strip().lower()

    return parse


def read_duration(value: object) -> int:
    """Return the duration in microseconds."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError('expected a duration like "90s", "1h30m" or a number of seconds')
    return parse_duration(value)


def read_objective(value: object) -> int:
    """Return a bound of the histograms of durations, in microseconds."""
    us = read_duration(value)
    if us not in DURATION_BOUNDS_US:
        raise ValueError(f"expected one of {', '.join(map(render_duration, DURATION_BOUNDS_US))}")
    return us


def read_app(value: object) -> str:
    """Return the name of an application, as in myapp:app."""
    text = read_text(value)
    explained = explain_path(text)
    if explained is not None:
        raise ValueError(explained)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        raise ValueError("expected module:name, as in myapp:app")
    return text


def read_list_of(parse: Callable[[str], str]) -> Callable[[object], tuple[str, ...]]:
    """Return the parser of a list, or of a text with commas."""

    def parse_list(value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
            raise ValueError("expected a list of texts")
        return tuple(parse(item.strip()) for item in items)

    return parse_list


_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


def read_host_name(text: str) -> str:
    """Return the host name in lower case; it may begin with `*.`."""
    if not re.fullmatch(rf"(\*\.)?{_NAME}|\[?[0-9A-Fa-f:.]+\]?", text):
        raise ValueError(f"{text!r} is not a host name (no scheme, no port, no path)")
    return text.lower()


def read_url(value: object) -> str:
    """Return an http or https URL."""
    from schedo.tasks.http.payload import parse_url  # only servers with such a setting need it

    text = read_text(value)
    parse_url(text)
    return text


def read_public_url(value: object) -> PublicUrl:
    """Return the parts of an http or https URL of a host and a path."""
    return parse_public_url(read_text(value))


def read_target(text: str) -> str:
    """Return a host, host:port, [v6]:port, an address or a CIDR block."""
    try:
        return str(ipaddress.ip_network(text)) if "/" in text else str(ipaddress.ip_address(text))
    except ValueError:
        if re.fullmatch(rf"({_NAME}|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?", text):
            return text.lower()
    raise ValueError(f"{text!r} is not a host, host:port or CIDR block")
