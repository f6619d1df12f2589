"""The stages of a connection, their deadlines, and the limits of its sizes."""

from __future__ import annotations

from enum import Enum

HEAD_DEADLINE_S = 10.0
KEEP_ALIVE_S = 60.0
BODY_DEADLINE_S = 30.0
LINGER_S = 5.0
FIRST_REQUEST_GRACE_S = 1.0  # while draining, for a connection that has sent nothing yet
LINGER_BYTES_MAX = 1_048_576  # in addition to the rest of a body with a Content-Length
LINGER_BODY_BYTES_MAX = 33_554_432
TINY_REQUEST_BYTES = 1_024  # a request up to this size is not counted
ORDINARY_REQUEST_BYTES = 8_192  # a connection with more is closed first when memory is short
SKIPPED_BYTES_MAX = 65_536  # of an unread body, if the connection stays open


class Stage(Enum):
    """The next event that the connection waits for."""

    IDLE = "idle"  # the next request
    HEAD = "head"
    TURN = "turn"  # of the event loop, to begin the request
    BODY = "body"
    RESPONSE = "response"  # of the application
    LINGER = "linger"  # the client's close after the last response
    GONE = "gone"


DEADLINES_S = {
    Stage.IDLE: KEEP_ALIVE_S,
    Stage.HEAD: HEAD_DEADLINE_S,
    Stage.BODY: BODY_DEADLINE_S,
    Stage.LINGER: LINGER_S,
}
