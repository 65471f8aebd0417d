"""Fuzzes the tokenizer under AddressSanitizer and UBSan: `python explorer/native/fuzz.py [SECONDS] [TRACE …]`.

Builds it with GCC's sanitizers into a temporary folder, starts this interpreter again with their run-time library, and
feeds it stretches of the given traces (by default a synthetic one) with bytes flipped, cut, repeated and swapped. A bad
access ends the process; every tenth text also has to give what the plain parser makes of it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SPICE = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\u",
    b"\\ud83d",
    b"\0",
    b"\xf0\x9f",
    b"\xed\xa0",
    b"1e9",
    b"-",
]


def build(folder: Path) -> None:
    """Compile the extension with sanitizers."""
    flags = ["-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    include = sysconfig.get_paths()["include"]
    out = folder / "_tokenizer.abi3.so"
    subprocess.run(["g++", *flags, f"-I{include}", str(HERE / "tokenizer.cpp"), "-o", str(out)], check=True)


def mutated(chooser: random.Random, seeds: list[bytes]) -> bytes:
    """A stretch of a seed, most often of whole events, damaged in up to six places."""
    text = bytearray(chooser.choice(seeds))
    for _ in range(chooser.choice((0, 1, 1, 2, 6))):
        at = chooser.randrange(len(text) + 1)
        kind = chooser.randrange(6)
        if kind == 0 and at < len(text):
            text[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            text[at:at] = chooser.choice(SPICE)
        elif kind == 2:
            del text[at : at + chooser.randrange(1, 9)]
        elif kind == 3:
            text[at:at] = text[at : at + chooser.randrange(1, 200)]
        elif kind == 4:
            del text[at:]
        else:
            text[at : at + 1] = bytes((chooser.randrange(256),)) * chooser.randrange(1, 80)
    return bytes(text)


def seeds_of(paths: list[Path]) -> list[bytes]:
    """Stretches of some events from each file."""
    found = []
    for path in paths:
        data = path.read_bytes()
        begin = max(data.find(b"{", data.find(b'"traceEvents"')), 0)
        for at in range(begin, min(len(data), begin + 400_000), 4_000):
            start = data.find(b"{", at) if at > begin else at
            stop = data.rfind(b"}", start, start + 3_000) + 1
            if 0 <= start < stop:
                found.append(data[start:stop])
    return found


def columns(piece: Any) -> list[Any]:
    """The values of a piece's columns, none for None."""
    found = [getattr(piece, name) for name in getattr(piece, "__dataclass_fields__", ())]
    return [column.tolist() for column in found]


def main() -> int:
    """Build, restart under the sanitizers, fuzz."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    if "NEURONSCOPE_FUZZ" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
            library = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
            preload = {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
            environment = {**os.environ, **preload, "NEURONSCOPE_FUZZ": folder, "PYTHONMALLOC": "malloc"}
            return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode
    sys.path.insert(0, os.environ["NEURONSCOPE_FUZZ"])
    import _tokenizer  # type: ignore[import-not-found]
    from neuronscope.readers import native, pieces

    native._tokenize = _tokenizer.tokenize
    paths = [Path(path) for path in sys.argv[2:]]
    if not paths:
        sys.path.insert(0, str(HERE.parent / "tests"))
        import synthetic  # type: ignore[import-not-found]

        paths = [Path(os.environ["NEURONSCOPE_FUZZ"]) / "trace.json"]
        synthetic.write(paths[0], steps=2, calls=200, counters=True)
    seeds = seeds_of(paths)
    number = int(time.time())
    chooser = random.Random(number)
    tried = accepted = compared = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = mutated(chooser, seeds)
        tried += 1
        accepted += _tokenizer.tokenize(text) is not None
        cuts = sorted(chooser.randrange(len(text) + 1) for _ in range(4))
        _tokenizer.members(text, array("i", [0, *cuts, len(text)]), (b"args", b"correlation", b""))
        if tried % 10 == 0:
            compared += 1
            ours, plain = native.parse_piece(text, None), pieces.parse_piece(text, None)
            if columns(ours) != columns(plain):
                sys.exit(f"seed {number}, text {tried}: not what the plain parser makes of {text!r}")
    sys.stdout.write(f"{tried} texts, {accepted} accepted, {compared} compared: no fault (seed {number})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
