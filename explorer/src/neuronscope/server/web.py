"""The built page, served from the package's `_web` folder; a page that says how to build it where it is missing."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

__all__ = ["WEB_ROOT", "page"]

WEB_ROOT = Path(__file__).resolve().parent.parent / "_web"

# Names in profiles come from files of unknown origin: no script but our own may run, whatever a name contains.
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": _POLICY}
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}

_MISSING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Neuronscope</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 4em auto; padding: 0 1em }
code { background: #8882; padding: .1em .3em }
</style>
<h1>The page has not been built</h1>
<p>The server runs and answers <a href="/api/profiles">/api/profiles</a>, but this installation of neuronscope holds no
web page. In a clone of the repository run <code>make ui</code> and reload; a wheel from <code>make wheels</code> has it
built in.</p>
<p>The same figures are in the terminal: <code>neuronscope summary PATH</code>,
<code>neuronscope compare PATH PATH</code>.</p></html>
"""


def page(request: Request) -> Response:
    """A file of the built page; `index.html` for paths without a file, which the page itself routes."""
    wanted = request.path_params["path"]
    root = WEB_ROOT
    if not (root / "index.html").is_file():
        return HTMLResponse(_MISSING, 503, headers=_HEADERS)
    file = _inside(root, wanted)
    if file is None:
        if Path(wanted).suffix and not wanted.endswith(".html"):
            return PlainTextResponse("no such file", 404, headers=_HEADERS)
        file = root / "index.html"
    # Vite puts a content hash into the names below assets/; anything else may change with the next build.
    forever = "assets" in file.relative_to(root).parts[:-1]
    caching = "public, max-age=31536000, immutable" if forever else "no-cache"
    kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return FileResponse(file, media_type=kind, headers=_HEADERS | {"Cache-Control": caching})


def _inside(root: Path, wanted: str) -> Path | None:
    """The file below `root`, None when it does not exist or lies elsewhere."""
    if not wanted or "\0" in wanted:
        return None
    try:
        file = (root / wanted).resolve()
        return file if file.is_relative_to(root.resolve()) and file.is_file() else None
    except OSError:
        return None
