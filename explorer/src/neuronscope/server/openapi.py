"""The HTTP interface described: one declaration per route, as an OpenAPI document and as a page for people."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ROUTES", "Parameter", "RouteSpec", "document", "page_html"]


@dataclass(frozen=True)
class Parameter:
    """A query or path parameter."""

    name: str
    kind: str
    doc: str
    required: bool = False
    example: str = ""


@dataclass(frozen=True)
class RouteSpec:
    """A route: its path with `{parameters}`, what it answers, what it takes."""

    path: str
    doc: str
    parameters: tuple[Parameter, ...] = ()
    answer: str = "application/json"
    body: str = ""
    method: str = ""
    file: bool = False

    @property
    def verb(self) -> str:
        """The method in capitals."""
        return self.method or ("POST" if self.body else "GET")


_START = Parameter("start", "integer", "ns relative to the profile's origin; default its beginning")
_END = Parameter("end", "integer", "ns relative to the origin, excluded; default its end")
_WIDTH = Parameter("width", "integer", "pixels, 1 to 16384", example="1000")
_LIMIT = Parameter("limit", "integer", "how many at most, 1 to 10000", example="100")

ROUTES: tuple[RouteSpec, ...] = (
    RouteSpec("/api/profiles", "Opened profiles, in the order opened."),
    RouteSpec("/api/profiles/{p}", "The profile card: who made it, its health, steps, tracks, names, largest facts."),
    RouteSpec(
        "/api/profiles/{p}/tiles",
        "What to draw of a range, as an Arrow IPC stream: one row per item, narrow ones merged per pixel.",
        (_START, _END, _WIDTH, Parameter("tracks", "string", "track ids, separated by commas; default all")),
        "application/vnd.apache.arrow.stream",
    ),
    RouteSpec("/api/profiles/{p}/overview", "How busy host and device are, per pixel.", (_START, _END, _WIDTH)),
    RouteSpec("/api/profiles/{p}/events/{id}", "One event in full."),
    RouteSpec("/api/profiles/{p}/events/{id}/chain", "What caused an event, what it caused, and the waits between."),
    RouteSpec(
        "/api/profiles/{p}/neighbours",
        "The next or previous slice in an event's lane, or null.",
        (
            Parameter("event", "string", "event id", required=True),
            Parameter("direction", "string", "next or previous", example="next"),
        ),
    ),
    RouteSpec("/api/profiles/{p}/gaps", "Idle intervals of the device, largest first, with causes.", (_LIMIT,)),
    RouteSpec(
        "/api/profiles/{p}/operators", "The operator table of a range, and why it takes as long.", (_START, _END)
    ),
    RouteSpec(
        "/api/profiles/{p}/top",
        "What takes the most device time in a range.",
        (
            Parameter(
                "by",
                "string",
                "operator, kernel, module, region, source, stack, step, rank, device or category",
                example="operator",
            ),
            _START,
            _END,
            _LIMIT,
        ),
    ),
    RouteSpec(
        "/api/source",
        "The code around a source line, from the folders given with --framework-source-root and --nki-source-root.",
        (Parameter("place", "string", "file and line", required=True, example="naive.py:12"),),
    ),
    RouteSpec("/api/analyses", "The analyses there are: name, what each answers, what its shares are shares of."),
    RouteSpec(
        "/api/profiles/{p}/analyses/{name}",
        "One analysis of a range: rows as of its SQL file, sentences, or the reason why there are none.",
        (_START, _END),
    ),
    RouteSpec(
        "/api/profiles/{p}/roofline",
        "Each executable of a range against the hardware's peaks, and what bounds it: launch, compute or memory.",
        (_START, _END),
    ),
    RouteSpec(
        "/api/profiles/{p}/search",
        "Slices by name or operator.",
        (Parameter("q", "string", "text, or /a regular expression/", required=True), _LIMIT),
    ),
    RouteSpec("/api/profiles/{p}/ingest", "What became of every event of the file."),
    RouteSpec(
        "/api/profiles/{p}/sql",
        "Run one read-only query over the profile's tables and macros; stopped after its time limit.",
        body='{"query": "SELECT * FROM operators()", "limit": 1000, "timeout_s": 10}',
    ),
    RouteSpec(
        "/api/compare",
        "Profiles side by side: terms of the differences in span, which sum exactly.",
        (
            Parameter("profiles", "string", "profile ids, separated by commas; default all"),
            Parameter("base", "string", "the profile the others are set against; default the first"),
        ),
    ),
    RouteSpec(
        "/api/diff",
        "Two profiles step by step, by operator path, with medians and spread.",
        (
            Parameter("before", "string", "profile id", required=True),
            Parameter("after", "string", "profile id", required=True),
            Parameter(
                "fail_on", "string", "a condition as of `neuronscope diff --fail-on`", example="device_time > 5%"
            ),
        ),
    ),
    RouteSpec("/api/uploads", "Whether uploads are taken, their limit, and those of this server."),
    RouteSpec(
        "/api/uploads",
        "Begin an upload. Or send one file as application/octet-stream with its name: it is received, read and opened.",
        (Parameter("name", "string", "the file's name, when the body is the file", example="trace.json.gz"),),
        body='{"name": "run 7", "size": 1000000}',
    ),
    RouteSpec(
        "/api/uploads/{u}/files/{path}",
        "One file of an upload, as the body; path is its place in the upload, as in rank0/trace.json.",
        method="PUT",
        file=True,
    ),
    RouteSpec("/api/uploads/{u}/read", "All files are there: read the upload and open the profile.", body="{}"),
    RouteSpec("/api/uploads/{u}", "How far an upload is: receiving, reading, done, failed or cancelled."),
    RouteSpec("/api/uploads/{u}/events", "The same as server-sent events, until it ends.", answer="text/event-stream"),
    RouteSpec("/api/uploads/{u}", "Cancel an upload; what it left is removed.", method="DELETE"),
    RouteSpec("/api/openapi.json", "This description."),
    RouteSpec("/api/docs", "This description as a page.", answer="text/html"),
)
"""Every route below /api."""

_PATH_PARAMETERS = {
    "p": Parameter("p", "string", "profile id", required=True),
    "id": Parameter("id", "string", "event id", required=True),
    "u": Parameter("u", "string", "upload id", required=True),
    "path": Parameter("path", "string", "the file's place in the upload", required=True),
    "name": Parameter("name", "string", "analysis: steps, insights, overlap, ranks, memory, …", required=True),
}


def document(version: str) -> dict[str, Any]:
    """The interface as OpenAPI 3.1; `version` is the explorer's."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Neuronscope explorer",
            "version": version,
            "description": "Times are integer nanoseconds relative to a profile's origin; ids are text.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string", "description": "one line: what, where, what to do"}},
                    "required": ["error"],
                }
            }
        },
    }


