"""Connects to the one of several hosts that is wanted, such as the one that takes writes.

The driver has one timeout for all hosts together. So a host whose machine is lost, which does not
even refuse, would keep it from the next one. Here each host has a timeout of its own, and the one
that had the last session comes first.
"""

from __future__ import annotations

from typing import Any, Literal

import asyncpg

from schedo.store.postgres.address import Address

Target = Literal["read-write", "prefer-standby"]
CONNECT_S = 10.0  # for all hosts together
# It ends the connection at once, or says that it is starting or ending, or has no session left. The
# last one may be a standby, and then it says nothing about the host that is wanted.
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
)

_last: dict[tuple[Address, Target], str] = {}  # the URL of the host that had the last session


async def connect_to_host(address: Address, target: Target, **options: Any) -> asyncpg.Connection:
    """Open a session; raise the errors of the driver. options: for the driver."""
    at = address, target
    hosts = sorted(address.hosts, key=lambda url: url != _last.get(at))
    if len(hosts) == 1:
        return await asyncpg.connect(
            hosts[0], timeout=CONNECT_S, target_session_attrs=target, **options
        )
    error: BaseException | None = None
    others: list[str] = []  # which respond, and are not what is wanted
    for wanted in ("standby", "any") if target == "prefer-standby" else (target,):
        for url in others if wanted == "any" else hosts:
            try:
                connection = await asyncpg.connect(
                    url, timeout=CONNECT_S / len(hosts), target_session_attrs=wanted, **options
                )
            except asyncpg.TargetServerAttributeNotMatched as mismatch:
                others.append(url)
                error = error or mismatch
            except (OSError, *_AWAY) as failure:
                error = failure
            else:
                _last[at] = url
                return connection
    assert error is not None, "there is a host"
    raise error
