"""The stages of a connection and their deadlines."""

from __future__ import annotations

from enum import Enum

HEAD_DEADLINE_S = 10.0
KEEP_ALIVE_S = 60.0
BODY_DEADLINE_S = 30.0
LINGER_S = 5.0


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
