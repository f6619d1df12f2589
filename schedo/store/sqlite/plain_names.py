"""Functions of SQL for searches in payloads: their names without escapes, and their text.

SQLite 3.40 compares the names of a path with those of the text as they are written, so that it does
not find `größe` in `{"gr\\u00f6\\u00dfe": 1}`, which many encoders write.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable

from schedo.core.built_in import SECRETS, show_payload
from schedo.store.conditions import is_one_of_tasks

# Few payloads have one of these escapes; the others are searched as they are. A name of a path has
# no quotes, no backslashes and no control characters, so it can be written with no others.
_HAS_ASCII = "CAST(payload AS TEXT) GLOB '*\\u00[0-7]*'"
_HAS_ANY = "(instr(payload, x'5C75') > 0 OR instr(payload, x'5C2F') > 0)"
PLAIN_PAYLOAD = "plain_json(payload)"
# What a search for a text sees of a payload: not the secret of a built-in task.
SEARCHED_PAYLOAD = (
    f"CASE WHEN {is_one_of_tasks(SECRETS)} THEN searched_json(task, payload)"
    " ELSE CAST(payload AS TEXT) END"
)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


def has_escapes(names: Iterable[str]) -> str:
    """Return the condition on a payload that may have one of the names with escapes."""
    is_plain = all(name.isascii() and "/" not in name for name in names)
    return _HAS_ASCII if is_plain else _HAS_ANY


def plain_json(payload: bytes) -> str:
    """Return the JSON text with as few escapes as it can have; numbers stay as they are."""
    return _STRING.sub(_write_plainly, payload.decode())


def _write_plainly(string: re.Match[str]) -> str:
    text = string[0]
    return json.dumps(json.loads(text), ensure_ascii=False) if "\\" in text else text


def add_functions(connection: sqlite3.Connection) -> None:
    """Let the connection call the functions of searches."""
    connection.create_function("plain_json", 1, plain_json, deterministic=True)
    connection.create_function("searched_json", 2, _searched_json, deterministic=True)


def _searched_json(task: str, payload: bytes | None) -> str | None:
    return None if payload is None else show_payload(task, payload).decode()
