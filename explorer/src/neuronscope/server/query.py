"""`POST …/sql`: a user's query over HTTP: size, time and rows limited, nothing written."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["MAX_ROWS", "MAX_SECONDS", "SqlRequestError", "answer", "read_body"]

MAX_ROWS = 10_000
MAX_SECONDS = 60.0
_DEFAULT_ROWS = 1_000
_DEFAULT_SECONDS = 10.0
_MAX_BODY_BYTES = 64 * 1024
_EXACT_IN_JSON = 2**53


class SqlRequestError(NeuronscopeError, ValueError):
    """The request's body is not what `/sql` takes."""


async def read_body(chunks: AsyncIterator[bytes], media_type: str) -> dict[str, Any]:
    """The JSON object of a request.

    Only `application/json` is read: a page of another site can't send that without being allowed to.

    Raises:
        SqlRequestError: another type, too long, or no object with a text `query`.
    """
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise SqlRequestError('send the query as application/json: {"query": "SELECT …"}')
    data = b""
    async for chunk in chunks:
        data += chunk
        if len(data) > _MAX_BODY_BYTES:
            raise SqlRequestError(f"the body is longer than {_MAX_BODY_BYTES:,} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise SqlRequestError("the body is no JSON") from None
    if not isinstance(body, dict) or not isinstance(body.get("query"), str):
        raise SqlRequestError('the body needs a text `query`, as in {"query": "SELECT …"}')
    return body


def answer(profile: Profile, body: dict[str, Any]) -> dict[str, Any]:
    """Run the query: `{"columns": [{"name", "type"}], "rows": [[value]], "truncated"}`.

    Integers beyond 2^53 are text, which keeps them exact; not-a-number and infinity are null.

    Raises:
        SqlRequestError: `limit` or `timeout_s` out of range.
        QueryError: a mistake in the query, a statement that is none, or it took too long.
    """
    limit = _number(body, "limit", _DEFAULT_ROWS, 1, MAX_ROWS)
    seconds = _number(body, "timeout_s", _DEFAULT_SECONDS, 0.001, MAX_SECONDS)
    table = profile.sql(body["query"], seconds, int(limit) + 1)
    kept = table.slice(0, int(limit))
    columns = [[_plain(value) for value in column.to_pylist()] for column in kept.columns]
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "truncated": table.num_rows > kept.num_rows,
    }


def _number(body: dict[str, Any], key: str, default: float, low: float, high: float) -> float:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SqlRequestError(f"{key}={value!r}: must be a number from {low:g} to {high:g}")
    return value


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -_EXACT_IN_JSON <= value <= _EXACT_IN_JSON else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value.hex() if isinstance(value, bytes) else str(value)
