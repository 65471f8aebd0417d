"""Programs as text and back: `parse_program(print_program(p)) == p`, with or without origins.

One line per declaration and instruction::

    program "add"
    tensor x input bf16 [256,512]
    tile tx0 SBUF 128 bytes 1024 bf16 address 0 partition 0
    Sync dma_copy dst=<tx0 bf16 p0+128 f1*512> src=<x bf16 p0+128*512 f1*512> queue=qSyncLoad signal=qSyncLoad+16
    loop i1 4 {
      Vector tensor_tensor dst=<…> data1=<…> data2=<…> op="add" wait=qSyncLoad>=32 signal=Vector+1
    }

A second line ``semaphores derived`` says that no waits and signals are written: they follow from the data dependences
(`Program.derived`).

With origins, an instruction ends in ``;op "aten.add.Tensor" at "model.py:7"``. An access is
``<buffer dtype pSTART+COUNT[*STRIDE] fSTRIDE*SIZE,… [oOFFSET] [+STEP*loop …]>``. Attribute values are JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from neuroncore.errors import ParseError
from neuroncore.isa.program import Access, Instruction, Loop, Operand, Program, Signal, Steps, Tensor, Tile, Value, Wait

__all__ = ["parse_program", "print_operands", "print_program"]


def print_program(program: Program, *, origins: bool = False) -> str:
    """The program as text: what executes and nothing else, so that equal texts are equal programs.

    Args:
        program: any program, loops rolled or not.
        origins: add the ATen op and source line of each instruction, for reading.
    """
    lines = [f"program {json.dumps(program.name)}"]
    if program.derived:
        lines.append("semaphores derived")
    lines.extend(f"tensor {t.name} {t.kind} {t.dtype} {_json(t.shape)}" for t in program.tensors)
    for tile in program.tiles:
        address = "-" if tile.address is None else tile.address
        lines.append(
            f"tile {tile.name} {tile.memory} {tile.partitions} bytes {tile.free_bytes} {tile.dtype}"
            f" address {address} partition {tile.start_partition}"
        )
    lines.extend(_body(program.body, "", origins))
    return "\n".join(lines) + "\n"


def print_operands(instruction: Instruction) -> str:
    """The operands of one instruction as text, for listings and profiles."""
    return " ".join(f"{name}={_operand(value)}" for name, value in instruction.operands)


def _body(body: tuple[Instruction | Loop, ...], indent: str, origins: bool) -> Iterator[str]:
    for item in body:
        if isinstance(item, Loop):
            yield f"{indent}loop {item.name} {item.count} {{"
            yield from _body(item.body, indent + "  ", origins)
            yield f"{indent}}}"
        else:
            yield indent + _instruction(item, origins)


def _instruction(i: Instruction, origins: bool) -> str:
    parts = [i.engine, i.opcode, *(f"{name}={_operand(value)}" for name, value in i.operands)]
    if i.queue:
        parts.append(f"queue={i.queue}")
    parts += [f"wait={w.semaphore}>={w.value}{_steps(w.steps)}" for w in i.waits]
    parts += [f"signal={s.semaphore}+{s.increment}" for s in i.signals]
    if origins and (i.op or i.source):
        parts.append(f";op {json.dumps(i.op)}")
    if origins and i.source:
        parts.append(f"at {json.dumps(i.source)}")
    return " ".join(parts)


def _json(value: Value) -> str:
    if value is None:
        return "null"
    if value.__class__ is int:
        return str(value)
    return json.dumps(value, separators=(",", ":"))


def _operand(value: Operand) -> str:
    return _access(value) if isinstance(value, Access) else _json(value)


def _steps(steps: Steps) -> str:
    return "".join(f"{step:+d}*{name}" for name, step in steps)


def _access(a: Access) -> str:
    stride = f"*{a.partition_stride}" if a.partition_stride else ""
    free = ",".join(f"{s}*{n}" for s, n in a.free)
    offset = f" o{a.offset}" if a.offset else ""
    steps = f" {_steps(a.steps)}" if a.steps else ""
    return f"<{a.buffer} {a.dtype} p{a.start_partition}+{a.partitions}{stride} f{free}{offset}{steps}>"


# Parsing --------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'([A-Za-z_][\w]*)=(<[^>]*>|"(?:[^"\\]|\\.)*"|\[[^ ]*\]|[^ ]+)(?: |$)')
_ACCESS = re.compile(
    r"<(?P<buffer>[\w.]+) (?P<dtype>\w+) p(?P<start>\d+)\+(?P<count>\d+)(?:\*(?P<stride>-?\d+))? f(?P<free>[-\d*,]*)"
    r"(?: o(?P<offset>-?\d+))?(?: (?P<steps>[-+][^>]*))?>"
)
#: Sizes, offsets and semaphore values are smaller, so that sums of them fit the 64 bits of the compiled kernels.
_LARGEST = 1 << 60
_STEP = re.compile(r"([-+]\d+)\*([A-Za-z_]\w*)")
_WAIT = re.compile(r"([\w.]+)>=(-?\d+)((?:[-+]\d+\*\w+)*)")
_TENSOR = re.compile(r"tensor ([\w.]+) (\w+) (\w+) (\[[-\d,]*\])")
_TILE = re.compile(r"tile ([\w.]+) (SBUF|PSUM) (\d+) bytes (\d+) (\w+) address (-|\d+) partition (\d+)")
_LOOP = re.compile(r"loop (\w+) (\d+) \{")
_ORIGIN = re.compile(r' ?;op ("(?:[^"\\]|\\.)*")(?: at ("(?:[^"\\]|\\.)*"))?$')


def parse_program(text: str) -> Program:
    """The program that `print_program` printed.

    Raises:
        ParseError: the text is not a printed program; names the line.
    """
    name = ""
    derived = False
    tensors: list[Tensor] = []
    tiles: list[Tile] = []
    stack: list[tuple[str, int, list[Instruction | Loop]]] = [("", 1, [])]
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        try:
            if not line:
                continue
            if line.startswith("program "):
                name = json.loads(line[8:])
            elif line == "semaphores derived":
                derived = True
            elif m := _TENSOR.fullmatch(line):
                sizes = filter(None, m[4][1:-1].split(","))
                tensors.append(Tensor(m[1], tuple(map(_whole, sizes)), m[3], m[2]))
            elif m := _TILE.fullmatch(line):
                address = None if m[6] == "-" else _whole(m[6])
                tiles.append(Tile(m[1], m[2], _whole(m[3]), _whole(m[4]), m[5], address, _whole(m[7])))
            elif m := _LOOP.fullmatch(line):
                stack.append((m[1], _whole(m[2]), []))
            elif line == "}":
                loop, count, body = stack.pop()
                stack[-1][2].append(Loop(loop, count, tuple(body)))
            else:
                stack[-1][2].append(_parse_instruction(line))
        except (ValueError, IndexError, KeyError) as error:
            raise ParseError(f"line {number}: not a line of a printed program: {line!r}") from error
    if len(stack) != 1:
        raise ParseError(f"line {len(text.splitlines())}: loop {stack[-1][0]!r} is not closed")
    return Program(name, tuple(tensors), tuple(tiles), tuple(stack[0][2]), derived)


def _parse_instruction(line: str) -> Instruction:
    op = source = ""
    if m := _ORIGIN.search(line):
        op, source = json.loads(m[1]), json.loads(m[2]) if m[2] else ""
        line = line[: m.start()]
    engine, opcode, *rest = line.split(" ", 2)
    operands: list[tuple[str, Operand]] = []
    waits: list[Wait] = []
    signals: list[Signal] = []
    queue = ""
    position = 0
    text = rest[0] if rest else ""
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(text[position:])
        position = token.end()
        key, value = token[1], token[2]
        if key == "wait":
            m = _must(_WAIT.fullmatch(value))
            waits.append(Wait(m[1], _whole(m[2]), _parse_steps(m[3])))
        elif key == "signal":
            semaphore, increment = value.rsplit("+", 1)
            signals.append(Signal(semaphore, _whole(increment)))
        elif key == "queue":
            queue = value
        elif value.startswith("<"):
            operands.append((key, _parse_access(value)))
        else:
            operands.append((key, _tuples(json.loads(value))))
    return Instruction(opcode, engine, tuple(operands), tuple(waits), tuple(signals), queue, op, source)


def _parse_access(text: str) -> Access:
    m = _must(_ACCESS.fullmatch(text))
    free = []
    for pair in filter(None, m["free"].split(",")):
        stride, size = pair.split("*")
        free.append((_whole(stride), _whole(size)))
    return Access(
        m["buffer"], m["dtype"], _whole(m["count"]), tuple(free), _whole(m["offset"] or "0"), _whole(m["start"]),
        _whole(m["stride"] or "0"), _parse_steps(m["steps"] or ""),
    )  # fmt: skip


def _parse_steps(text: str) -> Steps:
    return tuple((name, _whole(step)) for step, name in _STEP.findall(text))


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) >= _LARGEST:
        raise ValueError(f"{text} is beyond 60 bits")
    return value


def _tuples(value: Any) -> Value:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _must(match: re.Match[str] | None) -> re.Match[str]:
    if match is None:
        raise ValueError("no match")
    return match
