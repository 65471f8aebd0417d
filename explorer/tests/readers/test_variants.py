"""Traces of many tools, whole and damaged, give what `damaged_variants.py` and `vendor_variants.py` say is right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.readers import ingest, native

sys.path.insert(0, str(Path(__file__).parent))
import account  # type: ignore[import-not-found]
import damaged_variants  # type: ignore[import-not-found]
import vendor_variants  # type: ignore[import-not-found]

VARIANTS = [*damaged_variants.VARIANTS, *vendor_variants.VARIANTS]
USUAL = native.tokenizer()
TOKENIZERS = [USUAL, *([pytest.param("plain", marks=pytest.mark.slow)] if USUAL == "native" else [])]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant[0])
def test_a_variant_gives_what_is_right(
    variant: tuple[str, bytes, str, dict[str, Any]], tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURONSCOPE_TOKENIZER", tokenizer)
    _, content, name, right = variant
    path, store = tmp_path / name, tmp_path / "store"
    path.write_bytes(content)
    if right.get("fail"):
        with pytest.raises(FormatError):
            ingest(path, store)
        return
    try:
        result = ingest(path, store)
    except FormatError:
        assert "fail" in right
        return
    account.check(result, store, content)
    kinds = {row.kind for row in result.warnings}
    assert right.get("kinds", set()) <= kinds
    assert not right.get("nokinds", set()) & kinds
    found = {
        "n": result.events_in_file, "st": result.stored, "rep": result.repaired, "skip": result.skipped,
        "dev": result.device_slices, "t": result.device_time_ns, "busy": result.device_busy_ns,
        "ranks": list(result.ranks), "procs": result.processes,
    }  # fmt: skip
    for key, wanted in right.items():
        if key in found and isinstance(wanted, tuple):
            assert wanted[0] <= found[key] <= wanted[1], key
        elif key in found:
            assert found[key] == wanted, key
    if "names" in right:
        assert set(right["names"]) <= set(pq.read_table(store / "SystemProfileEvents.parquet")["name"].to_pylist())
    if "op" in right:
        wanted = {right["op"]} if isinstance(right["op"], str) else set(right["op"])
        assert set(pq.read_table(store / "Execution.parquet")["op"].to_pylist()) == wanted
