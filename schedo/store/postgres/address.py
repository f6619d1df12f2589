"""The URL of a store in PostgreSQL, such as postgresql://schedo@db1,db2/jobs?schema=schedo."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from schedo.errors import Invalid

DEFAULT_SCHEMA = "schedo"
# PostgreSQL cuts longer names, and a name in this form needs no quotes.
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_HOST = re.compile(r"([^\[\]:@/]*|\[[0-9A-Fa-f:.%]+\])(:[0-9]+)?")
_UNREADABLE = (
    "the URL cannot be read: a '/', '?', '#', '@' or ':' in a name or a password is written as"
    " %2F, %3F, %23, %40 or %3A"
)
_SECRETS = ("password", "passfile", "sslpassword")


class Address(NamedTuple):
    """Where a store is.

    url: as libpq and asyncpg read it. shown: the same without a password. hosts: the same for each
    of its hosts.
    """

    url: str
    schema: str
    shown: str
    hosts: tuple[str, ...]


def parse_address(url: str) -> Address:
    """Return the address; raise Invalid, without the password, if it names no store.

    The query option `schema` names the schema, and all others go to the driver.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # its text may have a part of the password
        raise Invalid.field("/store", _UNREADABLE) from None
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise Invalid.field(
            "/store",
            f"schema={schema!r}: the name of a schema has up to 63 small letters, digits and"
            " underscores, and begins with no digit and not with pg_",
        )
    if parts.fragment:
        raise Invalid.field("/store", "a '#' in a URL of PostgreSQL is written as %23")
    rest = {name: value for name, value in options if name != "schema"}
    public = [(name, value) for name, value in options if name not in _SECRETS]
    credentials, at, hosts = parts.netloc.rpartition("@")
    # Where a password has one of the characters that end the part before it, a part of it is here.
    if "@" in credentials or "@" in parts.path or not all(map(_HOST.fullmatch, hosts.split(","))):
        raise Invalid.field("/store", _UNREADABLE)
    user = credentials.partition(":")[0]
    return Address(
        _join(parts, rest),
        schema,
        urlunsplit(parts._replace(netloc=f"{user}{at}{hosts}", query=urlencode(public, safe="/:"))),
        tuple(_list_hosts(parts, rest)),
    )


def _list_hosts(parts: SplitResult, options: Mapping[str, str]) -> Iterator[str]:
    """Yield the URL of each host; the options are those for the driver."""
    credentials, at, netloc = parts.netloc.rpartition("@")
    hosts = (netloc or options.get("host", "")).split(",")
    ports = options.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    if len(hosts) == 1 or len(hosts) != len(ports):  # the driver refuses the latter
        yield _join(parts, options)
        return
    for host, port in zip(hosts, ports, strict=True):
        own = {"host": host, "port": port}
        one = parts._replace(netloc=f"{credentials}{at}{host if netloc else ''}")
        yield _join(one, {name: own.get(name, value) for name, value in options.items()})


def _join(parts: SplitResult, options: Mapping[str, str]) -> str:
    return urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))
