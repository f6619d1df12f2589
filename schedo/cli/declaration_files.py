"""The files of `schedo apply` and `schedo export`, as TOML or JSON.

A file has the keys `owner`, `schedules`, `queues` and `expectations`; the last three hold an entry
by name.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NamedTuple

from schedo.client.messages import Record
from schedo.core.expectations import ExpectationSpec
from schedo.core.model import ScheduleSpec
from schedo.core.strict_json import DEPTH_MAX, decode_strictly, too_deep
from schedo.errors import Invalid, Problem
from schedo.protocol.decode import decode_checked
from schedo.protocol.expectations import ExpectationRequest
from schedo.protocol.schedules import ScheduleRequest
from schedo.suggestions import suggest

KINDS = ("schedules", "queues", "expectations")
_KEYS = ("owner", *KINDS)
# An export begins each schedule with its rule and its task.
_FIRST_FIELDS = ("cron", "every", "at", "tz", "task", "payload")
_WITH_DEFAULTS = ("retry", "dst")  # objects whose members may be left out
_BYTES_MAX = 8_388_608


class DeclarationFile(NamedTuple):
    """The content of one file: the fields of each entry by its name."""

    path: str
    owner: str
    schedules: Mapping[str, Record]
    queues: Mapping[str, Record]
    expectations: Mapping[str, Record]

    def entries(self, kind: str) -> Mapping[str, Record]:
        """Return the entries of one of KINDS."""
        entries: Mapping[str, Record] = getattr(self, kind)
        return entries

    def render(self, **options: bool) -> Record:
        """Return the request that declares it."""
        entries = {
            kind: [{"name": name, **entry} for name, entry in self.entries(kind).items()]
            for kind in KINDS
        }
        return {"owner": self.owner, **entries, **options}

    def locate(self, error: Invalid) -> Invalid:
        """Return the server's error about the request with the places in this file."""
        places = [
            Problem(self._find_place(problem.pointer), problem.detail) for problem in error.problems
        ]
        return _fail(self.path, *places) if places else Invalid(f"{self.path}: {error}")

    def _find_place(self, pointer: str) -> str:
        kind, _, rest = pointer.removeprefix("/").partition("/")
        number, _, field = rest.partition("/")
        if kind not in KINDS or not number.isdecimal():
            return pointer.removeprefix("/").replace("/", ".")
        name = [*self.entries(kind)][int(number)]
        return ".".join(filter(None, (kind, name, field.replace("/", "."))))


def _fail(path: str, *places: Problem) -> Invalid:
    text = "; ".join(f"{each.pointer}: {each.detail}" for each in places)
    return Invalid(f"{path}: nothing was changed: {text}", *places)


def read_declaration(path: str) -> DeclarationFile:
    """Return the content of a file, of stdin for "-"; raise Invalid with the place of an error."""
    document = _parse(path, _read(path))
    if not isinstance(document, dict):
        raise Invalid(f"{path}: it must contain an object")
    for key in document:
        if key not in _KEYS:
            detail = f"the keys are {', '.join(_KEYS)}{suggest(key, _KEYS)}"
            raise _fail(path, Problem(key, detail))
    owner = document.get("owner")
    if owner is None:
        if path == "-":
            raise _fail(path, Problem("owner", 'stdin needs a line owner = "file:NAME"'))
        owner = f"file:{os.path.abspath(path)}"
    if not isinstance(owner, str) or not owner.startswith("file:"):
        raise _fail(path, Problem("owner", 'it must be a text "file:NAME"'))
    return DeclarationFile(path, owner, *(_read_entries(path, document, kind) for kind in KINDS))


def _read(path: str) -> bytes:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _BYTES_MAX:
        raise Invalid(f"{path} is larger than {_BYTES_MAX} bytes")
    return data


