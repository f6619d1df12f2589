"""Writes JSON data as TOML, as much of TOML as `schedo export` needs.

The standard library reads TOML, but does not write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class NotInTomlError(ValueError):
    """The data contains null, for which TOML has no value; `place` says where."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is null, for which TOML has no value")
        self.place = place


def render_toml(document: Mapping[str, Any]) -> str:
    """Return the document as TOML; each object in it is a table. Raise NotInTomlError."""
    return "\n".join(_render_table(document, ())).lstrip("\n") + "\n"


def _render_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    if path and (plain or not table):
        yield ""
        yield f"[{'.'.join(map(render_key, path))}]"
    for key, value in plain.items():
        yield f"{render_key(key)} = {_render_value(value, (*path, key))}"
    for key, value in table.items():
        if _is_table(value):
            yield from _render_table(value, (*path, key))


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def render_key(key: str) -> str:
    """Return a key, quoted if it has other characters than a bare key may have."""
    return key if _BARE_KEY.fullmatch(key) else _render_text(key)


def _render_value(value: Any, path: tuple[str, ...]) -> str:
    if value is None:
        raise NotInTomlError(".".join(path))
    if isinstance(value, str):
        return _render_text(value)
    if isinstance(value, Mapping):
        pairs = (f"{render_key(k)} = {_render_value(v, (*path, k))}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, list):
        items = [_render_value(each, (*path, str(at))) for at, each in enumerate(value)]
        return f"[{', '.join(items)}]"
    return json.dumps(value)  # true, false and numbers look alike


def _render_text(text: str) -> str:
    # The escapes of JSON are escapes of TOML, which also forbids a bare DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
