"""Where a command finds its node."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from roamcast.client.client import Client
from roamcast.client.connect import connect


class NodePlace(NamedTuple):
    """The socket, and how long to wait (seconds) for a node to listen there."""

    socket: Path
    wait: float = 0.0

    def connect(self, name: str) -> AbstractAsyncContextManager[Client]:
        return connect(self.socket, name=name, wait=self.wait)
