"""Who may ask: on loopback only pages of this machine's own address, elsewhere only who has the token.

A page of any site can make its own host name resolve to 127.0.0.1 and then read this server as if it were its own (DNS
rebinding); the Host header gives it away. And it can send requests without reading the answers: what would change
something is refused when its Origin header names another site.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["LOOPBACK", "Guard"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names under which a server on loopback is asked for, also through a tunnel."""


class Guard:
    """ASGI middleware in front of the application.

    Args:
        app: the application.
        hosts: names that the Host header may give; None: any.
        token: what a client must know, as `?token=` once (a cookie keeps it) or `Authorization: Bearer`; None: nothing.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, token: str | None) -> None:
        self.app = app
        self.hosts = hosts
        self.token = token
        # A browser sends a host's cookies to all its ports: each server needs its own.
        self.cookie = f"neuronscope_{hashlib.sha256((token or '').encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 403, or keep its token in a cookie."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = _host_name(headers.get("host", ""))
        if self.hosts is not None and host not in self.hosts:
            text = f"this server answers to {', '.join(sorted(self.hosts))}, not to {host!r}"
            await _answer(send, 403, text)
        elif scope["method"] not in ("GET", "HEAD") and _foreign(headers):
            await _answer(send, 403, f"a page of {headers['origin'][:200]} may not change anything here")
        elif self.token is None:
            await self.app(scope, receive, send)
        else:
            await self._with_token(scope, receive, send, headers)

    async def _with_token(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        offered = dict(query).get("token")
        if offered is not None and self._right(offered):
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            where = scope.get("raw_path", b"/").decode("latin-1") + (f"?{rest}" if rest else "")
            cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, "", [("location", "/" + where.lstrip("/\\")), ("set-cookie", cookie)])
        elif self._right(headers.get("authorization", "").removeprefix("Bearer ")) or self._right(
            _cookie(headers, self.cookie)
        ):
            await self.app(scope, receive, send)
        else:
            await _answer(send, 403, "a token is needed: open the whole link that the server printed, with ?token=…")

    def _right(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), str(self.token).encode())


def _foreign(headers: dict[str, str]) -> bool:
    """Whether a browser says that the page which asks came from elsewhere."""
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").strip().lower()


def _host_name(header: str) -> str:
    """The name of a Host header without its port, lower case."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name


def _cookie(headers: dict[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


async def _answer(send: Send, status: int, text: str, headers: list[tuple[str, str]] | None = None) -> None:
    body = json.dumps({"error": text}, ensure_ascii=False).encode() if text else b""
    listed = [("content-type", "application/json"), ("cache-control", "no-store"), *(headers or [])]
    start = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in listed]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
