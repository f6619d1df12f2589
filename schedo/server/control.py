"""The control socket of an active server; what serves it is made at the first connection."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from schedo.errors import SchedoError
from schedo.handover import socket_file

if TYPE_CHECKING:
    from schedo.handover.control import Control

log = logging.getLogger("schedo")

_PAUSE_S = 1.0


class ControlSocket:
    """The socket beside the store's file; a store in memory has none."""

    def __init__(self, make_control: Callable[[], Control], store_path: str | None) -> None:
        self._make_control = make_control
        self._path = None if store_path is None else store_path + socket_file.SUFFIX
        self._socket: socket.socket | None = None
        self._control: Control | None = None

    def open(self) -> None:
        """Listen; the caller holds the store. Without the socket, only standbys cannot connect."""
        if self._path is None or sys.platform != "linux":
            return
        try:
            self._socket = socket_file.listen(self._path)
        except (OSError, SchedoError) as error:
            log.warning("there is no control socket, so this server has no standby: %s", error)
            return
        self._watch()

    @property
    def has_warm_standby(self) -> bool:
        """Whether a standby is connected that can take the store at once."""
        return self._control is not None and self._control.has_warm_standby

    def leave(self) -> None:
        """Stop listening, and let all clients but operators go; the file is the next server's."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._control is not None:
            self._control.dismiss()

    async def close(self) -> None:
        """Close the socket and its connections; the caller still holds the store."""
        if self._socket is not None and self._path is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            socket_file.remove(self._path, self._socket)
            self._socket = None
        if self._control is not None:
            await self._control.close()

    def _watch(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def _pause(self) -> None:
        """Accept nothing for a moment: the process has no descriptor left."""
        assert self._socket is not None, "only an open socket is read"
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        loop.call_later(_PAUSE_S, self._watch)

    def _accept(self) -> None:
        assert self._socket is not None, "only an open socket is read"
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the client waits, and so would spin
                self._pause()
            return
        if self._control is None:
            self._control = self._make_control()
        self._control.serve(connection)
