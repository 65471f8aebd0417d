"""Mend one damaged event: a tolerant parser that returns its fields as clean JSON text, or gives up.

Used only for text that a strict parser refused. It knows what writers get wrong: unescaped quotes and backslashes, raw
control characters, bare words (`inf`, `nan`, `None`), missing quotes, commas and brackets, stray and decimal commas,
bytes not in UTF-8.
"""

from __future__ import annotations

import json
import mmap
import re
from dataclasses import dataclass, field

__all__ = [
    "EVENT_KEYS",
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "Mended",
    "extent",
    "mend_event",
    "mend_value",
    "replace_bare_words",
]

EVENT_KEYS = (
    "ph",
    "cat",
    "name",
    "pid",
    "tid",
    "ts",
    "dur",
    "id",
    "args",
    "s",
    "bp",
    "attr",
    "tts",
    "tdur",
    "cname",
    "sf",
)
MAX_DEPTH = 500
MAX_EVENT_BYTES = 16 << 20

_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_BARE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<=[\s:,\[])([+-]?(?i:nan|inf(?:inity)?)(?:\(\w+\))?|None)(?=[\s,}\]])')
_SPACE = re.compile(r"[\s\x00-\x1f]*")
_QUOTE = re.compile(r'\\.|"', re.DOTALL)
_EVENT_KEY = "|".join(EVENT_KEYS)
_NEXT_EVENT_KEY = re.compile(rf'\s*,\s*"?(?:{_EVENT_KEY})"\s*:')
_NEXT_KEY = re.compile(r'\s*,\s*"[^"\n]{0,200}"\s*:')
_NEXT_OBJECT = re.compile(rf'\{{\s*"(?:{_EVENT_KEY})"\s*:')
_DECIMALS = re.compile(r",(\d+)(?=\s*[,}])")
_WHOLE = re.compile(r"-?\d+")
_EVENT_END = re.compile(r"\s*,?\s*\}\s*(?:[,\]]|\{|$)")
_OBJECT_END = re.compile(r"\s*,?\s*\}\s*(?:[,}\]]|$)")
_ARRAY_NEXT = re.compile(r'\s*(?:,\s*["\[{\-\d.tfnN]|,?\s*\])')
_KEY_END = re.compile(r"\s*:")
_OPEN_KEY = re.compile(r'([A-Za-z_][\w .()/%-]*)"?\s*(?=:)')
_WORD = re.compile(r'[^,\]}\s"]+')
_ARGS_END = re.compile(rf'\}}(?:(?=\s*,\s*"(?:{_EVENT_KEY})"\s*:)()|(?=\s*\}}\s*(?:[,\]]|\{{|$)))')
_SURE = re.compile(r'"([A-Za-z][\w .]{0,60})"\s*:\s*(-?(?:0|[1-9]\d{0,17}))(?=\s*[,}])')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NOT_UTF8 = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")
_BAD_ESCAPE = re.compile(r'\\(?:[^"\\/bfnrtu]|u(?![0-9a-fA-F]{4}))')


class _GiveUpError(Exception):
    """The text is beyond repair."""


class _TooDeepError(_GiveUpError):
    """The text nests deeper than anything that is meant."""


@dataclass
class Mended:
    """An event after repair: fields as JSON text, bytes of the source it took, what was wrong."""

    fields: dict[str, str]
    consumed: int
    faults: set[str] = field(default_factory=set)


def extent(data: bytes | mmap.mmap, start: int, max_depth: int = MAX_DEPTH) -> int | None:
    """End of the object or array that begins at `start`; None when cut off, too deep or too large."""
    depth = 0
    for match in _STRUCTURE.finditer(data, start, min(len(data), start + MAX_EVENT_BYTES)):
        token = data[match.start()]
        if token in b"{[":
            depth += 1
            if depth > max_depth:
                return None
        elif token in b"}]":
            depth -= 1
            if depth == 0:
                return match.end()
        elif match.end() - match.start() == 1:
            return None  # a quote that never closes
    return None


