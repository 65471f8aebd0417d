"""Ends of arrows in a trace file → `ArrowEnds`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers.exact import Int64, int64
from neuronscope.readers.file_ids import Numbers, id_text
from neuronscope.readers.keys import codes_of
from neuronscope.readers.narrow import Dictionary
from neuronscope.readers.pieces import Columns
from neuronscope.readers.scratch import Scratch, ranges
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import ArrowEnds

__all__ = ["arrow_ends"]


def arrow_ends(columns: Columns, rows: Int64, pid: Numbers, tid: Numbers, base: int, scratch: Scratch) -> ArrowEnds:
    """The ends of arrows in some rows of a file (phases s, t and f); `base` is what times are counted from."""
    phases = np.array([{"s": 0, "t": 1, "f": 2}.get(ph, 0) for ph in columns.ph.dictionary.to_pylist()], np.int8)
    ph_code = columns.ph.indices.to_numpy()
    category, names = columns.cat.dictionary.to_pylist(), columns.name.dictionary.to_pylist()
    kinds, of_kind = scratch.column(), Dictionary()
    phase, ts, pids, tids = (scratch.column() for _ in range(4))
    for low, high in ranges(len(rows)):
        some = rows[low:high]
        phase.append(phases[ph_code[some]])
        ts.append(columns.ts[some] + base)
        pids.append(pid[some])
        tids.append(tid[some])
        pair = codes_of(columns.cat.indices.to_numpy()[some], columns.name.indices.to_numpy()[some])
        _, first = np.unique(pair, return_index=True)
        texts = [
            category[columns.cat.indices[row].as_py()] or names[columns.name.indices[row].as_py()]
            for row in some[first].tolist()
        ]
        kinds.append(of_kind.codes(pa.DictionaryArray.from_arrays(pa.array(pair), pa.array(texts))))
    key, number = _ids(columns.ids, rows, scratch)
    return ArrowEnds(
        phase=phase.finish(),
        key=key,
        kind=of_kind.array(kinds.finish()),
        ts=ts.finish(),
        pid=pids.finish(),
        tid=tids.finish(),
        number=number,
        row=rows,
    )


def _ids(texts: Texts, rows: Int64, scratch: Scratch) -> tuple[Int64, Int64]:
    """Of each arrow end a number equal for equal ids, and the id as number (-1 if it is none)."""
    key = scratch.column(np.int64)
    try:
        for low, high in ranges(len(rows)):
            key.append(pc.cast(texts.read(rows[low:high]).cast(pa.string()), pa.int64()).to_numpy())
            texts.forget()
        numbers = key.finish()
        return numbers, numbers
    except pa.ArrowInvalid:
        pass  # ids in quotes, or too large for 64 bits: 148 and "148" are the same
    distinct: dict[bytes, int] = {}
    codes, values = scratch.column(np.int64), scratch.column(np.int64)
    for low, high in ranges(len(rows)):
        ids = texts.read(rows[low:high]).dictionary_encode()
        bare = [raw.strip(b'"') for raw in ids.dictionary.to_pylist()]
        indices = ids.indices.to_numpy()
        codes.append(np.array([distinct.setdefault(text, len(distinct)) for text in bare], np.int64)[indices])
        values.append(np.array([int64(id_text(text)) for text in bare], np.int64)[indices])
    return codes.finish(), values.finish()
