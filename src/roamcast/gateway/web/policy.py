"""Who may ask: under which name of this device, from which page, with which password.

A browser on the device also runs pages of strangers. They must not use the node by way of that browser:

- A page of another origin can open a WebSocket to any address: the origin is checked (RFC 6455, 10.2).
- A stranger's name may be made to lead to this address after its page was loaded (DNS rebinding), so that
  origin and host agree. So the host must be an address, or a name that is this device's own.
- Answers say that no other origin may read or embed them, and that the page loads nothing from elsewhere.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from roamcast.gateway.users import is_user
from roamcast.gateway.web.options import WebOptions

_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")


class WebPolicy:
    def __init__(self, options: WebOptions, users: Mapping[str, str]) -> None:
        self.users = users
        self._names = {"localhost", options.host.lower(), *(name.lower() for name in options.hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in options.origins}

    def knows_host(self, host: str | None) -> bool:
        """Whether the `Host` of a request is this device. Without one it is no browser's request."""
        if host is None:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        return name in self._names or name.endswith(".local") or _is_address(name)

    def knows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of this origin may open the WebSocket. Programs that are no browsers send none."""
        if origin is None:
            return True
        if origin.lower() in self._origins:
            return True
        try:
            return host is not None and urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False

    def knows_user(self, authorization: str | None) -> bool:
        """Whether the `Authorization` (RFC 7617) is a user's. Without users everyone is welcome."""
        if not self.users:
            return True
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(value.strip(), validate=True).partition(b":")
            return is_user(self.users, name.decode(), password)
        except (binascii.Error, UnicodeDecodeError):
            return False


def security_headers(host: str | None) -> list[tuple[str, str]]:
    """For every answer. `host` is one that `knows_host` has accepted."""
    # 'self' covers WebSockets in current browsers; older ones need them by name.
    sockets = f" ws://{host} wss://{host}" if host else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self'{sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cache-Control", "no-cache"),
    ]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
