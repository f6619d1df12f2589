"""Encodes the arguments of a Python call as a job's payload, and decodes them again.

The payload is a JSON object with one member per argument, by name. Positional arguments get their
names from the signature, so a job looks the same whether Python or curl submitted it. Therefore a
task has no `*args` and no positional-only parameters. msgspec converts the values: datetime, UUID,
Enum, dataclass, TypedDict, Struct and the like are decoded as annotated; a parameter without a
usable annotation gets plain JSON. Pydantic models convert themselves (model_dump, model_validate).

A call that fits is written and read as a struct with a field for each parameter, because msgspec
checks its names and converts its values at once. One that does not fit, and all calls of a function
with `**rest`, go the slow way, which also finds out what is wrong.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec

from schedo.core import limits
from schedo.suggestions import suggest

_Kind = inspect.Parameter
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BadPayload(Exception):
    """The payload does not match the task's signature; a retry cannot succeed."""


class Arguments:
    """The parameters of one function."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task = task
        self._function = function
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        for parameter in parameters:
            if parameter.kind in (_Kind.VAR_POSITIONAL, _Kind.POSITIONAL_ONLY):
                raise TypeError(
                    f"task {task!r} cannot have the parameter {parameter}: jobs pass arguments by "
                    "name, so *args and positional-only parameters are not possible"
                )
        self._rest = next((p.name for p in parameters if p.kind is _Kind.VAR_KEYWORD), None)
        self._known = dict.fromkeys(p.name for p in parameters if p.name != self._rest)  # in order
        self._required = frozenset(
            p.name for p in parameters if p.name in self._known and p.default is _Kind.empty
        )
        self._positional = [p.name for p in parameters if p.kind is _Kind.POSITIONAL_OR_KEYWORD]
        self._optional = [name for name in self._known if name not in self._required]
        self._call = self._make_struct(dict.fromkeys(self._known, Any))
        # Made at the first read, because annotations may name what is defined later.
        self._decoders: dict[str, msgspec.json.Decoder[Any]] | None = None
        self._call_decoder: msgspec.json.Decoder[Any] | None = None

    def write(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload (JSON) of a call.

        Raise TypeError if the call does not match the signature, or a value has no JSON form.
        """
        values = self._name_values(args, kwargs)
        try:
            payload = encode(values)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            message = f"an argument of task {self._task!r} cannot be written as JSON: {error}"
            raise TypeError(message) from None
        if len(payload) > limits.PAYLOAD_BYTES_MAX:
            raise TypeError(
                f"the arguments of task {self._task!r} are {len(payload)} bytes of JSON; "
                f"the limit is {limits.PAYLOAD_BYTES_MAX} bytes"
            )
        return payload

    def _name_values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the values by name, in the order of the parameters; raise TypeError."""
        named = {**dict(zip(self._positional, args, strict=False)), **kwargs} if args else kwargs
        if self._call is not None and (not args or len(named) == len(args) + len(kwargs)):
            with_names = self._call
            try:
                return with_names(**named)
            except TypeError:
                pass
        return self._bind(args, kwargs)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by name; raise the TypeError that says what is wrong."""
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in self._known), "")
            hint = suggest(str(unknown), self._known)
            raise TypeError(f"task {self._task!r}: {error}{hint}") from None
        rest = {} if self._rest is None else bound.pop(self._rest, {})
        return {**bound, **rest}

    def check_names(self, names: Iterable[str]) -> None:
        """Raise TypeError if the function has no parameter of one of these names."""
        unknown = [name for name in names if name not in self._known]
        if unknown and self._rest is None:
            known = ", ".join(self._known) or "none"
            raise TypeError(
                f"task {self._task!r} has no argument {unknown[0]!r}; it has {known}"
                f"{suggest(unknown[0], self._known)}"
            )

    def read(self, payload: bytes) -> dict[str, Any]:
        """Return the keyword arguments in a payload (null means none), or raise BadPayload."""
        if self._decoders is None:
            self._prepare_decoders()
        if self._call_decoder is None:
            return self._read_each(payload)
        try:
            values = msgspec.structs.asdict(self._call_decoder.decode(payload))
        except Exception:  # the application's own constructors run here
            return self._read_each(payload)
        for name in self._optional:
            if values[name] is msgspec.UNSET:
                del values[name]
        return values

    def _read_each(self, payload: bytes) -> dict[str, Any]:
        """Decode one argument after the other, to say which one is wrong."""
        if payload == b"null":
            payload = b"{}"
        try:
            members = _MEMBERS.decode(payload)
        except msgspec.DecodeError:
            raise BadPayload(
                f"the payload must be a JSON object with the arguments of task {self._task!r}"
            ) from None
        if not self._fits(members):
            raise BadPayload(self._explain(members))
        assert self._decoders is not None, "read prepares them"
        rest = self._decoders.get(self._rest or "", _ANY)
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, raw in members.items():
                values[name] = self._decoders.get(name, rest).decode(raw)
        except Exception as error:  # the application's own constructors run here
            raise BadPayload(f"payload /{name}: {error}") from None
        return values

    def _fits(self, members: Mapping[str, Any]) -> bool:
        names = members.keys()
        return names >= self._required and (self._rest is not None or names <= self._known.keys())

    def _explain(self, members: Mapping[str, Any]) -> str:
        parameters = self._signature.parameters
        missing = [name for name in parameters if name in self._required - members.keys()]
        unknown = [name for name in members if name not in self._known]
        wrong = [f"{name!r} is missing" for name in missing]
        if self._rest is None:
            wrong += [f"{name[:64]!r} is unknown" for name in unknown[:5]]
        return f"{', '.join(wrong)}; the task is {self._task}{self._signature}"

    def _prepare_decoders(self) -> None:
        hints = {
            name: _find_hint(self._function, name, parameter.annotation)
            for name, parameter in self._signature.parameters.items()
        }
        self._decoders = {name: _make_decoder(hint) for name, hint in hints.items()}
        call = self._make_struct(hints)
        self._call_decoder = None if call is None else _make_decoder(call)

    def _make_struct(self, hints: Mapping[str, Any]) -> type[msgspec.Struct] | None:
        """Return the struct of a call, whose fields have these types; None: it may have **rest."""
        if self._rest is not None:
            return None
        fields = [
            (name, hints[name]) if name in self._required else (name, hints[name], msgspec.UNSET)
            for name in self._known
        ]
        return msgspec.defstruct("Call", fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def _find_hint(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Return the type that the annotation of a parameter means, or Any.

    An annotation may name a type that only type checkers import, or one without a JSON form.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        hints = get_type_hints(
            SimpleNamespace(__annotations__={name: annotation}),
            getattr(inspect.unwrap(function), "__globals__", {}),
            include_extras=True,
        )
        _make_decoder(hints[name])
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any
    return hints[name]


def _make_decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(hint, dec_hook=decode_custom)


def encode(value: Any) -> bytes:
    """Return the value as JSON; raise TypeError, ValueError, OverflowError or RecursionError.

    msgspec writes NaN and the infinities as null, and the reader would take them for None.
    """
    data = _ENCODER.encode(value)
    if b"null" in data and _may_hold_no_number(value) and _holds_no_number(value):
        raise ValueError("JSON has no NaN and no infinity")
    return data


def _may_hold_no_number(value: Any) -> bool:
    """Return whether a look at each part of the value, which takes long, could find one.

    None is common. MessagePack takes as little time as JSON, and its texts have no such bytes.
    """
    try:
        return _NO_NUMBER.search(_PACKER.encode(value)) is not None
    except Exception:  # what only JSON can have, such as an integer of more than 64 bits
        return True


def _holds_no_number(value: Any) -> bool:
    """Return whether a NaN or an infinity is somewhere in the value."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=encode_custom, str_keys=True)
    except TypeError:  # a Raw, for example, which is JSON already
        return False
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        return True
    return False


def encode_custom(value: Any) -> Any:
    """Convert a value that msgspec does not know to one that it does, or raise TypeError."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__qualname__} has no JSON form")


def decode_custom(wanted: Any, value: Any) -> Any:
    """Convert a JSON value to a type that msgspec does not know, or raise ValueError."""
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(value)
    if isinstance(wanted, type) and isinstance(value, wanted):
        return value
    raise ValueError(f"{getattr(wanted, '__qualname__', wanted)} cannot be decoded from JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=encode_custom)
_PACKER = msgspec.msgpack.Encoder(enc_hook=encode_custom)
_NO_NUMBER = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # a float whose exponent has all bits set
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any)
