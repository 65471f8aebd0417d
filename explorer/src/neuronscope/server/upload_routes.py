"""Routes that take files: `uploads` does the work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from neuronscope.readers.wording import without_endings
from neuronscope.server.uploads import Upload, UploadError, Uploads

__all__ = ["upload_routes"]

_MOST_BODY_BYTES = 64 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_BYTES, _JSON = "application/octet-stream", "application/json"


def upload_routes(uploads: Uploads | None) -> list[Route]:
    """The routes below /api/uploads; without `uploads` they say that none are taken."""

    def ready() -> Uploads:
        if uploads is None:
            raise UploadError("this server takes no uploads", 403)
        return uploads

    def find(request: Request) -> Upload:
        return ready().find(request.path_params["u"])

    async def listing(_: Request) -> Response:
        return _answer({"enabled": uploads is not None} | (uploads.as_json() if uploads is not None else {}))

    async def begin(request: Request) -> Response:
        kind = _kind(request)
        if kind == _JSON:
            body = await _body(request)
            name, size = body.get("name"), body.get("size")
            if not isinstance(name, str) or not (size is None or (isinstance(size, int) and size >= 0)):
                raise UploadError(
                    'give a text `name` and, if known, the `size` in bytes: {"name": "run", "size": 1000}'
                )
            return _answer(ready().begin(name, size).as_json(), 201)
        if kind != _BYTES:  # a type that a page of another site can't send without being allowed to
            raise UploadError(f"send {_JSON} to begin an upload, or one file as {_BYTES}", 415)
        path = request.query_params.get("name", "")
        if not path:
            raise UploadError("name the file: /api/uploads?name=trace.json.gz")
        declared = _length(request)
        upload = ready().begin(without_endings(path.rsplit("/", 1)[-1]), declared)
        try:
            await ready().receive(upload, path, _chunks(request), declared)
            ready().start(upload)
        except BaseException:
            await ready().cancel(upload)
            raise
        return _answer(upload.as_json(), 202)

    async def put(request: Request) -> Response:
        if _kind(request) != _BYTES:
            raise UploadError(f"send the file as {_BYTES}", 415)
        upload = find(request)
        await ready().receive(upload, request.path_params["path"], _chunks(request), _length(request))
        return _answer(upload.as_json())

    async def read(request: Request) -> Response:
        if _kind(request) != _JSON:
            raise UploadError(f"send {_JSON}, as in {{}}", 415)
        upload = find(request)
        ready().start(upload)
        return _answer(upload.as_json(), 202)

    async def status(request: Request) -> Response:
        return _answer(find(request).as_json())

    async def cancel(request: Request) -> Response:
        upload = find(request)
        await ready().cancel(upload)
        return _answer(upload.as_json())

    async def events(request: Request) -> Response:
        return StreamingResponse(ready().follow(find(request)), media_type="text/event-stream", headers=_HEADERS)

    one = "/api/uploads/{u}"
    listed: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("/api/uploads", "GET", listing),
        ("/api/uploads", "POST", begin),
        (f"{one}/files/{{path:path}}", "PUT", put),
        (f"{one}/read", "POST", read),
        (f"{one}/events", "GET", events),
        (one, "GET", status),
        (one, "DELETE", cancel),
    ]
    return [Route(path, handler, methods=[method]) for path, method, handler in listed]


def _answer(body: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, headers=_HEADERS)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _length(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise UploadError("the connection broke before the whole file was there") from None


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for chunk in _chunks(request):
        data += chunk
        if len(data) > _MOST_BODY_BYTES:
            raise UploadError(f"the body is longer than {_MOST_BODY_BYTES:,} bytes", 413)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UploadError("the body is no JSON object")
    return found
