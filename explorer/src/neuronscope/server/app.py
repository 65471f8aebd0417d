"""Routes of docs/http-api.md over opened profiles: `neuronscope.analysis` computes answers, `uploads` takes files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from importlib.metadata import version
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from neuronscope.analysis import (
    card,
    chain,
    compare,
    compare_api,
    condition,
    diff,
    events,
    gaps,
    operators,
    roofline,
    top,
)
from neuronscope.analysis.catalog import ANALYSES, UnknownAnalysisError
from neuronscope.analysis.device_view import NoDeviceRowsError, open_execution
from neuronscope.analysis.events import UnknownEventError
from neuronscope.analysis.library import of_stored
from neuronscope.analysis.overview import overview as overview_of
from neuronscope.analysis.profile import Profile, Range, unique_names
from neuronscope.formats.errors import NeuronscopeError
from neuronscope.readers.wording import printable
from neuronscope.server import openapi, query
from neuronscope.server.answers import HEADERS, answer, error_answer, json_endpoint, while_connected
from neuronscope.server.sources import Sources
from neuronscope.server.upload_routes import upload_routes
from neuronscope.server.uploads import DEFAULT_LIMIT_BYTES, UploadError, Uploads
from neuronscope.server.web import page
from neuronscope.store import Store

__all__ = ["ARROW_TYPE", "create_app"]

ARROW_TYPE = "application/vnd.apache.arrow.stream"
_MAX_WIDTH = 16_384
_MAX_LIMIT = 10_000
_INT64 = 2**63
_DIGITS = 20
_EXECUTIONS_OPEN = 8
_PLAIN = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'self'"


class RequestError(NeuronscopeError, ValueError):
    """A parameter of a request is missing or out of range."""


class _GoneError(NeuronscopeError):
    """What was opened is no longer in the library."""


class _NotFoundError(NeuronscopeError, KeyError):
    def __str__(self) -> str:
        return str(self.args[0])


def create_app(
    opened: Sequence[Profile],
    store: Store | None = None,
    upload_limit_bytes: int = DEFAULT_LIMIT_BYTES,
    sources: Sources | None = None,
) -> Starlette:
    """The application.

    Args:
        opened: profiles, in this order; their ids must differ.
        store: the library that takes uploads; None: none are taken.
        upload_limit_bytes: of one upload.
        sources: where source code is that may be shown.
    """
    code = sources or Sources()
    profiles = list(opened)
    adding = Lock()
    by_id = {profile.id: profile for profile in profiles}
    if len(by_id) != len(profiles):
        raise ValueError("profile ids must be unique")

    def add(identity: str, name: str) -> str:
        """Open a profile of the library beside the others; its id here."""
        assert store is not None
        with adding:
            chosen = unique_names([*(profile.name for profile in profiles), name])[-1]
            stored = store.open(identity)
            store.opened(stored)
            profile = of_stored(stored, chosen)
            by_id[profile.id] = profile
            profiles.append(profile)
        return profile.id

    uploads = Uploads(store, add, upload_limit_bytes) if store is not None else None

    def find(identity: str) -> Profile:
        outer, _, execution = identity.partition("~")
        if execution.isdecimal() and len(execution) < _DIGITS and outer in by_id:
            return one_execution(find(outer), int(execution))
        try:
            profile = by_id[identity]
        except KeyError:
            raise _NotFoundError(f"no profile {identity!r}. Opened: {', '.join(by_id) or 'none'}") from None
        if profile.replaced:
            raise _GoneError(f"{profile.name}: read anew since it was opened here. {_again([profile])}")
        return profile

    inner: dict[tuple[int, int], Profile] = {}
    making = Lock()

    def one_execution(profile: Profile, execution: int) -> Profile:
        """The engines and queues of an execution as a profile; the last few stay open."""
        key = id(profile), execution
        with making:
            if key not in inner:
                inner[key] = open_execution(profile, execution)
                while len(inner) > _EXECUTIONS_OPEN:
                    inner.pop(next(iter(inner)))
            return inner[key]

    def listing(_: Request) -> Any:
        return [card.profile_line(profile) for profile in profiles]

    def profile_card(request: Request) -> Any:
        return card.profile_card(find(request.path_params["p"]))

    def overview(request: Request) -> Any:
        profile = find(request.path_params["p"])
        start, end = _window(request, profile)
        return {"tracks": overview_of(profile, start, end, _integer(request, "width", 1000, 1, _MAX_WIDTH))}

    def tiles(request: Request) -> Response:
        profile = find(request.path_params["p"])
        start, end = _window(request, profile)
        tracks = request.query_params.get("tracks", "")
        try:
            chosen = {int(track) for track in tracks.split(",")} if tracks else None
        except ValueError:
            raise RequestError(f"tracks={tracks!r}: give track ids separated by commas, as in tracks=1,2") from None
        table = profile.timeline.tile(start, end, _integer(request, "width", 1000, 1, _MAX_WIDTH), chosen)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return answer(request, sink.getvalue().to_pybytes(), ARROW_TYPE)

    def event(request: Request) -> Any:
        return events.event_details(find(request.path_params["p"]), _event(request.path_params["id"]))

    def event_chain(request: Request) -> Any:
        return chain.chain(find(request.path_params["p"]), _event(request.path_params["id"]))

    def neighbours(request: Request) -> Any:
        direction = request.query_params.get("direction", "next")
        if direction not in ("next", "previous"):
            raise RequestError(f"direction={direction!r}: give next or previous")
        return events.neighbour(
            find(request.path_params["p"]), _event(request.query_params.get("event", "")), direction
        )

    def gap_list(request: Request) -> Any:
        return gaps.gaps(find(request.path_params["p"]), _integer(request, "limit", 100, 1, _MAX_LIMIT))

    def operator_table(request: Request) -> Any:
        profile = find(request.path_params["p"])
        selected = _range(request, profile)
        table = profile.operators(selected)
        total = compare_api.operator_rows([table.total])[0]
        return {
            "rows": compare_api.operator_rows(table.rows),
            "total": total,
            "reason": operators.reason(profile, selected),
            "range": selected.text,
        }

    def search(request: Request) -> Any:
        profile = find(request.path_params["p"])
        text = request.query_params.get("q", "")
        if not text:
            return {"total": 0, "events": []}
        try:
            total, found = events.search(profile, text, _integer(request, "limit", 100, 1, _MAX_LIMIT))
        except duckdb.IOException:  # not the text's fault
            raise
        except duckdb.Error as error:
            raise RequestError(f"q={text!r}: {str(error).splitlines()[0]}") from None
        return {"total": total, "events": found}

    def ingest(request: Request) -> Any:
        return card.ingest_report(find(request.path_params["p"]))

    def comparison(request: Request) -> Any:
        names = [name for name in request.query_params.get("profiles", "").split(",") if name]
        chosen = [find(name) for name in dict.fromkeys(names)] if names else [find(name) for name in by_id]
        base = request.query_params.get("base") or None
        return compare_api.to_api(compare.compare(chosen, base))

    def unreadable(request: Request, error: Exception) -> Response:
        gone = [
            profile
            for profile in profiles
            if profile.id == request.path_params.get("p", profile.id)
            and profile.directory is not None
            and not profile.directory.is_dir()
        ]
        if not gone:
            return _broken(request, error)
        names = ", ".join(profile.name for profile in gone)
        return error_answer(410, f"{names}: removed from the library since it was opened. {_again(gone)}")

    def top_rows(request: Request) -> Any:
        profile = find(request.path_params["p"])
        by = request.query_params.get("by", "operator")
        if by not in top.ATTRIBUTES:
            raise RequestError(f"by={by!r}: give one of {', '.join(top.ATTRIBUTES)}")
        found = top.top(profile, by, _integer(request, "limit", 100, 1, _MAX_LIMIT), _range(request, profile)).to_dict()
        rows = [row | {"first_event": str(row["first_event"])} for row in found["rows"]]
        return found | {"rows": rows}

    def roofs(request: Request) -> Any:
        profile = find(request.path_params["p"])
        try:
            return {"reason": "", **roofline.roofline(profile, _range(request, profile)).to_dict()}
        except roofline.RooflineError as error:  # no device, or one whose peaks nobody told
            return {"reason": str(error), "rows": []}

    def source(request: Request) -> Any:
        return code.lines(_text(request, "place"))

    def analysis_list(_: Request) -> Any:
        return [{"name": one.name, "title": one.title, "share_of": one.share} for one in ANALYSES.values()]

    def analysis(request: Request) -> Any:
        profile = find(request.path_params["p"])
        given = "start" in request.query_params or "end" in request.query_params
        selected = _range(request, profile) if given else None
        return profile.analyse(request.path_params["name"], selected).to_api(profile.origin_ns)

    def difference(request: Request) -> Any:
        before, after = (find(_text(request, name)) for name in ("before", "after"))
        found = diff.diff(before, after)
        text = request.query_params.get("fail_on")
        worse, tests = diff.judge(found, condition.parse(text)) if text else (None, [])
        return found.to_dict() | {"fail_on": text, "worse": worse, "tests": tests}

    async def sql(request: Request) -> Response:
        profile = find(request.path_params["p"])
        body = await query.read_body(request.stream(), request.headers.get("content-type", ""))
        rows = await while_connected(request, lambda: query.answer(profile, body))
        text = json.dumps(rows, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Response(text.encode(errors="replace"), media_type="application/json", headers=HEADERS)

    def api_document(_: Request) -> Any:
        return openapi.document(version("neuronscope"))

    def api_page(_: Request) -> Response:
        return HTMLResponse(
            openapi.page_html(version("neuronscope")), headers=HEADERS | {"Content-Security-Policy": _PLAIN}
        )

    prefix = "/api/profiles/{p}"
    json_routes: list[tuple[str, Callable[[Request], Any]]] = [
        ("/api/profiles", listing),
        (prefix, profile_card),
        (f"{prefix}/overview", overview),
        (f"{prefix}/events/{{id}}", event),
        (f"{prefix}/events/{{id}}/chain", event_chain),
        (f"{prefix}/neighbours", neighbours),
        (f"{prefix}/gaps", gap_list),
        (f"{prefix}/operators", operator_table),
        (f"{prefix}/search", search),
        (f"{prefix}/ingest", ingest),
        (f"{prefix}/top", top_rows),
        (f"{prefix}/roofline", roofs),
        ("/api/source", source),
        ("/api/analyses", analysis_list),
        (f"{prefix}/analyses/{{name}}", analysis),
        ("/api/compare", comparison),
        ("/api/diff", difference),
        ("/api/openapi.json", api_document),
    ]
    routes = [Route(path, json_endpoint(handler)) for path, handler in json_routes]
    routes.append(Route(f"{prefix}/tiles", tiles))
    routes.append(Route(f"{prefix}/sql", sql, methods=["POST"]))
    routes += upload_routes(uploads)
    routes.append(Route("/api/docs", api_page))
    routes.append(Route("/api/{rest:path}", _no_route))
    routes.append(Route("/{path:path}", page))
    application = Starlette(
        routes=routes,
        middleware=[Middleware(GZipMiddleware, minimum_size=1400, compresslevel=2)],
        exception_handlers={
            _NotFoundError: _failure(404),
            _GoneError: _failure(410),
            duckdb.IOException: unreadable,
            UploadError: _upload_failure,
            UnknownEventError: _failure(404),
            NoDeviceRowsError: _failure(404),
            UnknownAnalysisError: _failure(404),
            NeuronscopeError: _failure(400),
            HTTPException: _http_failure,
            Exception: _broken,
        },
    )
    application.state.uploads = uploads
    return application


def _again(profiles: Sequence[Profile]) -> str:
    sources = [shlex.quote(printable(profile.source)) for profile in profiles if profile.source]
    return f"Run `{' '.join(['neuronscope view', *sources])}` again"


def _no_route(request: Request) -> Response:
    raise _NotFoundError(f"no route {request.method} {request.url.path}. /api/docs lists them")


def _failure(status: int) -> Callable[[Request, Exception], Response]:
    def handler(_: Request, error: Exception) -> Response:
        return error_answer(status, str(error))

    return handler


def _upload_failure(_: Request, error: Exception) -> Response:
    assert isinstance(error, UploadError)
    return error_answer(error.status, str(error))


def _http_failure(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "this route answers to another method: see /api/docs" if error.status_code == 405 else error.detail
    return error_answer(error.status_code, text)


def _broken(_: Request, error: Exception) -> Response:
    """Our own mistake: its kind for the user, the traceback for the server's log (starlette re-raises it there)."""
    return error_answer(
        500, f"internal error ({type(error).__name__}): the server's log has the details; please report it"
    )


