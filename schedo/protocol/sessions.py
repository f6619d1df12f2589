"""Logging in with a browser, and what a client may do."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.errors import Invalid
from schedo.protocol.fields import Instant
from schedo.protocol.operation import Operation
from schedo.protocol.schedules import EmptyRequest

_TOKEN_CHARACTERS_MAX = 4_096
_LINK_CHARACTERS_MAX = 128
Access = Literal["open", "token", "session", "anonymous", "none"]


class SessionRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A token, or the code of a link that `POST /v1/session:link` made: one of them."""

    token: Annotated[str, Meta(min_length=1, max_length=_TOKEN_CHARACTERS_MAX)] | None = None
    link: Annotated[str, Meta(min_length=1, max_length=_LINK_CHARACTERS_MAX)] | None = None

    def check(self) -> None:
        """Raise Invalid unless there is exactly one of them."""
        if (self.token is None) == (self.link is None):
            raise Invalid.field("/token", "give either token or link")


class LinkResponse(Struct, forbid_unknown_fields=True):
    """A one-time code: a browser gets a session by it, from the address `/login#link=CODE`."""

    link: str
    expires_at: Instant


class MeResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """Who the client is, and the operations that it may call, by their names in this document.

    access: `open`, the server has no tokens; `token`; `session`, a cookie; `anonymous`, it sent
    neither and may read; `none`, it sent neither, and may only log in.
    """

    access: Access
    operations: list[str]
    name: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    queues: list[str] | UnsetType = UNSET
    tasks: list[str] | UnsetType = UNSET
    expires_at: Instant | UnsetType = UNSET
    public_url: str | UnsetType = UNSET
    hides_payloads: bool | UnsetType = UNSET


OPERATIONS = (
    Operation(
        "get_me",
        "GET /v1/me",
        "Who the client is, and what it may do.",
        {200: MeResponse},
    ),
    Operation(
        "create_session",
        "POST /v1/session",
        "Log in: exchange a token, or the code of a link, for a cookie.",
        {200: MeResponse},
        request=SessionRequest,
        needs_body=True,
    ),
    Operation("delete_session", "DELETE /v1/session", "Log out: delete the cookie.", {204: ""}),
    Operation(
        "create_session_link",
        "POST /v1/session:link",
        "Make a link that logs a browser in, once and within a minute.",
        {201: LinkResponse},
        request=EmptyRequest,
    ),
)