def mend_event(data: bytes) -> Mended | None:
    """Repair the event at the start of `data` (up to the next event's start); None when that is not possible."""
    raw = data.decode("utf-8", "surrogateescape")
    text = raw.translate(_NOT_UTF8)  # as many characters as before, so that positions hold
    parser = _Parser(text)
    if text != raw:
        parser.faults.add("bytes that are not UTF-8")
    try:
        fields, end = parser.members(0, depth=1)
    except _GiveUpError:
        return None
    return Mended(fields, len(raw[:end].encode("utf-8", "surrogateescape")), parser.faults) if fields else None


def replace_bare_words(text: bytes) -> tuple[bytes, list[str]]:
    """The text with null for each NaN, inf and the like that stands where a value does, and these words."""
    words: set[str] = set()

    def null(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return match[0]
        words.add(match[1].decode()[:12])
        return b"null"

    return _BARE.sub(null, text), sorted(words)


def mend_value(data: bytes) -> object | None:
    """Repair one JSON value (a header field); None when that is not possible."""
    try:
        text, _ = _Parser(data.decode("utf-8", "replace")).value(0, depth=2, within="{")
        return json.loads(text)
    except (_GiveUpError, ValueError):
        return None


class _Parser:
    """Recursive descent over one text; every method returns normalized JSON text and the position after it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.faults: set[str] = set()

    def space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def peek(self, at: int) -> str:
        return self.text[at] if at < len(self.text) else ""

    def next_object(self, at: int) -> bool:
        """Whether the next event begins where this one should have ended."""
        if not _NEXT_OBJECT.match(self.text, at):
            return False
        self.faults.add("a missing bracket")
        return True

    def members(self, at: int, depth: int) -> tuple[dict[str, str], int]:
        """The members of the object that begins at `at`."""
        if depth > 64:
            raise _TooDeepError
        if self.peek(at) != "{":
            raise _GiveUpError
        fields: dict[str, str] = {}
        at = self.space(at + 1)
        while self.peek(at) != "}":
            if self.peek(at) == ",":
                self.faults.add("a stray comma")
                at = self.space(at + 1)
                continue
            if self.next_object(at):
                return fields, at
            if self.peek(at) == '"':
                key, at = self.string(at, depth, "key")
            elif match := _OPEN_KEY.match(self.text, at):
                self.faults.add("a missing quote")
                key, at = json.dumps(match[1]), match.end()
            else:
                raise _GiveUpError
            at = self.space(at)
            if self.peek(at) != ":":
                raise _GiveUpError
            name = json.loads(key)
            at = self.space(at + 1)
            try:
                fields[name], at = self.value(at, depth, "{")
            except _TooDeepError:
                raise
            except _GiveUpError:
                if depth > 1 or name != "args":
                    raise
                fields[name], at = self.as_text(at)
            if decimals := _DECIMALS.match(self.text, at):
                if not _WHOLE.fullmatch(fields[name]):
                    raise _GiveUpError
                self.faults.add("a decimal comma")
                fields[name], at = f"{fields[name]}.{decimals[1]}", decimals.end()
            at = self.space(at)
            comma = self.peek(at) == ","
            at = self.space(at + 1) if comma else at
            if self.next_object(at):
                return fields, at
            if comma and self.peek(at) == "}":
                self.faults.add("a stray comma")
            elif not comma and self.peek(at) == '"':
                self.faults.add("a missing comma")
            elif not comma and self.peek(at) != "}":
                raise _GiveUpError
        return fields, at + 1

    def value(self, at: int, depth: int, within: str) -> tuple[str, int]:
        char = self.peek(at)
        if char == '"':
            return self.string(at, depth, within)
        if char == "{":
            fields, at = self.members(at, depth + 1)
            return "{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in fields.items()) + "}", at
        if char == "[":
            return self.array(at, depth + 1)
        match = _WORD.match(self.text, at)
        if not match:
            raise _GiveUpError
        return self.word(match[0]), match.end()

    def as_text(self, at: int) -> tuple[str, int]:
        """Arguments beyond repair: their text in member `text`, and what of them is certainly a number."""
        ends = list(_ARGS_END.finditer(self.text, at))
        if not ends:
            raise _GiveUpError
        end = next((match.end() for match in ends if match[1]), ends[-1].end())
        text = self.text[at:end]
        if _NEXT_OBJECT.search(text):  # another writer's event
            raise _GiveUpError
        self.faults.add("arguments beyond repair, kept as text")
        members = {match[1]: match[2] for match in _SURE.finditer(text)}
        members["text"] = json.dumps(text, ensure_ascii=False)
        return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in members.items()) + "}", end

    def array(self, at: int, depth: int) -> tuple[str, int]:
        if depth > 64:
            raise _TooDeepError
        items: list[str] = []
        at = self.space(at + 1)
        while self.peek(at) != "]":
            item, at = self.value(at, depth, "[")
            items.append(item)
            at = self.space(at)
            if self.peek(at) == ",":
                at = self.space(at + 1)
            elif self.peek(at) != "]":
                raise _GiveUpError
        return "[" + ", ".join(items) + "]", at + 1

    def word(self, word: str) -> str:
        if _NUMBER.fullmatch(word) or word in ("true", "false", "null"):
            return word
        bare = word.lower().lstrip("+-")
        if bare.startswith(("nan", "inf")) or word == "None":
            self.faults.add(f"the bare word {word[:12]}")
            return "null"
        if word in ("True", "False"):
            self.faults.add(f"the bare word {word}")
            return word.lower()
        self.faults.add("a malformed number" if bare[:1].isdigit() or bare[:1] == "." else "a missing quote")
        try:
            return repr(float(word))
        except ValueError:
            return json.dumps(word.rstrip('"'))

    def string(self, at: int, depth: int, within: str) -> tuple[str, int]:
        """The string whose opening quote is at `at`; it ends at the first quote after which the structure goes on."""
        for match in _QUOTE.finditer(self.text, at + 1):
            end = match.end()
            if match[0] == '\\"' and depth == 1 and within == "{" and _NEXT_EVENT_KEY.match(self.text, end):
                self.faults.add("an unescaped backslash")  # the text's last character, not an escape of its quote
                return json.dumps(self.text[at + 1 : end - 1], ensure_ascii=False), end
            if match[0] != '"':
                continue
            if self.closes(end, depth, within):
                return self.clean(self.text[at + 1 : end - 1]), end
        next_key = _NEXT_EVENT_KEY if depth == 1 else _NEXT_KEY
        if within == "{" and (following := next_key.search(self.text, at + 1)):
            self.faults.add("a missing quote")
            return self.clean(self.text[at + 1 : following.start()]), following.start()
        raise _GiveUpError

    def closes(self, at: int, depth: int, within: str) -> bool:
        text = self.text
        if within == "key":
            return bool(_KEY_END.match(text, at))
        if within == "[":
            return bool(_ARRAY_NEXT.match(text, at))
        if depth == 1:
            return bool(_NEXT_EVENT_KEY.match(text, at) or _EVENT_END.match(text, at))
        return bool(_NEXT_KEY.match(text, at) or _OBJECT_END.match(text, at))

    def clean(self, content: str) -> str:
        unescaped = _BAD_ESCAPE.search(content)
        if unescaped:  # a writer that escapes nothing: every backslash is meant
            self.faults.add("an unescaped backslash")
            return json.dumps(content.replace('\\"', '"'), ensure_ascii=False)
        if '"' in re.sub(r"\\.", "", content):
            self.faults.add("an unescaped quote")
        elif any(ord(c) < 32 for c in content):
            self.faults.add("a raw control character")
        escaped = re.sub(r'(\\.)|(")', lambda m: m[1] or '\\"', content, flags=re.DOTALL)
        try:
            return (
                json.dumps(json.loads(f'"{escaped}"', strict=False), ensure_ascii=False)
                .encode("utf-8", "replace")
                .decode()
            )
        except ValueError:
            return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace").decode()
