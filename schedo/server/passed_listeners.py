"""The listeners that an upgrade or a standby gets from the server before it.

The settings of the new server may name another address, such as one that only this machine reaches.
So the rule that clients of other machines need a token is applied to these listeners as well.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from schedo.config import Config
from schedo.config_checks import check_reach

if TYPE_CHECKING:
    from schedo.handover.listeners import ListenerPair

_SOURCE = "the server before listens there, and the address stays"


class PassedListeners:
    """The hosts of the listeners, once the server before has sent them."""

    def __init__(self) -> None:
        self._hosts: list[str] = []

    def take(self, listeners: ListenerPair, config: Config) -> None:
        """Note the listeners, in place of earlier ones; raise as `check`."""
        sockets = (*listeners.http, *listeners.grpc)
        self._hosts = [it.getsockname()[0] for it in sockets if it.family != socket.AF_UNIX]
        self.check(config)

    def check(self, config: Config) -> None:
        """Raise Invalid if other machines reach one of them, and no client needs a token."""
        for host in self._hosts:
            check_reach(config, host, _SOURCE)
