"""`python -m schedo.health`: exits with 0 if the server on this machine is healthy, else with 1.

Healthy means that it answers GET /healthz. With --ready it must accept jobs and start them on time
(GET /readyz): for whatever may start only after the server.

It is made for a container's health check, and imports only the standard library, so that it is fast
and small. SCHEDO_HOST and SCHEDO_PORT give the address; a server bound to every address is checked
over loopback, and one at unix:/PATH over its socket. With SCHEDO_TLS_CERT it speaks TLS and accepts
each certificate: it asks whether the server lives, sends no secret, and has its address from the
settings of the server itself.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence

TIMEOUT_S = 3.0
READY = "--ready"
UNIX = "unix:"
PATHS = {(): "/healthz", (READY,): "/readyz"}
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def answers_ok(host: str, port: int, path: str, *, has_tls: bool = False) -> bool:
    """Return whether a GET of the path returns 200 within TIMEOUT_S."""
    is_local = host.startswith(UNIX)
    name = "localhost" if is_local else host
    connection = http.client.HTTPConnection(name, port, timeout=TIMEOUT_S)
    if has_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    try:
        if is_local:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(TIMEOUT_S)
            connection.sock.connect(host.removeprefix(UNIX))
        connection.request(
            "GET", path, headers={"Host": "localhost"} if host.startswith(UNIX) else {}
        )
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main(arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Return the exit code of the check."""
    path = PATHS.get(tuple(arguments))
    if path is None:
        print(f"usage: python -m schedo.health [{READY}]", file=sys.stderr)
        return 2
    host = environ.get("SCHEDO_HOST") or "127.0.0.1"
    port = environ.get("SCHEDO_PORT") or "8080"
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        print(f"SCHEDO_PORT is {port!r}; it must be a number from 1 to 65535", file=sys.stderr)
        return 1
    host = EVERY_ADDRESS.get(host, host)
    if answers_ok(host, int(port), path, has_tls=bool(environ.get("SCHEDO_TLS_CERT"))):
        return 0
    print(f"no server answers {path} with 200 on {host} port {port}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
