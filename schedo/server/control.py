"""The control socket of an active server; what serves it is made at the first connection."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
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
CHECK_S = 1.0  # between two looks at the file


class ControlSocket:
    """The socket beside the store's file; a store in memory has none."""

    def __init__(
        self,
        make_control: Callable[[], Control],
        store_path: str | None,
        is_passing: Callable[[], bool] = lambda: False,
    ) -> None:
        """is_passing: whether another process may have the store, and so the file, already."""
        self._make_control = make_control
        self._path = None if store_path is None else store_path + socket_file.SUFFIX
        self._is_passing = is_passing
        self._socket: socket.socket | None = None
        self._control: Control | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._problem = ""  # why the file cannot be made again

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
        self._check_later()

    @property
    def has_warm_standby(self) -> bool:
        """Whether a standby is connected that can take the store at once."""
        return self._control is not None and self._control.has_warm_standby

    def leave(self) -> None:
        """Stop listening, and let all clients but operators go; the file is the next server's."""
        self._check_no_more()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._control is not None:
            self._control.dismiss()

    async def close(self) -> None:
        """Close the socket and its connections; the caller still holds the store."""
        self._check_no_more()
        if self._socket is not None and self._path is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            socket_file.remove(self._path, self._socket)
            self._socket = None
        if self._control is not None:
            await self._control.close()

    def _check_later(self) -> None:
        self._checking = asyncio.get_running_loop().call_later(CHECK_S, self._check)

    def _check_no_more(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None

    def _check(self) -> None:
        """Make the file again if it was removed: no new client finds this server without it.

        Another file in its place stays: it may belong to the process that has the store by now.
        """
        self._check_later()
        assert self._path is not None, "only a socket at a path is checked"
        if os.path.lexists(self._path) or self._is_passing():
            return
        try:
            made = socket_file.listen(self._path)
        except (OSError, SchedoError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("the control socket was removed, and cannot be made again: %s", error)
            return
        self._problem = ""
        log.warning("the control socket %s was removed; this server has made it again", self._path)
        assert self._socket is not None, "only an open socket is checked"
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = made
        self._watch()

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
