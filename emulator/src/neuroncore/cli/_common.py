"""What the commands share: errors as one line, executables from files, plain tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuronscope.formats.errors import NeuronscopeError

from neuroncore.errors import NeuroncoreError, ParseError

if TYPE_CHECKING:
    from neuroncore.isa import Program
    from neuroncore.targets import Target

__all__ = ["CommandError", "Loaded", "format_ns", "load_neff", "one_line", "table", "with_origins"]


#: Instructions of a program, loops unrolled: their columns take some 100 bytes each.
MOST_EXECUTED = 50_000_000


class CommandError(NeuronscopeError, ValueError):
    """A command can't do what was asked; the message says where and what to do."""


@contextmanager
def one_line() -> Iterator[None]:
    """Errors of neuroncore become the command line's, which prints them in one line."""
    try:
        yield
    except NeuroncoreError as error:
        raise CommandError(" ".join(str(error).split())) from None


@dataclass(frozen=True)
class Loaded:
    """An executable from a file.

    Attributes:
        info: `info.json`.
        hash: content hash, as in the file's name and in profiles.
        program: its instructions.
        target: what it was compiled for, as the target file is now.
        estimates: (op, reason, ns) of what has no instructions.
        notes: what a reader of the numbers has to know.
        model_flops: FLOPs of the graph's matrix products, -1 unknown.
        shapes: of the graph's inputs, by tensor name, where the file says so. Equal programs may serve other shapes.
    """

    path: Path
    info: dict[str, Any]
    hash: str
    program: Program
    target: Target
    estimates: tuple[tuple[str, str, int], ...]
    notes: tuple[str, ...]
    model_flops: int = -1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What was compiled."""
        return str(self.info.get("name", self.path.name))


def load_neff(path: Path) -> Loaded:
    """Read an executable of this emulator.

    Raises:
        FormatError: foreign, damaged or newer.
        CommandError: its program can't be read, or its target is unknown here.
        OSError: the file can't be opened.
    """
    from neuronscope.formats import neff as neff_format

    from neuroncore.isa import parse_program, verify
    from neuroncore.targets import load_target

    read = neff_format.read(path)
    with one_line():
        try:
            program = parse_program(read.members["program.txt"].decode())
            debug = _debug(read.members.get("debug_info.json", b"{}"))
            origins, products, shapes = debug or ([], -1, {})
        except (KeyError, UnicodeDecodeError, ParseError) as error:
            raise CommandError(f"{path}: holds no readable program ({error}); compile it again") from None
        target = load_target(str(read.info.get("target", "")) or None)
        if program.executed > MOST_EXECUTED:
            raise CommandError(
                f"{path}: its program executes {program.executed:,} instructions, the commands take up to "
                f"{MOST_EXECUTED:,}: a loop count may be damaged; else cut the program"
            )
        try:
            verify(program, target)
        except NeuroncoreError as error:
            raise CommandError(f"{path}: {target.name} refuses its program: {error}") from None
    notes = []
    if debug is None:
        notes.append("its debug section can't be read: ops, source lines and the model's FLOPs are unknown")
    if read.info.get("target_hash") not in (None, target.hash):
        notes.append(
            f"compiled for {target.name} {read.info['target_hash']}, whose file now is {target.hash}: times may differ"
        )
    return Loaded(
        path,
        dict(read.info),
        read.hash,
        with_origins(program, origins),
        target,
        tuple((str(op), str(reason), int(ns)) for op, reason, ns in read.info.get("estimates", ())),
        tuple(notes),
        products,
        shapes,
    )


def _debug(data: bytes) -> tuple[list[tuple[str, str]], int, dict[str, tuple[int, ...]]] | None:
    """What `debug_info.json` keeps: op and source line of each instruction, the model's FLOPs (-1 unknown), shapes.

    None where it is damaged.
    """
    import json

    try:
        debug = json.loads(data)
        rows = [(str(op), str(source)) for op, source in debug.get("instructions", [])]
        shapes = {str(name): tuple(map(int, sizes)) for name, sizes in debug.get("shapes", {}).items()}
        products = int(debug.get("model_flops", -1))
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None
    return (rows, products, shapes) if -1 <= products < 2**63 else None


def with_origins(program: Program, origins: Sequence[tuple[str, str]]) -> Program:
    """The program with op and source line on every instruction, where there is one origin for each written one."""
    from dataclasses import replace

    from neuroncore.isa import Instruction, Loop

    if sum(1 for _ in program.text()) != len(origins):
        return program
    left = iter(origins)

    def origin(one: Instruction) -> Instruction:
        op, source = next(left)
        return replace(one, op=op, source=source)

    def named(body: tuple[Instruction | Loop, ...]) -> tuple[Instruction | Loop, ...]:
        return tuple(replace(one, body=named(one.body)) if isinstance(one, Loop) else origin(one) for one in body)

    return replace(program, body=named(program.body))


def format_ns(nanoseconds: float) -> str:
    """A time with three significant digits: `388 us`; whole nanoseconds below one microsecond."""
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if abs(nanoseconds) < limit * 0.9995:
            value = nanoseconds / (limit / 1e3)
            digits = 0 if unit == "ns" else max(2 - len(str(int(abs(value)))) + 1, 0)
            return f"{value:.{digits}f} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain columns: the first and those without a heading to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if column and header[column] else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)
