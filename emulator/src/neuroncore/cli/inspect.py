"""`neuronscope inspect`: what an executable or a device profile holds."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["inspect"]

_VENDOR_HEADER_BYTES = 1024  # public NEFFs are laid out as ours: a header and a gzip tar


def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE.neff|FILE.ntff", help="An executable or a device profile.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print exact numbers as JSON, and nothing else.")] = False,
) -> None:
    """Show an executable (tensors, instructions, engines, DMA, time) or what a device profile recorded."""
    from neuronscope.formats import neff
    from neuronscope.formats.errors import FormatError

    from neuroncore.cli._common import one_line

    with path.open("rb") as file:
        head = file.read(len(neff.MAGIC))
    with one_line():
        if head == neff.MAGIC:
            facts, lines = _neff(path)
        elif (vendor := _vendor(path)) is not None:
            facts = {"path": str(path), "kind": "a vendor's NEFF", "info": vendor}
            lines = _vendor_lines(facts)
        elif path.suffix == ".neff":
            raise FormatError(f"{path}: not a NEFF: neither of this emulator nor laid out as public ones are")
        else:
            facts, lines = _ntff(path)
    typer.echo(json.dumps(facts, ensure_ascii=False, default=str) if as_json else "\n".join(lines))


def _neff(path: Path) -> tuple[dict[str, Any], Iterator[str]]:
    from neuroncore.cli._common import load_neff
    from neuroncore.timing import bounds, simulate

    loaded = load_neff(path)
    timeline = simulate(loaded.program, loaded.target) if loaded.program.executed else None
    estimated_ns = sum(ns for _, _, ns in loaded.estimates)
    counts: Counter[tuple[str, str]] = Counter()
    for one, times in loaded.program.counts():
        counts[one.engine, one.opcode] += times
    engines: dict[str, dict[str, Any]] = {}
    for (engine, opcode), count in sorted(counts.items()):
        facts = engines.setdefault(engine, {"instructions": 0, "busy_ns": 0, "opcodes": {}})
        facts["instructions"] += count
        facts["opcodes"][opcode] = count
        facts["busy_ns"] = timeline.busy_ns.get(engine, 0) if timeline else 0
    transfers = timeline.dma_table() if timeline else None
    limits = bounds(loaded.program, loaded.target) if timeline else None
    answer = {
        "path": str(path),
        "kind": "NEFF",
        "hash": loaded.hash,
        "info": loaded.info,
        "tensors": [
            {"name": t.name, "kind": t.kind, "dtype": t.dtype, "shape": list(t.shape), "bytes": t.bytes}
            for t in loaded.program.tensors
        ],
        "program_ns": (timeline.program_ns if timeline else 0) + estimated_ns,
        "estimated_ns": estimated_ns,
        "roofline_ns": round(limits.roofline_ns) if limits else 0,
        "bytes_read": timeline.bytes_read if timeline else 0,
        "bytes_written": timeline.bytes_written if timeline else 0,
        "flops": timeline.flops if timeline else 0,
        "engines": engines,
        "dma": {
            "transfers": transfers.num_rows if transfers else 0,
            "bytes": sum(transfers["bytes"].to_pylist()) if transfers else 0,
            "busy_ns": timeline.dma_busy_ns if timeline else 0,
        },
        "estimates": [{"op": op, "reason": reason, "duration_ns": ns} for op, reason, ns in loaded.estimates],
        "notes": list(loaded.notes),
    }
    return answer, _neff_lines(answer)


def _neff_lines(facts: dict[str, Any]) -> Iterator[str]:
    from neuroncore.cli._common import format_ns, table

    info = facts["info"]
    made = f"{info.get('target', '')} · compiler {info.get('compiler_version', '')}"
    yield f"{info.get('name', '')}  NEFF {facts['hash']} · {made}"
    about = "≈ " if facts["estimated_ns"] else ""
    yield (
        f"  engines and DMA {about}{format_ns(facts['program_ns'])} (simulated; roofline bound "
        f"{format_ns(facts['roofline_ns'])}) · reads {facts['bytes_read']:,} B, writes {facts['bytes_written']:,} B · "
        f"{facts['flops']:,} FLOP"
    )
    yield ""
    yield table(
        ["tensor", "kind", "dtype", "shape", "bytes"],
        [
            [t["name"], t["kind"], t["dtype"], str(t["shape"]).replace(" ", ""), f"{t['bytes']:,}"]
            for t in facts["tensors"]
        ],
    )
    yield ""
    yield from _engine_lines(facts["engines"], facts["dma"], facts["program_ns"])
    for estimate in facts["estimates"]:
        yield f"  ≈ {estimate['op']}: {format_ns(estimate['duration_ns'])} estimated, {estimate['reason']}"
    for note in facts["notes"]:
        yield f"  ! {note}"


def _engine_lines(engines: dict[str, Any], dma: dict[str, Any], total_ns: int) -> Iterator[str]:
    from neuroncore.cli._common import format_ns, table

    def share(busy_ns: int) -> str:
        return f"{100 * busy_ns / total_ns:.1f} %" if total_ns else "-"

    rows = [
        [
            engine,
            f"{values['instructions']:,}",
            format_ns(values["busy_ns"]),
            share(values["busy_ns"]),
            ", ".join(f"{count} {opcode}" for opcode, count in values["opcodes"].items()),
        ]
        for engine, values in engines.items()
    ]
    rows.append(
        ["DMA", f"{dma['transfers']:,}", format_ns(dma["busy_ns"]), share(dma["busy_ns"]), f"{dma['bytes']:,} bytes"]
    )
    yield table(["engine", "instructions", "busy", "of time", ""], rows)


def _ntff(path: Path) -> tuple[dict[str, Any], Iterator[str]]:
    import numpy as np
    import pyarrow.compute as pc
    from neuronscope.formats import container
    from neuronscope.formats.errors import FormatError

    profile = container.read(path)
    if profile.kind != "ntff":
        raise FormatError(f"{path}: a {profile.kind} file; inspect takes a NEFF or an NTFF. Open its folder with view")
    programs = profile.tables["programs"].to_pylist()
    executions = Counter(profile.tables["program_executions"]["neff"].to_pylist())
    engines = _engines(profile.tables["instructions"])
    for program in programs:
        program["executions"] = executions.get(program["neff"], 0)
        program["engines"] = engines.get(program["neff"], {})
        transfers = profile.tables["dma_transfers"]
        transfers = transfers.filter(pc.equal(transfers["neff"], program["neff"]))
        offsets, durations, sizes = (
            transfers[name].to_numpy().astype(np.int64) for name in ("offset_ns", "duration_ns", "bytes")
        )
        program["dma"] = {
            "transfers": transfers.num_rows,
            "bytes": int(sizes.sum()),
            "busy_ns": _covered_ns(offsets, offsets + durations),
        }
    session = profile.session
    facts = {
        "path": str(path),
        "kind": "NTFF",
        "version": profile.version,
        "session": {name: getattr(session, name) for name in container.Session.__dataclass_fields__},
        "programs": programs,
    }
    return facts, _ntff_lines(facts, path)


def _engines(instructions: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Instructions and busy time of each engine, by executable."""
    sums = instructions.group_by(["neff", "engine", "opcode"]).aggregate([("id", "count"), ("duration_ns", "sum")])
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in sorted(sums.to_pylist(), key=lambda row: (row["neff"], row["engine"], row["opcode"])):
        of_engine = found.setdefault(row["neff"], {}).setdefault(
            row["engine"], {"instructions": 0, "busy_ns": 0, "opcodes": {}}
        )
        of_engine["instructions"] += row["id_count"]
        of_engine["busy_ns"] += row["duration_ns_sum"]
        of_engine["opcodes"][row["opcode"]] = row["id_count"]
    return found