def _parse(path: str, data: bytes) -> Any:
    data = data.removeprefix(codecs.BOM_UTF8)  # editors of Windows write it
    is_json = path.endswith(".json") or (path == "-" and data.lstrip().startswith(b"{"))
    try:
        if is_json:
            return decode_strictly(data, "the file")
        return tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise Invalid(f"{path}: {too_deep('the file')}; nothing was changed") from None
    except (Invalid, ValueError) as error:
        raise Invalid(f"{path}: {error}; nothing was changed") from None


def _read_entries(path: str, document: Mapping[str, Any], kind: str) -> dict[str, Record]:
    entries = document.get(kind, {})
    if not isinstance(entries, dict):
        raise _fail(path, Problem(kind, "it must be a table with an entry by name"))
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            raise _fail(path, Problem(f"{kind}.{name}", "it must be a table of fields"))
        if "name" in entry:
            raise _fail(path, Problem(f"{kind}.{name}.name", "the name is the key of the entry"))
    return {name: _to_json(path, entry, (kind, name)) for name, entry in entries.items()}


def _to_json(path: str, value: Any, place: tuple[str, ...]) -> Any:
    """Return TOML's value as JSON data: an instant becomes text."""
    if len(place) > DEPTH_MAX:  # keys with dots may be nested to any depth
        raise _fail(path, Problem(".".join(place[:3]), str(too_deep("the entry"))))
    if isinstance(value, dict):
        return {key: _to_json(path, each, (*place, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_to_json(path, each, (*place, str(at))) for at, each in enumerate(value)]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat()
    if isinstance(value, date | time):
        raise _fail(path, Problem(".".join(place), "give a time with its offset, or a text"))
    if isinstance(value, float) and value - value != 0:
        raise _fail(path, Problem(".".join(place), f"{value} is no JSON number"))
    return value


def export_schedule(schedule: Record) -> Record:
    """Return the fields of a declaration of the schedule, without the defaults."""
    names = dict.fromkeys((*_FIRST_FIELDS, *ScheduleRequest.__struct_fields__))
    fields = {name: schedule[name] for name in names if name in schedule}
    if "retry" in fields:
        fields["retry"] = fields["retry"].get("preset", fields["retry"])
    spec = _read_spec(schedule["name"], fields)
    if spec is None:
        raise Invalid(f"schedule {schedule['name']} has fields that this version cannot export")
    for name in [*fields]:
        rest = {key: value for key, value in fields.items() if key != name}
        if _read_spec(schedule["name"], rest) == spec:
            fields = rest
        elif name in _WITH_DEFAULTS and isinstance(fields[name], dict):
            fields[name] = _drop_defaults(schedule["name"], fields, name)
    return fields


def export_expectation(expectation: Record) -> Record:
    """Return the fields of a declaration of the named expectation, without the defaults."""
    names = dict.fromkeys((*_FIRST_FIELDS, *ExpectationRequest.__struct_fields__))
    fields = {name: expectation[name] for name in names if name in expectation}
    spec = _read_spec(expectation["name"], fields, ExpectationRequest)
    if spec is None:
        raise Invalid(f"expectation {expectation['name']} cannot be exported by this version")
    without_zone = {name: value for name, value in fields.items() if name != "tz"}
    is_same = _read_spec(expectation["name"], without_zone, ExpectationRequest) == spec
    return without_zone if is_same else fields


def _drop_defaults(schedule: str, fields: Record, name: str) -> Record:
    """Return the object in a field without those members that have the default."""
    spec = _read_spec(schedule, fields)
    for member in [*fields[name]]:
        rest = {key: value for key, value in fields[name].items() if key != member}
        if _read_spec(schedule, {**fields, name: rest}) == spec:
            fields = {**fields, name: rest}
    value: Record = fields[name]
    return value


def _read_spec(
    name: str,
    fields: Record,
    kind: type[ScheduleRequest] | type[ExpectationRequest] = ScheduleRequest,
) -> ScheduleSpec | ExpectationSpec | None:
    try:
        return decode_checked(json.dumps(fields).encode(), kind).to_spec(name)
    except Invalid:
        return None


def name_owner(path: str | None) -> str:
    """Return the owner that an export to this file names."""
    return f"file:{Path(path).name if path else 'exported'}"
