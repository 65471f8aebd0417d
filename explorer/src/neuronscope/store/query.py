"""A user's SQL over a profile: one query that only reads, with a time limit."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["SqlError", "check_query", "first_line", "read_only", "time_limit"]

_COMMENTS = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_READ_ONLY = "only queries are allowed (SELECT, WITH, FROM, DESCRIBE, EXPLAIN): profiles are read-only"
_CHANGES = re.compile(
    r'"name": "(?:[A-Z_]*COPY|[A-Z_]*INSERT|DELETE|UPDATE|MERGE_INTO|[A-Z_]*CREATE|DROP|ALTER|EXPORT)'
)
_EXPLAIN = re.compile(rf"{_COMMENTS}explain\b{_COMMENTS}(?:analyze\b|\([^()]*\))?", re.IGNORECASE | re.DOTALL)


class SqlError(NeuronscopeError, ValueError):
    """A query is not one SELECT, has a mistake, or took too long; the text is its first line."""


def check_query(text: str) -> str:
    """Refuse anything but one query that reads.

    An EXPLAIN counts as what it explains: EXPLAIN ANALYZE runs its statement, so one of COPY would write files.

    Returns:
        The query, without its EXPLAIN.

    Raises:
        SqlError: a syntax error, more than one statement, or a statement that is not a query.
    """
    for _ in range(2):
        try:
            statements = duckdb.extract_statements(text)
        except duckdb.Error as error:
            raise SqlError(first_line(error)) from None
        if len(statements) != 1:
            raise SqlError(f"expected one statement, got {len(statements)}")
        if statements[0].type == duckdb.StatementType.SELECT:
            return text
        explained = _EXPLAIN.match(text)
        if statements[0].type != duckdb.StatementType.EXPLAIN or explained is None:
            break
        text = text[explained.end() :]
    raise SqlError(_READ_ONLY)


@contextmanager
def read_only(connection: duckdb.DuckDBPyConnection, query: str, parameters: Any = None) -> Iterator[None]:
    """What the connection does in the block changes nothing: a query can hide a statement that would.

    `WITH x AS (COPY … TO …) SELECT …` is a SELECT, and so is one that a function makes from a text; the plan shows what
    they do, and is looked at without running it.

    Args:
        connection: with a transaction of its own for the block.
        query: what will run, as of `check_query`.
        parameters: its values.

    Raises:
        SqlError: it would change something.
        duckdb.Error: a mistake in it.
    """
    connection.execute("BEGIN TRANSACTION READ ONLY")
    plan = connection.execute(f"EXPLAIN (FORMAT JSON) {query}", parameters).fetchall()
    if any(_CHANGES.search(text) for _, text in plan):
        raise SqlError(_READ_ONLY)
    yield


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    """Interrupt what the connection does in the block after this time; None or 0: never.

    Raises:
        SqlError: it took longer.
    """
    if not seconds:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        raise SqlError(f"stopped after {seconds:g} s: the query takes longer") from None
    finally:
        timer.cancel()


def first_line(error: Exception) -> str:
    """What DuckDB says, without its picture of the query."""
    return str(error).strip().splitlines()[0]
