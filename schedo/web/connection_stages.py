"""What a connection waits for, and for how long."""

from __future__ import annotations

from enum import Enum

HEAD_DEADLINE_S = 10.0
KEEP_ALIVE_S = 60.0
BODY_DEADLINE_S = 30.0
LINGER_S = 5.0


class Stage(Enum):
    """What the connection waits for."""

    IDLE = "idle"  # the next request
    HEAD = "head"
    TURN = "turn"  # in which its request begins
    BODY = "body"
    ANSWER = "answer"  # the application
    LINGER = "linger"  # that the client reads the last answer and closes
    GONE = "gone"


DEADLINES_S = {
    Stage.IDLE: KEEP_ALIVE_S,
    Stage.HEAD: HEAD_DEADLINE_S,
    Stage.BODY: BODY_DEADLINE_S,
    Stage.LINGER: LINGER_S,
}
