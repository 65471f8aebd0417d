"""Damage to a file: bytes of any, and the structure of JSON, SQLite and Parquet."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

__all__ = ["damage"]

SPICE = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\\u12", b'\\"'),
    *(b"NaN", b"-inf", b"1e400", b"9" * 40, b"-", b"null", b'{"ph":', b'"traceEvents":[', b"]}", b"},{", b"// x", b"'"),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        0.5,
        -0.0,
        1e-9,
        2**31,
        2**32 - 1,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        2**64 - 1,
        10**40,
    ),
    *(float("nan"), float("inf"), "", "0", "-1", "1e3", "nan", "stream 7", "x" * 3000, "\ud800", "\0", [], {}, [[]]),
    *({"a": {"b": [1]}}, [1, "2"], "0x10", "ｆ", -9.5e18, "2026-01-01"),
)


def damage(chooser: random.Random, file: Path, seed: Any) -> tuple[bool, str]:
    """Change the file; whether only one small place of a plain chrome trace's list is touched, and what was done."""
    roll = chooser.random()
    if file.suffix in (".json", ".csv") and roll < 0.4:
        if file.suffix == ".json":
            return False, _json(chooser, file)
        return False, _cells(chooser, file)
    if file.suffix in (".sqlite", ".db") and roll < 0.7:
        return False, _sqlite(chooser, file)
    if file.suffix == ".parquet" and roll < 0.7:
        return False, _parquet(chooser, file)
    return _bytes(chooser, file, seed)


def _bytes(chooser: random.Random, file: Path, seed: Any) -> tuple[bool, str]:
    data = bytearray(file.read_bytes())
    times = chooser.choice((1, 1, 1, 2, 5, 20))
    listed = data.find(b'"traceEvents": [') + 16, data.rfind(b"]", 0, data.rfind(b'"traceName"')) - 2
    done = []
    local = times == 1 and seed.format in ("chrome", "chrome indented")
    for _ in range(times):
        at = chooser.randrange(len(data) or 1)
        local = local and listed[0] + 8 < at < listed[1] - 8
        kind = chooser.choice(("flip", "insert", "delete", "repeat", "cut", "swap", "zero"))
        if kind == "flip" and data:
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == "insert":
            data[at:at] = chooser.choice(SPICE)
        elif kind == "delete":
            del data[at : at + chooser.randrange(1, 9)]
        elif kind == "repeat":
            data[at:at] = data[at : at + chooser.randrange(1, 300)]
        elif kind == "cut":
            local = False
            del data[at:]
        elif kind == "swap":
            local = False
            other, size = chooser.randrange(len(data) or 1), chooser.randrange(1, 200)
            data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
        else:
            size = chooser.randrange(1, 64)
            local = local and size < 16
            data[at : at + size] = bytes(size)
        done.append(f"{kind} at {at}")
    file.write_bytes(data)
    return local, ", ".join(done)


def _json(chooser: random.Random, file: Path) -> str:
    """Other values, keys missing, doubled and renamed, at places in the document chosen at random."""
    document = json.loads(file.read_text())
    done = []
    for _ in range(chooser.choice((1, 1, 3, 10))):
        places = list(_places(document))
        if not places:
            break
        holder, key = chooser.choice(places)
        kind = chooser.choice(("value", "value", "value", "delete", "move", "copy"))
        if kind == "value":
            holder[key] = chooser.choice(VALUES)
        elif kind == "delete":
            del holder[key]
        else:
            other, target = chooser.choice(places)
            if isinstance(other, list) and kind == "copy":
                other.append(holder[key])
            else:
                value = holder[key]
                if not (isinstance(value, dict | list) and _inside(value, other)):
                    other[target] = value
        done.append(f"{kind} of {key}")
    try:
        text = json.dumps(document)
    except (ValueError, RecursionError):
        text = "[]"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return ", ".join(done)


def _places(value: Any, depth: int = 0) -> Any:
    if depth > 12:
        return
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key], depth + 1)


def _inside(value: Any, wanted: Any) -> bool:
    if value is wanted:
        return True
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_inside(one, wanted) for one in held)


def _cells(chooser: random.Random, file: Path) -> str:
    lines = [line.split(",") for line in file.read_text().split("\n")]
    row = chooser.choice(lines)
    column = chooser.randrange(len(row))
    if chooser.random() < 0.2:
        del row[column]
        return "cell deleted"
    row[column] = str(chooser.choice(VALUES)).replace("\ud800", "?")
    file.write_text("\n".join(",".join(line) for line in lines))
    return f"cell {column} = {row[column][:20]}"


def _sqlite(chooser: random.Random, file: Path) -> str:
    with closing(sqlite3.connect(file)) as base:
        tables = [row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = chooser.choice(tables)
        columns = [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]
        column = chooser.choice(columns)
        kind = chooser.choice(("cell", "cell", "column", "drop", "rename", "empty"))
        value = chooser.choice([v for v in VALUES if v is None or isinstance(v, int | float | str)] + [b"\xff"])
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = str(value)
        if isinstance(value, str):
            value = value.replace("\ud800", "?")
        where = f"WHERE rowid % {chooser.randrange(1, 4)} = 0"
        statements = {
            "cell": (f'UPDATE "{table}" SET "{column}" = ? {where}', (value,)),
            "column": (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ()),
            "rename": (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_2"', ()),
            "empty": (f'DELETE FROM "{table}"', ()),
            "drop": (f'DROP TABLE "{table}"', ()),
        }
        with contextlib.suppress(sqlite3.Error):  # a key takes no other value and can't be dropped
            base.execute(*statements[kind])
        base.commit()
    return f"{kind} {table}.{column}"


def _parquet(chooser: random.Random, file: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    if not table.num_columns:
        return "nothing"
    index = chooser.randrange(table.num_columns)
    name = table.column_names[index]
    kind = chooser.choice(("drop", "nulls", "text", "float", "extreme", "empty", "rename", "repeat"))
    rows = table.num_rows
    if kind == "drop":
        table = table.remove_column(index)
    elif kind == "nulls":
        table = table.set_column(index, name, pa.nulls(rows, table.schema.field(index).type))
    elif kind == "text":
        table = table.set_column(index, name, pa.array([str(chooser.choice(VALUES)).replace("\ud800", "?")] * rows))
    elif kind == "float":
        table = table.set_column(index, name, pa.array([chooser.choice((0.5, float("nan"), 1e300, -1.0))] * rows))
    elif kind == "extreme":
        table = table.set_column(index, name, pa.array([chooser.choice((2**63 - 1, -(2**63), -1, 2**62))] * rows))
    elif kind == "empty":
        table = table.slice(0, 0)
    elif kind == "rename":
        table = table.rename_columns([*table.column_names[:index], "Renamed", *table.column_names[index + 1 :]])
    else:
        table = pa.concat_tables([table, table])
    pq.write_table(table, file)
    return f"{kind} {name}"
