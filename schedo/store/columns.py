"""The columns of a table, derived from the fields of the class whose records the table has.

A column has the name of its field, and the columns have the order of the fields. The type of a
field says how its value is stored: an enum as its text (sqlite3 looks for a slow adapter for every
subclass of str and int), a bool as 0 or 1, a Struct as JSON, everything else as it is.

The functions that make a row of a record, and a record of a row, are compiled once. They have one
expression for each column, because they run for every job of every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

Row = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode


class Codec(NamedTuple):
    """Two Python expressions: `write` makes the column's value from `record`, `read` reads `{}`."""

    write: str
    read: str = ""  # empty: the value is used unchanged


_NO_CODECS: Mapping[str, Codec] = MappingProxyType({})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Columns:
    """The columns for the records of a class.

    memory_only: fields without a column. fixed: fields that never change after the first write.
    derived: further columns that only queries use, with the expression that writes them. codecs:
    for fields whose type does not say everything; scope: names that their expressions use.
    """

    def __init__(
        self,
        kind: type,
        *,
        memory_only: Iterable[str] = (),
        fixed: Iterable[str] = (),
        derived: Mapping[str, str] = _NOTHING,
        codecs: Mapping[str, Codec] = _NO_CODECS,
        scope: Mapping[str, Any] = _NOTHING,
    ) -> None:
        hints = {n: hint for n, hint in get_type_hints(kind).items() if n not in memory_only}
        self.names = tuple(hints)
        self.inserted = (*hints, *derived)
        self.mutable = tuple(name for name in hints if name not in fixed)
        self._is_frozen = issubclass(kind, tuple) or kind.__setattr__ is not object.__setattr__
        self._scope: dict[str, Any] = {"kind": kind, "encode": _encode, **scope}
        self._codecs = {n: codecs.get(n) or self._codec(n, hint) for n, hint in hints.items()}
        self._writes = {name: codec.write for name, codec in self._codecs.items()} | dict(derived)

    def _codec(self, name: str, hint: Any) -> Codec:
        kinds = [each for each in get_args(hint) or (hint,) if each is not NoneType]
        kind = kinds[0] if len(kinds) == 1 and isinstance(kinds[0], type) else object
        if issubclass(kind, StrEnum):
            texts: dict[Any, str | None] = {None: None, **{each: str(each.value) for each in kind}}
            self._scope[f"texts_{name}"] = texts
            self._scope[f"members_{name}"] = {text: each for each, text in texts.items()}
            return Codec(f"texts_{name}[record.{name}]", f"members_{name}[{{}}]")
        if kind is bool:
            return Codec(f"1 if record.{name} else 0", "{} == 1")
        if issubclass(kind, msgspec.Struct):
            self._scope[f"decode_{name}"] = msgspec.json.Decoder(hint).decode
            return Codec(
                f"None if record.{name} is None else encode(record.{name}).decode()",
                f"{{0}} and decode_{name}({{0}})",
            )
        return Codec(f"record.{name}")

    def compile_row(self, names: Iterable[str], *parameters: str) -> Callable[..., Row]:
        """Return the function of a record, and of further parameters, that makes the row."""
        values = ", ".join(self._writes[name] for name in names)
        return self._compile(f"def make({', '.join(['record', *parameters])}): return ({values},)")

    def compile_record(self, texts: Collection[str] = ()) -> Callable[[Row], Any]:
        """Return the function that makes a record of the values of `names`.

        texts: columns of bytes whose values are given as texts, or None.
        """
        as_bytes = Codec("", "None if {0} is None else {0}.encode()")
        codecs = self._codecs | dict.fromkeys(texts, as_bytes)
        if self._is_frozen:
            first, target, last = "values = [*row]", "values[{at}]", "return kind(*values)"
        else:  # this is faster, and jobs are read by the thousand
            first, target, last = "record = kind(*row)", "record.{name}", "return record"
        lines = ["def make(row):", first]
        for at, (name, codec) in enumerate(codecs.items()):
            if codec.read:
                stored = target.format(at=at, name=name)
                lines.append(f"{stored} = {codec.read.format(stored)}")
        return self._compile("\n    ".join([*lines, last]))

    def _compile(self, source: str) -> Callable[..., Any]:
        scope = dict(self._scope)
        exec(source, scope)
        made: Callable[..., Any] = scope["make"]
        return made
