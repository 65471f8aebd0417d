"""Files that are mapped, parsed by helpers and spilled: the same tables as when one process does all in memory."""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
from neuronscope import readers
from neuronscope.readers import event_list, helper, native, source, texts

TOKENIZERS = ["plain", *(["native"] if native._tokenize is not None else [])]


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain one has helper processes, the native one helper threads."""
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", request.param)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat files of some 100 KB as large ones are treated."""
    monkeypatch.setattr(source, "_IN_MEMORY_BYTES", 10_000)
    monkeypatch.setattr(event_list, "_PIECE_BYTES", 20_000)
    monkeypatch.setattr(helper, "_WORTH_BYTES", 10_000)
    monkeypatch.setattr(texts, "HELD_BYTES", 0)
    monkeypatch.setattr(helper, "cores", lambda: 2)


def tables(path: Path, folder: Path) -> tuple[readers.IngestResult, dict[str, Any]]:
    result = readers.ingest(path, folder)
    found = {file.stem: pq.read_table(file).to_pydict() for file in folder.glob("*.parquet")}
    assert [file.name for file in folder.iterdir() if file.suffix != ".parquet"] == []
    return result, found


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_helpers_and_spill_files_change_nothing(
    synthetic: ModuleType, tmp_path: Path, request: pytest.FixtureRequest, ending: str
) -> None:
    path = tmp_path / f"cuda.{ending}"
    expected = synthetic.write(path, steps=2, calls=300, counters=True)
    _, small = tables(path, tmp_path / "small")
    request.getfixturevalue("large")
    result, found = tables(path, tmp_path / "large")
    assert result.stored == expected.events
    assert result.device_time_ns == expected.kernel_total_ns
    assert found == small


@pytest.mark.usefixtures("tokenizer")
def test_arguments_are_the_same_wherever_they_are_kept(
    synthetic: ModuleType, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Events with members that join their arguments stand among others, in some pieces of the file only."""
    path = tmp_path / "cuda.json"
    synthetic.write(path, steps=2, calls=300)
    text = path.read_text()
    head, middle, tail = text[: len(text) // 3], text[len(text) // 3 : len(text) // 2], text[len(text) // 2 :]
    path.write_text(
        head + middle.replace('"ph": "X", "cat": "kernel"', '"cname": "é", "ph": "X", "cat": "kernel"') + tail
    )
    _, small = tables(path, tmp_path / "small")
    request.getfixturevalue("large")
    _, found = tables(path, tmp_path / "large")
    assert found == small
    kept = "".join(found["SystemProfileEvents"]["extra_attributes_json"])
    assert '"event": {"cname": "é"}' in kept


@pytest.mark.usefixtures("tokenizer")
def test_damage_in_a_large_file_is_counted_at_its_offset(
    synthetic: ModuleType, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "cuda.json"
    synthetic.write(path, steps=2, calls=300)
    data = path.read_bytes()
    at = data.index(b'"cudaLaunchKernel"', len(data) // 2)
    event = data.rindex(b'{\n    "ph"', 0, at)
    path.write_bytes(data[:at] + b'"cuda\x01Launch"' + data[at + 18 :])
    _, small = tables(path, tmp_path / "small")
    request.getfixturevalue("large")
    result, found = tables(path, tmp_path / "large")
    assert [(row.kind, row.count, row.offset) for row in result.warnings if row.kind == "repaired"] == [
        ("repaired", 1, event)
    ]
    assert found == small


@pytest.mark.usefixtures("large")
def test_a_helper_that_dies_loses_nothing(
    synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", "plain")
    real = helper._Process.parse
    calls = []

    def parse(self: helper._Process, start: int, end: int) -> object:
        calls.append(start)
        if len(calls) == 2:
            self._process.kill()
        return real(self, start, end)

    monkeypatch.setattr(helper._Process, "parse", parse)
    expected = synthetic.write(tmp_path / "cuda.json", steps=2, calls=300)
    result, _ = tables(tmp_path / "cuda.json", tmp_path / "out")
    assert len(calls) >= 2
    assert (result.stored, result.skipped) == (expected.events, 0)


@pytest.mark.usefixtures("large", "tokenizer")
def test_several_gzip_members_and_trailing_bytes(synthetic: ModuleType, tmp_path: Path) -> None:
    expected = synthetic.write(tmp_path / "cuda.json", steps=2, calls=300)
    data = (tmp_path / "cuda.json").read_bytes()
    half = len(data) // 2
    (tmp_path / "cuda.json.gz").write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]) + b"tail")
    result, _ = tables(tmp_path / "cuda.json.gz", tmp_path / "out")
    assert result.stored == expected.events
    assert {"gzip_members", "gzip_trailer"} <= {row.kind for row in result.report}


def test_zstd(synthetic: ModuleType, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    expected = synthetic.write(tmp_path / "cuda.json", steps=2, calls=30)
    path = tmp_path / "cuda.json.zst"
    path.write_bytes(zstandard.compress((tmp_path / "cuda.json").read_bytes()))
    result, _ = tables(path, tmp_path / "out")
    assert result.stored == expected.events


@pytest.mark.parametrize("kind", ["cuda", "mixed", "session"])
def test_columns_in_files_give_the_same_tables(
    synthetic: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kind: str
) -> None:
    path = tmp_path / "trace.json"
    if kind == "cuda":
        synthetic.write(path, steps=2, calls=300, counters=True)
    elif kind == "session":
        path = Path(__file__).parents[1] / "golden" / "session"
    else:
        path.write_text(json.dumps({"traceEvents": list(mixed(4_000))}))
    _, small = tables(path, tmp_path / "small")
    request.getfixturevalue("large")
    for name, module in list(sys.modules.items()):
        if name.startswith("neuronscope.readers.") and hasattr(module, "CHUNK_ROWS"):
            monkeypatch.setattr(module, "CHUNK_ROWS", 25 if kind == "session" else 500)
    _, found = tables(path, tmp_path / "large")
    assert found == small


def mixed(count: int) -> Iterator[dict[str, object]]:
    """Events of every kind in no order of time, many at equal times, some with durations that can't be meant."""
    chance = random.Random(count)
    for number in range(count):
        at, length = chance.randrange(20_000), chance.choice([0, 3, 50, 50, 4_000])
        where = {"pid": chance.choice([1, 2, "three"]), "tid": chance.choice([1, 9]), "ts": at}
        call = {"correlation": number % 700, "External id": chance.randrange(900)}
        device = {"device": 0, "stream": 7}
        some: list[dict[str, object]] = chance.choice(
            [
                [{"ph": "X", "cat": "cpu_op", "name": "op", "dur": length, "args": {"External id": number % 900}}],
                [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": length, "args": call}],
                [{"ph": "X", "cat": "kernel", "name": "k", "dur": length, "args": call | device}],
                [{"ph": "X", "cat": "python_function", "name": f"m.py({number % 7}): f", "dur": length}],
                [{"ph": "X", "name": "odd", "dur": chance.choice([-1, None, 4294967.295])}],
                [{"ph": "B", "name": "pair", "args": {"a": 1}}, {"ph": "E", "ts": at + length, "args": {"b": 2}}],
                [{"ph": "b", "name": "async", "id": number % 5}, {"ph": "e", "name": "async", "id": number % 5}],
                [{"ph": "s", "cat": "fwdbwd", "id": number}, {"ph": "f", "cat": "fwdbwd", "id": number, "ts": at + 9}],
                [{"ph": "C", "name": "counter", "args": {"value": number}}, {"ph": "i", "s": "t", "name": "mark"}],
            ]
        )
        yield from (where | event for event in some)
