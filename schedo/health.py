"""`python -m schedo.health`: exits with 0 if the server on this machine is healthy, else with 1.

It is made for a container's health check, and imports only the standard library, so that it is fast
and small. SCHEDO_HOST and SCHEDO_PORT give the address; a server bound to every address is checked
over loopback.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping

TIMEOUT_S = 3.0
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def is_alive(host: str, port: int) -> bool:
    """Return whether GET /healthz returns 200 within TIMEOUT_S."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Return the exit code of the check."""
    host = environ.get("SCHEDO_HOST") or "127.0.0.1"
    port = environ.get("SCHEDO_PORT") or "8080"
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        print(f"SCHEDO_PORT is {port!r}; it must be a number from 1 to 65535", file=sys.stderr)
        return 1
    host = EVERY_ADDRESS.get(host, host)
    if is_alive(host, int(port)):
        return 0
    print(f"there is no healthy server on {host} port {port}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
