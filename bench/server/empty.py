"""The floor of every HTTP figure: uvicorn and Starlette with an endpoint that does nothing.

The endpoint reads the body and sends as many bytes as schedo sends for a job. Other scripts run it.
"""

from __future__ import annotations

import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ANSWER = b'{"id":"' + b"0" * 320 + b'"}'


async def answer(request: Request) -> Response:
    """Read the body and send a response of fixed length."""
    await request.body()
    return Response(ANSWER, 201, media_type="application/json")


app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT"])])


def main() -> None:
    """Listen on a free port, print the port, and serve until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        app, http="httptools", loop="uvloop", access_log=False, log_level="error", lifespan="off"
    )
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
