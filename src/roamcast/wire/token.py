"""How a program without Unix sockets uses a node: a port of the loopback, and a file that says it may.

The file holds the port and a random token of the node's present run. Whoever can read the file may use the
node, as whoever may open the socket does. Both sides prove that they know the token before anything else is
said, and neither sends it: a program that took the port while the node was away learns nothing.

    client: | nonce 256 |
    node:   | nonce 256 | proof 256 |
    client: | proof 256 |
"""

import hmac
from typing import NamedTuple

from roamcast.errors import WireError

LOOPBACK = "127.0.0.1"
SUFFIX = ".token"
NONCE_BYTES = PROOF_BYTES = TOKEN_BYTES = 32
TEXT_LENGTH_MAX = 200  # far above ours
_MARK = "roamcast-token"


class AccessToken(NamedTuple):
    port: int
    secret: bytes

    @classmethod
    def from_text(cls, text: str) -> "AccessToken":
        match text.split():
            case [mark, port, secret] if mark == _MARK and port.isascii() and port.isdigit():
                try:
                    octets = bytes.fromhex(secret)
                except ValueError:
                    octets = b""
                if len(octets) == TOKEN_BYTES and len(port) < 6 and 0 < int(port) <= 65_535:
                    return cls(int(port), octets)
        raise WireError("token file", 0, "is none that a node wrote")

    def to_text(self) -> str:
        return f"{_MARK} {self.port} {self.secret.hex()}\n"

    def node_proof(self, of_client: bytes, of_node: bytes) -> bytes:
        return hmac.digest(self.secret, b"node" + of_client + of_node, "sha256")

    def client_proof(self, of_client: bytes, of_node: bytes) -> bytes:
        return hmac.digest(self.secret, b"client" + of_client + of_node, "sha256")


def is_proof(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)
