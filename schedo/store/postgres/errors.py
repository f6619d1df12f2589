"""The translation of PostgreSQL's errors. Codes: postgresql.org/docs/current/errcodes-appendix."""

from __future__ import annotations

import asyncio
import ssl

import asyncpg

from schedo.errors import StoreError, StoreFull, StoreRefused, StoreUnsuitable

# What a call to the driver may raise.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)
# The driver and the server about a value: its type, a constraint, a limit of the server (an entry
# of an index that is too long), and require_all of the schema about a row that is not there.
_MISSING = "SD404"
_REFUSALS = ("22", "23", "54", _MISSING)
_DISK_FULL = "53100"
# These servers are on their way: another start, a moment later, may find them ready.
_TRANSIENT = ("53", "55", "57", "08")
_NO_SESSION = "53300"  # all that PostgreSQL, the role or the database may have are in use
_UNREACHABLE_HINTS = {
    "": "does PostgreSQL run, and does it listen there?",
    _NO_SESSION: "end sessions that nobody needs, or raise max_connections of PostgreSQL or the"
    " CONNECTION LIMIT of the role or the database; a server of schedo has up to nine sessions",
}
_NO_TLS = "rejected SSL upgrade"  # of the driver, without a code
_POOLER = "a pooler is no place for the writer of the store: give the URL of the server itself"
READ_ONLY = (
    "is read-only, as a standby is, and a primary while its default_transaction_read_only is on;"
    " give the URL of the primary, or all hosts: postgresql://db1,db2/…, or turn that setting off"
)
_HINTS = {
    "28P01": "the password is wrong, or none was given; the driver also reads PGPASSWORD and"
    " ~/.pgpass",
    "28000": "the server does not let this user in; see its pg_hba.conf",
    "3D000": "create the database first: createdb --encoding=UTF8 --template=template0 NAME",
    "42P01": "the tables are not there, or the user has no right to use their schema;"
    " docs/operations.md (PostgreSQL) has the grants",
    "42501": "the user may not do this; if the tables are there, let their owner run: schedo store"
    " migrate, and an administrator deploy/postgresql/roles.sql, which has all grants; else let an"
    " administrator run: GRANT CREATE ON DATABASE … TO …, or create the schema: CREATE SCHEMA"
    " … AUTHORIZATION …",
    # The session of a pooler does not know a prepared statement, has another one of its name, or
    # refuses a setting.
    **dict.fromkeys(("26000", "42P05", "08P01"), _POOLER),
}


def is_refusal(error: BaseException) -> bool:
    """Return whether the error is about the written values; nothing was written then."""
    if isinstance(error, asyncpg.DataError):  # of the server, or of the driver's encoders
        return True
    code = getattr(error, "sqlstate", None) or ""
    return code.startswith(_REFUSALS)


def ends_session(error: BaseException) -> bool:
    """Return whether the session cannot be used after the error."""
    code = getattr(error, "sqlstate", None) or ""
    lost = (OSError, asyncio.TimeoutError, asyncpg.InternalClientError)
    return isinstance(error, lost) or code.startswith(("57P", "08"))


def store_error(error: BaseException, shown: str) -> StoreError:
    """Translate an error of the driver into a StoreError. shown: the URL without a password."""
    if isinstance(error, StoreError):
        return error
    if is_refusal(error):
        return StoreRefused(f"the store refuses a value: {_text(error)}")
    if getattr(error, "sqlstate", None) == _DISK_FULL:
        return StoreFull(f"there is no room left for {shown}: {_text(error)}")
    return StoreError(f"the store {shown} failed: {_text(error)}")


def opening_error(error: BaseException, shown: str) -> StoreError:
    """Translate an error of a connection that could not be opened, with what helps."""
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "sqlstate", None) or ""
    if isinstance(error, ssl.SSLCertVerificationError) or _NO_TLS in str(error):
        return StoreUnsuitable(
            f"cannot connect to {shown}: {_text(error)}; sslmode in the URL says whether TLS is"
            " wanted, and sslrootcert names the CA to trust"
        )
    if isinstance(error, OSError | asyncio.TimeoutError) or code.startswith(_TRANSIENT):
        # A PostgreSQL that gives a code runs; it is starting, for instance.
        hint = _HINTS.get(code) or _UNREACHABLE_HINTS.get(code, "")
        kind: type[StoreError] = StoreUnsuitable if code in _HINTS else StoreError
        return kind(f"cannot connect to {shown}: {_text(error)}{'; ' if hint else ''}{hint}")
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return StoreUnsuitable(f"{shown} {READ_ONLY}")
    hint, text = _HINTS.get(code, ""), _text(error)
    if hint == _POOLER:  # the driver adds how a program can use a pooler nevertheless
        text = str(error).partition("\n")[0]
    return StoreUnsuitable(f"cannot use {shown}: {text}{'; ' if hint else ''}{hint}")


def _text(error: BaseException) -> str:
    if isinstance(error, asyncpg.InternalClientError):
        # The driver has read why the server ends the session, and has not seen the end yet.
        return "PostgreSQL ends the session"
    if isinstance(error, TimeoutError) and not error.args:  # of this process
        return "PostgreSQL does not respond"
    # PostgreSQL adds lines with details and hints.
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    return "; ".join(line for line in lines if line) or type(error).__name__
