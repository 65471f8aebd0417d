"""The native tokenizer reads what it accepts exactly as the plain one does, and leaves the rest to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neuronscope import readers
from neuronscope.formats.errors import FormatError
from neuronscope.readers import native, pieces
from neuronscope.readers.narrow import Coded

needs_native = pytest.mark.skipif(native._tokenize is None, reason="the native tokenizer is not built")


def outcome(piece: pieces.Piece | None) -> dict[str, Any] | None:
    """All columns, with their types, as plain values."""
    if piece is None:
        return None
    found: dict[str, Any] = {}
    for name in piece.__dataclass_fields__:
        column = getattr(piece, name)
        if isinstance(column, Coded):
            found[name] = "texts", column.tolist(), column.texts
        else:
            kind = str(column.dtype) if isinstance(column, np.ndarray) else str(column.type)
            found[name] = kind, column.tolist()
    return found


def both(text: bytes) -> dict[str, Any] | None:
    """What both make of a text; they must agree."""
    found = outcome(native.parse_piece(text, None))
    assert found == outcome(pieces.parse_piece(text, None))
    if native._tokenize is not None and (noted := native._tokenize(text, 0, True)) and found:
        bounds, data = noted["args"]
        if data is None:  # not copied: where each stands in the text
            begins, ends = np.frombuffer(bounds, np.int32).reshape(-1, 2).T.tolist()
            assert [text[begin:end] for begin, end in zip(begins, ends, strict=True)] == found["args"][1]
            assert (np.diff(np.frombuffer(bounds, np.int32)) >= 0).all()
    return found


# JSON as text, so that numbers, escapes and white space come in every form.
spaces = st.sampled_from(["", "", "", " ", "\n    ", "\t", "\r\n", "\x0b"])
numbers = st.one_of(
    st.integers(-9, 99).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.from_regex(r"\A-?\d{1,20}(\.\d{0,6})?([eE][+-]?\d{1,3})?\Z"),
    st.sampled_from(
        ["-0", "0.0", "1e5", "-9223372036854775808", "9223372036854775807", "1e999", "NaN", "1419247332500.125"]
    ),
)
contents = st.one_of(
    st.sampled_from(
        ["X", "kernel", "python_function", "ac2g", "python\\u005ffunction", "cpu_op", "aten::mm", "0x1f", "12"]
    ),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    st.text(max_size=12).map(lambda text: json.dumps(text)[1:-1]),
    st.text('"\\u\x01\x7fd8a0/é😀', max_size=8),
)
strings = contents.map(lambda text: f'"{text}"')
scalars = st.one_of(numbers, strings, st.sampled_from(["null", "true", "false", "nul", ""]))
ID_NAMES = ["correlation", "External id", "external id", "device", "stream", "Stream Id", "bytes", "execution_id"]
KEYS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args", "bp", "s", "attr", "", "p\\u0068"]
FITTING = {
    "ph": strings,
    "cat": strings,
    "name": strings,
    "pid": scalars,
    "tid": scalars,
    "ts": numbers,
    "dur": numbers,
}


@st.composite
def objects(draw: st.DrawFn, members: st.SearchStrategy[tuple[str, str]], most: int) -> str:
    texts = [
        f'{draw(spaces)}"{key}"{draw(spaces)}:{draw(spaces)}{value}{draw(spaces)}'
        for key, value in draw(st.lists(members, max_size=most))
    ]
    return "{" + ",".join(texts) + "}"


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        objects(st.tuples(contents, inner), 3),
    ),
    max_leaves=6,
)
arguments = st.one_of(
    objects(st.tuples(st.one_of(st.sampled_from(ID_NAMES), contents), st.one_of(numbers, values)), 6), values
)
members = st.sampled_from(KEYS).flatmap(
    lambda key: st.tuples(st.just(key), arguments if key == "args" else st.one_of(FITTING.get(key, values), values))
)
events = st.lists(objects(members, 9), min_size=1, max_size=6).flatmap(
    lambda texts: spaces.map(lambda space: f"{space},{space}".join(texts))
)
usual = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEsfi"), "name": st.text(max_size=9), "pid": st.integers(0, 9), "ts": st.floats(0, 1e12)},
    optional={
        "cat": st.sampled_from(["kernel", "cpu_op", "python_function", "ac2g"]),
        "tid": st.one_of(st.integers(-1, 10), st.text(max_size=3), st.none(), st.floats(0, 3)),
        "dur": st.one_of(st.integers(-5, 10**6), st.floats(0, 1e9, allow_nan=False)),
        "id": st.one_of(st.integers(), st.text(max_size=3)),
        "s": st.text(max_size=3),
        "bp": st.just("e"),
        "é attr": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
        "args": st.dictionaries(
            st.sampled_from([*ID_NAMES, "grid", "other"]),
            st.one_of(st.integers(-3, 2**64), st.text(max_size=4), st.none(), st.lists(st.integers(), max_size=2)),
        ),
    },
)


@needs_native
@given(events)
def test_any_text_gives_the_same_columns_or_none(text: str) -> None:
    both(text.encode("utf-8", "surrogatepass"))


@needs_native
@given(st.lists(usual, min_size=1, max_size=20), st.booleans(), st.sampled_from([None, 2]))
def test_usual_events_give_the_same_columns(rows: list[dict[str, Any]], escape: bool, indent: int | None) -> None:
    text = ",".join(json.dumps(row, ensure_ascii=escape, indent=indent) for row in rows).encode(
        "utf-8", "surrogatepass"
    )
    found = both(text)
    assert found is None or len(found["ph"][1]) == len(rows)


@needs_native
@given(st.lists(usual, min_size=1, max_size=4), st.data())
def test_damaged_bytes_give_the_same_columns_or_none(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    text = bytearray(",".join(json.dumps(row, ensure_ascii=False) for row in rows).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(
            st.sampled_from(b'"\\{}[],:0-.eX\x00\x1f\x7f\x80\xc3\xed\xf4\xff')
        )
    both(bytes(text))


@needs_native
@given(st.lists(st.one_of(st.just(""), arguments), max_size=5), st.integers(0, 2))
def test_argument_texts_are_those_of_the_plain_decoder_or_left_to_it(texts: list[str], skipped: int) -> None:
    args = pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.binary()).slice(skipped)
    found = native.argument_texts(args, (b"correlation", b"stream"))
    if found is not None:
        rows = [msgspec.json.decode(text or b"{}", type=dict[str, msgspec.Raw]) for text in args.to_pylist()]
        wanted = [[bytes(row.get(key, b"")) for row in rows] for key in ("correlation", "stream")]
        assert [column.to_pylist() for column in found] == wanted


@needs_native
def test_argument_texts_of_usual_events_need_no_plain_decoder() -> None:
    args = pa.array([b'{"a": 1, "Input Dims": [[4, 2], []]}', b"", b'{"Input type" : ["float"]}'], pa.binary())
    found = native.argument_texts(args, (b"Input Dims", b"Input type"))
    assert found is not None
    assert [column.to_pylist() for column in found] == [[b"[[4, 2], []]", b"", b""], [b"", b"", b'["float"]']]
    assert native._members is not None
    with pytest.raises(ValueError, match="offsets"):
        native._members(b"{}", np.array([0, 9], np.int32), (b"a",))


@needs_native
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("correlation", '"args": {"correlation": "0x1f"}'),
        ("correlation", '"args": {"correlation": 4.0}'),
        ("correlation", '"args": {"correlation": true, "device": 3}'),
        ("correlation", '"args": {"correlation": -9223372036854775808}'),
        ("stream", '"args": {"stream": -7, "Stream Id": 3}'),
        ("external_id", '"args": {"external id": 5, "External id": null}'),
        ("device", '"args": {"device": 1, "device": 2}'),
        ("device", '"cat": "python_function", "args": {"device": 1}'),
        ("ts", '"ts": "1419247332500.1255"'),
        ("ts", '"ts": 1751410836000000123, "dur": 1500'),
        ("ts", '"ts": -1.5e3, "dur": -2'),
        ("pid", '"pid": 1.0'),
    ],
)
def test_odd_values_are_read_alike(field: str, text: str) -> None:
    """Beside an ordinary event, whose values must not change how the odd one is read, or the other way round."""
    ordinary = '{"ph": "X", "pid": 1, "ts": 5, "args": {"correlation": 9, "stream": 7, "device": 0}}'
    found = both(f'{{"ph": "X", {text}}}, {ordinary}'.encode())
    assert found is not None
    assert len(found[field][1]) == 2


number_texts = st.one_of(
    st.integers(0, 99).map(str),
    st.integers(1_419_247_332_000, 1_419_247_339_999).map(lambda us: f"{us}.{us % 1000:03}"),
    numbers,
    st.sampled_from(
        ["", "-0", "00", "1.", ".5", "1.0005", "0.9999", "1e3", "1E", "5 ", '"5"', "null", "9" * 19, "1,2"]
    ),
)


@needs_native
@given(st.lists(st.tuples(st.sampled_from("Xsx"), *[number_texts] * 7), min_size=2, max_size=6))
def test_events_that_differ_in_numbers_only_are_read_alike(events: list[tuple[str, ...]]) -> None:
    """As most of a trace does; the first of them shows the native one what to expect of the others."""
    form = (
        '{"ph": "%s", "name": "aten::mm", "pid": 1, "id": %s, "ts": %s, "dur": %s,'
        ' "args": {"External id": %s, "queued": %s, "grid": [4, 1], "correlation": %s}, "tid": %s}'
    )
    both(",\n".join(form % event for event in (("X", *"1234567"), *events)).encode())


@needs_native
def test_deep_nesting_and_truncation_are_left_to_the_plain_one() -> None:
    assert native._tokenize is not None
    deep = b'{"args": ' + b"[" * 100 + b"]" * 100 + b"}"
    assert native._tokenize(deep, 0, False) is None
    assert both(deep) is not None
    whole = '{"ph": "X", "name": "é\\n", "args": {"grid": [1, 2]}}'.encode()
    assert native._tokenize(whole, 0, False) is not None
    for end in range(len(whole)):
        assert native._tokenize(whole[:end], 0, False) is None


@needs_native
def test_an_ordinary_trace_needs_no_plain_parser_and_gives_the_same_tables(
    synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = synthetic.write(tmp_path / "cuda.json", steps=2, calls=300, counters=True)
    tables = {}
    for choice in ("plain", "native"):
        monkeypatch.setenv("NEURONSCOPE_TOKENIZER", choice)
        if choice == "native":
            monkeypatch.setattr(pieces, "parse_piece", lambda text, spill: None)  # not a single piece is its
        result = readers.ingest(tmp_path / "cuda.json", tmp_path / choice)
        assert result.stored == expected.events
        tables[choice] = {path.name: pq.read_table(path).to_pydict() for path in (tmp_path / choice).glob("*.parquet")}
    assert tables["native"] == tables["plain"]


def test_a_choice_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", "fast")
    with pytest.raises(FormatError, match="plain or native"):
        native.tokenizer()
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", "native")
    monkeypatch.setattr(native, "_tokenize", None)
    with pytest.raises(FormatError, match="not built"):
        native.tokenizer()
    monkeypatch.delenv("NEURONSCOPE_TOKENIZER")
    assert native.tokenizer() == "plain"


@needs_native
def test_the_version_says_which_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", "plain")
    command = [sys.executable, "-m", "neuronscope.cli", "--version"]
    assert "(plain tokenizer)" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
