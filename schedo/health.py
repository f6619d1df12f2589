"""`python -m schedo.health`: exit 0 if the server on this machine answers, else 1.

Made for a container's health check: the standard library only, so that it is quick and small.
Where to ask comes from SCHEDO_HOST and SCHEDO_PORT; a server bound to every address is asked over
loopback.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping

TIMEOUT_S = 3.0
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def is_alive(host: str, port: int) -> bool:
    """Return whether GET /healthz is answered with 200 within TIMEOUT_S."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Return the exit code of the check; a port that is no port counts as not alive."""
    host = environ.get("SCHEDO_HOST") or "127.0.0.1"
    port = environ.get("SCHEDO_PORT") or "8080"
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        print(f"SCHEDO_PORT is {port!r}; it must be a number from 1 to 65535", file=sys.stderr)
        return 1
    host = EVERY_ADDRESS.get(host, host)
    if is_alive(host, int(port)):
        return 0
    print(f"nothing healthy answers on {host} port {port}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
