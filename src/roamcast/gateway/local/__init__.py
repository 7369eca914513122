"""The gateway for programs on the same device: a local stream socket, or none at all (in process)."""

from roamcast.gateway.local.server import LocalServer
from roamcast.gateway.local.session import LocalSession, client_of

__all__ = ["LocalServer", "LocalSession", "client_of"]
