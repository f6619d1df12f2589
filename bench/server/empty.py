"""The floor of every HTTP figure: uvicorn and Starlette with an endpoint that does nothing.

It reads the body and answers as many bytes as schedo answers for a job. Run by the other scripts.
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
    """Take whatever comes."""
    await request.body()
    return Response(ANSWER, 201, media_type="application/json")


app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST", "PUT"])])


def main() -> None:
    """Listen on a free port, print it, and serve until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        app, http="httptools", loop="uvloop", access_log=False, log_level="error", lifespan="off"
    )
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
