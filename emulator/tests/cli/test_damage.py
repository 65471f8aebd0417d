"""Damaged executables: every command answers, or refuses in one line; nothing hangs and nothing is a traceback."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from neuroncore.cli._graph_text import parse_graph
from neuroncore.runtime import compile_graph
from neuronscope.cli.app import run
from neuronscope.formats import neff

GRAPHS = (
    "aten.mul.Tensor bf16[4,512] bf16[4,512]",
    "aten.mm bf16[256,512] bf16[512,256] -> bf16[256,256]",
    "aten.embedding fp32[20,16] int64[5] -> fp32[5,16]",
    "aten.exp fp32[8192,1024]",
)
WORDS = (
    *("0", "-1", "129", "4096", "99999999999999999999", "nan", "1e400", "None", "fp32", "int64", "PSUM", "HBM"),
    *("Vector", "GpSimd", "", "inout", "loop", "{", "}", "(", ",", '"', "power", "iota", "nc_matmul", "in0", "é", "\0"),
)


def bytes_changed(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 20))):
        place = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[place] = dice.randrange(256)
            case 1:
                del changed[place : place + dice.choice((1, 4, 100))]
            case 2:
                changed[place:place] = dice.randbytes(dice.choice((1, 4, 50)))
            case 3:
                changed[place] ^= 1 << dice.randrange(8)
        if not changed:
            return b"x"
    return bytes(changed)


def text_changed(dice: random.Random, text: str) -> str:
    words = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(max(1, len(words)))
        match dice.randrange(4):
            case 0:
                numbers = [i for i, word in enumerate(words) if word.isascii() and word.isdigit()]
                chosen = dice.choice(numbers or [0])
                value = int(words[chosen]) if numbers else 0
                words[chosen : chosen + 1] = [
                    str(dice.choice((0, value + 1, value * 2, value * 1000, -value, 2**31, 2**63)))
                ]
            case 1:
                words[place : place + 1] = [dice.choice(WORDS)]
            case 2:
                del words[place : place + 1]
            case 3:
                words.insert(place, dice.choice(WORDS))
    return "".join(words)


def packed(members: dict[str, bytes]) -> bytes:
    """A NEFF with a right checksum, whatever is in it."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    data = buffer.getvalue()
    head = neff._HEADER.pack(neff.MAGIC, *neff.VERSION, neff.HEADER_BYTES, len(data), hashlib.sha256(data).digest())
    return head.ljust(neff.HEADER_BYTES, b"\0") + data


@pytest.fixture(scope="module")
def executables() -> list[bytes]:
    return [compile_graph(parse_graph(text), "trn2").neff for text in GRAPHS]


def damaged(dice: random.Random, data: bytes) -> bytes:
    if dice.random() < 0.2:
        return bytes_changed(dice, data)
    members = dict(neff.unpack(data).members)
    name = dice.choice(("program.txt", "program.txt", "program.txt", "info.json", "debug_info.json", "tensors.json"))
    members[name] = text_changed(dice, members[name].decode()).encode("utf8", "replace")
    return packed(members)


@pytest.fixture
def answers(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[bytes, int], None]:
    """Asks every command about a file."""

    def ask(data: bytes, number: int) -> None:
        path, out = tmp_path / "f.neff", tmp_path / "o.ntff"
        path.write_bytes(data)
        commands = (["inspect"], ["ir"], ["what-if", "--target", "trn1"], ["capture", "-s", str(out), "-n"])
        for command in commands:
            code = run([*command[:1], str(path), *command[1:]] if command[0] != "capture" else [*command, str(path)])
            said = capfd.readouterr().err
            assert code in (0, 2), (number, command, code)
            assert "internal error" not in said and "Traceback" not in said, (number, command, said)
            assert code == 0 or len(said.strip().splitlines()) == 1, (number, command, said)

    return ask


def test_commands_refuse_damage_in_one_line(executables: list[bytes], answers: Callable[[bytes, int], None]) -> None:
    for number in range(25):
        dice = random.Random(number)
        answers(damaged(dice, dice.choice(executables)), number)


@pytest.mark.parametrize("debug", [b"{", b"[]", b'{"model_flops": 1e999}', b'{"model_flops": 99999999999999999999}'])
def test_a_damaged_debug_section_is_told_and_the_program_runs(
    executables: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str], debug: bytes
) -> None:
    path = tmp_path / "f.neff"
    path.write_bytes(packed({**neff.unpack(executables[0]).members, "debug_info.json": debug}))
    assert run(["capture", "-s", str(tmp_path / "o.ntff"), "-n", str(path)]) == 0
    assert "its debug section can't be read" in capsys.readouterr().out


def test_an_archive_damaged_inside_is_refused(
    executables: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.neff"
    start = neff.HEADER_BYTES + 10  # what deflate wrote begins behind gzip's header
    foreign = b"VENDOR__" + executables[0][8:start] + b"\xff" * 100
    path.write_bytes(foreign)
    assert run(["inspect", str(path)]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1 and "internal error" not in said


@pytest.mark.slow
def test_commands_refuse_much_damage(executables: list[bytes], answers: Callable[[bytes, int], None]) -> None:
    for number in range(1000, 4000):
        dice = random.Random(number)
        answers(damaged(dice, dice.choice(executables)), number)