def _integer(request: Request, name: str, default: int | None, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        if default is None:
            raise RequestError(f"parameter {name} is missing")
        return default
    try:
        value = int(float(text)) if "." in text or "e" in text.lower() else int(text)
    except (ValueError, OverflowError):
        raise RequestError(f"{name}={text!r}: give a whole number") from None
    if not low <= value <= high:
        raise RequestError(f"{name}={value}: must be {low} to {high}")
    return value


def _text(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if not text:
        raise RequestError(f"parameter {name} is missing")
    return text


def _window(request: Request, profile: Profile) -> tuple[int, int]:
    """`start` and `end` of a request, relative to the origin; default the whole profile."""
    start = _integer(request, "start", 0, -_INT64 // 4, _INT64 // 4)
    end = _integer(request, "end", max(profile.span_ns, 1), -_INT64 // 4, _INT64 // 4)
    if end <= start:
        raise RequestError(f"start={start} end={end}: end must be greater than start")
    return start, end


def _range(request: Request, profile: Profile) -> Range:
    if "start" not in request.query_params and "end" not in request.query_params:
        return profile.default_range
    start, end = _window(request, profile)
    return profile.range(start + profile.origin_ns, end + profile.origin_ns)


def _event(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise RequestError(f"event id {text!r} is not a number") from None
    if not -_INT64 <= value < _INT64:
        raise RequestError(f"event id {text} does not fit in 64 bits")
    return value
