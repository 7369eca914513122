"""Who may ask, and what a request gets: a file of the page, a document about the node, or why not."""

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from roamcast.errors import InputError
from roamcast.gateway.access import Accounts, Admission
from roamcast.gateway.options import WebOptions
from roamcast.pages import live_files
from roamcast.units import Micros

_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")


class WebPolicy:
    """Who may ask: under which name of this device, from which page, with which password.

    A browser on the device also runs pages of strangers. They must not use the node by way of that browser:

    - A page of another origin can open a WebSocket to any address: the origin is checked (RFC 6455, 10.2).
    - A stranger's name may be made to lead to this address after its page was loaded (DNS rebinding), so that
      origin and host agree. So the host must be an address, or a name that is this device's own; names of the
      local network (`*.local`) belong to whoever answers for them, so they count only where the file names
      them.
    - Answers say that no other origin may read or embed them, and that the page loads nothing from elsewhere.
    """

    def __init__(self, options: WebOptions, users: Mapping[str, str], *, any_host: bool = False) -> None:
        self._any_host = any_host
        self.accounts = Accounts(users)
        self._scheme = "https" if options.tls_certificate else "http"
        self._names = {"localhost", options.host.lower(), *(name.lower() for name in options.hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in options.origins}

    def knows_host(self, host: str | None) -> bool:
        """Whether the `Host` of a request is this device. Without one it is no browser's request."""
        if host is None or self._any_host:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        return name in self._names or _is_address(name)

    def knows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of this origin may open the WebSocket. Programs that are no browsers send none."""
        if origin is None:
            return True
        own = None if host is None else f"{self._scheme}://{host.lower()}"
        return origin.lower() in (own, *self._origins)

    def admission(self, authorization: str | None, address: str, now: Micros) -> Admission:
        """Whether the `Authorization` (RFC 7617) is a user's. Without users everyone is welcome."""
        if not self.accounts:
            return "yes"
        user = user_in(authorization)
        return "no" if user is None else self.accounts.admission(*user, address, now)


def user_in(authorization: str | None) -> tuple[str, bytes] | None:
    """A name and a password, as RFC 7617 has them."""
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(value.strip(), validate=True).partition(b":")
        return name.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        return None


def security_headers(host: str | None) -> list[tuple[str, str]]:
    """The security headers of every answer. `host` is one that `knows_host` has accepted."""
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


JSON = "application/json"


class Document(NamedTuple):
    """A document that only users get."""

    kind: str
    make: Callable[[], bytes]  # anew for each request


Documents: TypeAlias = Mapping[str, Document]
"""By path."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Pages:
    """The files of a page, kept in memory; by path."""

    def __init__(self, first: str) -> None:
        """`first`: the file that `/` shows."""
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for name, data in live_files().items():
            kind = _TYPES[name.rpartition(".")[2]]
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            self._files[f"/{name}"] = (data, kind, tag)
        self._files["/"] = self._files[f"/{first}"]

    def answer(self, path: str, known: str | None) -> Response | None:
        """A file, or that it is still the one with the tag `known`; None: there is none."""
        found = self._files.get(path)
        if found is None:
            return None
        data, kind, tag = found
        if known == tag:
            return Response(304, "Not Modified", Headers([("ETag", tag)]))
        return response(HTTPStatus.OK, data, kind, ("ETag", tag))


TILE_BYTES_MAX = 1024 * 1024  # chosen by us; a tile has some ten thousand
_TILE = re.compile(r"/tiles/([0-9]{1,2}/[0-9]{1,8}/[0-9]{1,8}\.(png|jpg|webp))")
_TILE_TYPES = {"png": "image/png", "jpg": "image/jpeg", "webp": "image/webp"}


class Tiles:
    """The ground of the page's map: pictures of a folder on this device, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        """`InputError` where there is no such folder, or nothing that is a tile."""
        self._folder = folder
        try:
            zooms = sorted(int(one.name) for one in folder.iterdir() if re.fullmatch("[0-9]{1,2}", one.name))
        except OSError as error:
            raise InputError("web.tiles", f"{folder}: {error.strerror or error}") from None
        kinds = {
            one.suffix[1:] for zoom in zooms[:1] for one in folder.glob(f"{zoom}/*/*")
        } & _TILE_TYPES.keys()
        if not kinds:
            raise InputError("web.tiles", f"{folder} has no tiles; allowed: a folder of ZOOM/COLUMN/ROW.png")
        self.about = msgspec.json.encode({"zooms": zooms, "kind": min(kinds)})

    def answer(self, path: str) -> Response | None:
        found = _TILE.fullmatch(path)
        if found is None:
            return None
        try:
            with (self._folder / found[1]).open("rb") as file:
                data = file.read(TILE_BYTES_MAX + 1)
        except OSError:
            return None
        return response(HTTPStatus.OK, data, _TILE_TYPES[found[2]]) if len(data) <= TILE_BYTES_MAX else None


class WebAnswers:
    """Everything that is not a WebSocket."""

    def __init__(
        self, policy: WebPolicy, pages: Pages | None, documents: Documents, tiles: Tiles | None = None
    ) -> None:
        self._policy = policy
        self._pages = pages
        self._documents = documents
        self._tiles = tiles

    def to(self, request: Request, address: str, now: Micros) -> tuple[Response, str]:
        """The answer to a request from a known host, and as a word why it was refused, or "". `address`: of
        the client."""
        if request.method not in ("GET", "HEAD"):
            return text(
                HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed\n", ("Allow", "GET, HEAD")
            ), "method"
        path = request.path.partition("?")[0]
        if (document := self._documents.get(path)) is not None:
            refusal = self.refusal(request, address, now)
            return refusal or (response(HTTPStatus.OK, document.make(), document.kind), "")
        if self._tiles is not None and (tile := self._tiles.answer(path)) is not None:
            return self.refusal(request, address, now) or (tile, "")
        if self._pages is not None:
            found = self._pages.answer(path, single(request, "If-None-Match"))
            if found is not None:
                return found, ""
        return text(
            HTTPStatus.NOT_FOUND, "nothing is here; to publish, POST to /publish?topic=TOPIC\n"
        ), "path"

    def refusal(self, request: Request, address: str, now: Micros) -> tuple[Response, str] | None:
        """The refusal for somebody who is no user; None for a user."""
        admission = self._policy.admission(single(request, "Authorization"), address, now)
        if admission == "later":
            line = "too many guesses; wait some seconds\n"
            return text(HTTPStatus.TOO_MANY_REQUESTS, line, ("Retry-After", "2")), "too_fast"
        if admission == "no":
            # Not "Basic": browsers would ask with a window of their own, and remember the password.
            challenge = ("WWW-Authenticate", 'Roamcast realm="node"')
            return text(HTTPStatus.UNAUTHORIZED, "a user's name and password are needed\n", challenge), "user"
        return None


def finished(answer: Response, request: Request | None, host: str | None) -> Response:
    """The answer with the headers that every answer has."""
    for name, value in security_headers(host):
        answer.headers[name] = value
    if "Connection" not in answer.headers:
        answer.headers["Connection"] = "close"
    if request is not None and request.method == "HEAD":
        answer.body = b""
    return answer


def text(status: HTTPStatus, line: str, *more: tuple[str, str]) -> Response:
    return response(status, line.encode(), "text/plain; charset=utf-8", *more)


def response(status: HTTPStatus, body: bytes, kind: str, *more: tuple[str, str]) -> Response:
    headers = Headers([("Content-Type", kind), ("Content-Length", str(len(body))), *more])
    return Response(status.value, status.phrase, headers, body)


def single(request: Request, name: str) -> str | None:
    """A header that may occur once. If it occurs twice, it is treated as unknown."""
    values = request.headers.get_all(name)
    return None if not values else values[0] if len(values) == 1 else "\0"
