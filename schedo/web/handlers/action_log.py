"""GET /v1/log: who changed what by hand."""

from __future__ import annotations

from functools import partial

from schedo.core.action_log import LogEntry, LogFilter, NumberedEntry
from schedo.protocol.action_log import LogEntryResponse
from schedo.protocol.query import (
    Values,
    bad_parameter,
    parse_number_cursor,
    read_instant,
    read_limit,
    read_name,
    render_cursor,
)
from schedo.protocol.roles import LOGGED, Role
from schedo.suggestions import suggest
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import LIST_BYTES, page_response

_TARGET_CHARACTERS_MAX = 200


async def list_log(context: AppContext, request: Request) -> Response:
    query = request.query
    limit = read_limit(query)
    before = parse_number_cursor("log", query)
    which = LogFilter(
        read_name(query, "who"),
        _read_action(query),
        _read_target(query),
        read_instant(query, "before"),
    )
    await request.claim.take(LIST_BYTES)
    found = await context.engine.store.list_log(which, before, limit + 1)
    permission = request.permission
    has_address = permission is None or permission.includes(Role.OPERATOR)
    describe = partial(_describe, has_address=has_address)
    if len(found) <= limit:
        return await page_response(describe, found)
    cursor = render_cursor("log", query, str(found[limit - 1].number))
    return await page_response(describe, found[:limit], cursor, (request.next_link(cursor),))


def _describe(found: NumberedEntry, *, has_address: bool) -> LogEntryResponse:
    entry: LogEntry = found.entry
    return LogEntryResponse.of(entry, has_address=has_address)


def _read_action(query: Values) -> str | None:
    action = query.get("action")
    if action is not None and action not in LOGGED:
        raise bad_parameter(
            "action", f"no operation of this name is logged{suggest(action[:40], LOGGED)}"
        )
    return action


def _read_target(query: Values) -> str | None:
    target = query.get("target")
    if target is not None and not 1 <= len(target) <= _TARGET_CHARACTERS_MAX:
        raise bad_parameter("target", f"give 1 to {_TARGET_CHARACTERS_MAX} characters")
    return target
