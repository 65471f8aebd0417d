"""How handlers become answers: JSON with an ETag, one line for an error, and no work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from neuronscope.analysis.stop import Stop, stoppable

__all__ = ["HEADERS", "answer", "error_answer", "json_endpoint", "while_connected"]

HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
T = TypeVar("T")
_AGAIN_S = 0.05  # between interruptions: one that comes before the SQL has begun is lost


def json_endpoint(handler: Callable[[Request], Any]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """An endpoint that answers with what the handler returns, as JSON."""

    def body(request: Request) -> bytes:
        text = json.dumps(handler(request), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="replace")

    async def endpoint(request: Request) -> Response:
        return answer(request, await while_connected(request, lambda: body(request)), "application/json")

    return endpoint


async def while_connected(request: Request, work: Callable[[], T]) -> T:
    """What `work` returns in a thread; when the client hangs up, the SQL that it runs is interrupted."""
    stop = Stop()

    def stoppable_work() -> T:
        with stoppable(stop):
            return work()

    working = asyncio.ensure_future(run_in_threadpool(stoppable_work))
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        while not working.done():
            stop.stop()
            await asyncio.wait({working}, timeout=_AGAIN_S)
        return working.result()
    finally:
        watching.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answer(request: Request, body: bytes, media_type: str) -> Response:
    """The body with an ETag of its content; 304 without it where the browser has it already."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = HEADERS | {"ETag": tag}
    held = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    if tag in held:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def error_answer(status: int, text: str) -> Response:
    """One line."""
    body = json.dumps({"error": " ".join(text.split())}, ensure_ascii=False)
    return Response(body.encode(errors="replace"), status, media_type="application/json", headers=HEADERS)