def _paths() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        found.setdefault(route.path, {})[route.verb.lower()] = _operation(route)
    return found


def _operation(route: RouteSpec) -> dict[str, Any]:
    failure = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "summary": route.doc,
        "parameters": [
            {
                "name": one.name,
                "in": where,
                "required": one.required,
                "description": one.doc,
                "schema": {"type": one.kind},
            }
            | ({"example": one.example} if one.example else {})
            for where, listed in (("path", _in_path(route)), ("query", route.parameters))
            for one in listed
        ],
        "responses": {
            "200": {"description": "the answer", "content": {route.answer: {}}},
            "400": {"description": "a wrong parameter", "content": failure},
            "404": {"description": "no such profile or event", "content": failure},
        },
    }
    if route.body:
        example: Mapping[str, Any] = json.loads(route.body)
        kinds = {key: {"type": "string" if isinstance(value, str) else "number"} for key, value in example.items()}
        needed = [key for key in ("query", "name") if key in kinds]
        schema = {"type": "object", "properties": kinds} | ({"required": needed} if needed else {})
        content = {"application/json": {"schema": schema, "example": example}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.file:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _in_path(route: RouteSpec) -> list[Parameter]:
    return [one for name, one in _PATH_PARAMETERS.items() if f"{{{name}}}" in route.path]


def page_html(version: str) -> str:
    """The same for people; no script."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Neuronscope: HTTP interface</title><style>',
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color-scheme:light dark}",
        "code{background:#8882;padding:.1em .3em}h2{font-size:1em;margin:1.6em 0 .2em}p{margin:.2em 0}",
        "table{border-collapse:collapse}td{padding:.1em .8em .1em 0;vertical-align:top}</style>",
        f"<h1>HTTP interface</h1><p>Neuronscope {html.escape(version)}. As a document for tools: "
        '<a href="/api/openapi.json">openapi.json</a>. Times are integer nanoseconds relative to the profile\'s '
        "origin; ids are text. Errors are <code>{&quot;error&quot;: text}</code>.</p>",
    ]
    for route in ROUTES:
        parts.append(f"<h2><code>{route.verb} {html.escape(route.path)}</code></h2><p>{html.escape(route.doc)}</p>")
        if route.body:
            parts.append(f"<p>Body: <code>{html.escape(route.body)}</code></p>")
        if route.answer != "application/json":
            parts.append(f"<p>Answers <code>{html.escape(route.answer)}</code></p>")
        if route.parameters:
            rows = "".join(
                f"<tr><td><code>{html.escape(one.name)}</code>{' (needed)' if one.required else ''}</td>"
                f"<td>{html.escape(one.doc)}</td></tr>"
                for one in route.parameters
            )
            parts.append(f"<table>{rows}</table>")
    return "".join(parts) + "</html>"
