"""The kernel's word that something about the interfaces or their addresses has changed (rtnetlink(7)).

What has changed is not read: whoever is told looks for himself. So nothing of a message has to be understood,
and a lost one is made up for by the look that comes every second anyway.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
MESSAGE_BYTES = 65_536


class InterfaceWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Without a permission for it (a container may refuse), the look of every second has to do."""
        with suppress(OSError):
            kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            opened = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            try:
                opened.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
            except OSError:
                opened.close()
                raise
            self._socket = opened
            self._loop.add_reader(opened, self._on_readable, opened)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _on_readable(self, opened: socket.socket) -> None:
        with suppress(OSError):  # nothing more to read; or messages were lost, which is a change as well
            while True:
                opened.recv(MESSAGE_BYTES)
        self._on_change()
