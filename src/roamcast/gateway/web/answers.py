"""What a request gets: a file of the page, a document about the node, or why not."""

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeAlias

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from roamcast.gateway.web.policy import WebPolicy, security_headers
from roamcast.pages import live_files

Documents: TypeAlias = Mapping[str, Callable[[], bytes]]
"""By path: what makes the document (JSON) anew for each request. Only users get it."""

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


class Answers:
    """Everything that is not a WebSocket."""

    def __init__(self, policy: WebPolicy, pages: Pages | None, documents: Documents) -> None:
        self._policy = policy
        self._pages = pages
        self._documents = documents

    def to(self, request: Request) -> tuple[Response, str]:
        """The answer to a request from a known host, and as a word why it was refused, or ""."""
        if request.method not in ("GET", "HEAD"):
            return text(
                HTTPStatus.METHOD_NOT_ALLOWED, "only GET is allowed\n", ("Allow", "GET, HEAD")
            ), "method"
        path = request.path.partition("?")[0]
        if (make := self._documents.get(path)) is not None:
            if not self._policy.knows_user(single(request, "Authorization")):
                # Not "Basic": browsers would ask with a window of their own, and remember the password.
                challenge = ("WWW-Authenticate", 'Roamcast realm="node"')
                return text(
                    HTTPStatus.UNAUTHORIZED, "a user's name and password are needed\n", challenge
                ), "user"
            return response(HTTPStatus.OK, make(), "application/json"), ""
        if self._pages is not None:
            found = self._pages.answer(path, single(request, "If-None-Match"))
            if found is not None:
                return found, ""
        return text(HTTPStatus.NOT_FOUND, "nothing is here\n"), "path"


def finished(answer: Response, request: Request | None, host: str | None) -> Response:
    """With the headers that every answer has."""
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
    """A header that may come once; one that comes twice is treated as one that nobody knows."""
    values = request.headers.get_all(name)
    return None if not values else values[0] if len(values) == 1 else "\0"
