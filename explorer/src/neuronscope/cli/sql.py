"""`neuronscope sql`: a query over a profile's tables."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neuronscope.cli.options import DataPath, Json, OnePath
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sql"]

_SHOWN = 100
_TIMEOUT_S = 60.0


def sql(
    path: OnePath,
    query: Annotated[str, typer.Argument(help="One SELECT in DuckDB's SQL; - reads it from standard input.")],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every row as CSV.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop the query after this time; 0: never.")
    ] = _TIMEOUT_S,
    data_path: DataPath = None,
) -> None:
    """Query a profile: its tables (--show-profile-schema lists them), operators(), executions(), idle(), totals()."""
    from neuronscope.analysis.units import plural
    from neuronscope.cli.opening import open_profiles
    from neuronscope.cli.text import free_table

    if as_json and as_csv:
        raise NeuronscopeError("--json and --csv exclude each other")
    text = sys.stdin.read() if query == "-" else query
    result = open_profiles([path], None, data_path)[0].sql(text, timeout or None)
    result = _shortest(result)
    names = result.column_names
    if as_json:
        typer.echo(json.dumps(result.to_pylist(), ensure_ascii=False, default=str))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for batch in result.to_batches():
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    else:
        rows = [list(row) for row in zip(*(column.to_pylist() for column in result.slice(0, _SHOWN)), strict=True)]
        typer.echo(free_table(names, rows, max(shutil.get_terminal_size((80, 24)).columns, 40)))
        more = result.num_rows - len(rows)
        hidden = f", {more:,} not shown (--csv prints all)" if more else ""
        typer.echo(f"{plural(result.num_rows, 'row')}{hidden}")


def _shortest(result: pa.Table) -> pa.Table:
    """The same with single-precision numbers as people write them: 0.069, not the double nearest to its float."""
    import pyarrow as pa

    for index, field in enumerate(result.schema):
        if field.type == pa.float32():
            numbers = result.column(index).cast(pa.string()).cast(pa.float64())
            result = result.set_column(index, field.name, numbers)
    return result