def _covered_ns(begin: Any, end: Any) -> int:
    """Length of the union of intervals."""
    import numpy as np

    if not len(begin):
        return 0
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    return int(reached[-1] - begin[0] - np.maximum(begin[1:] - reached[:-1], 0).sum())


def _ntff_lines(facts: dict[str, Any], path: Path) -> Iterator[str]:
    from neuroncore.cli._common import format_ns

    session = facts["session"]
    yield (
        f"{path.name}  NTFF {facts['version']} · {session['producer']} · {session['target']} · "
        f"{session['instance_id']} PID {session['process_id']}"
    )
    for program in facts["programs"]:
        about = "≈ " if program["estimated_ns"] else ""
        yield ""
        yield (
            f"  {program['name']}  NEFF {program['neff']} · {program['executions']:,} × {about}"
            f"{format_ns(program['duration_ns'])} · reads {program['bytes_read']:,} B, writes "
            f"{program['bytes_written']:,} B · {program['flops']:,} FLOP"
        )
        yield from _engine_lines(program["engines"], program["dma"], program["duration_ns"])
    if not facts["programs"]:
        yield "  no executable ran"


def _vendor(path: Path) -> dict[str, Any] | None:
    """`info.json` of a NEFF with another magic, None where there is none."""
    data = path.read_bytes()[_VENDOR_HEADER_BYTES:]
    if data[:2] != b"\x1f\x8b":
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
            for entry in archive:
                file = archive.extractfile(entry)
                if file is not None and Path(entry.name).name == "info.json":
                    return json.loads(file.read())
            return {"members": archive.getnames()}
    except (OSError, EOFError, tarfile.TarError, ValueError, zlib.error):
        return None


def _vendor_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"{facts['path']}  a vendor's NEFF: it can be listed but not executed here"
    for key, value in facts["info"].items():
        yield f"  {key}: {json.dumps(value, ensure_ascii=False)}"
