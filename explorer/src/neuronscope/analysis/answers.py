"""Answers of the macros of `sql/`. Those about everything recorded are worked out once and kept beside a large profile.

What is kept is the answer of the same SQL, found by the tables and the code that made it (`arrays.py`).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.arrays import kept_facts
from neuronscope.analysis.ranges import RANGE_ARGUMENTS

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["answer", "range_answer"]


def answer(profile: Profile, macro: str, arguments: str = "") -> list[dict[str, Any]]:
    """The rows of a macro that is about everything.

    Args:
        profile: whose tables.
        macro: its name.
        arguments: of the call, as SQL.
    """
    return _kept(profile, f"{macro}({arguments})", {})


def range_answer(profile: Profile, macro: str, selected: Range, first: str = "") -> list[dict[str, Any]]:
    """The rows of a macro for a range.

    Args:
        profile: whose tables.
        macro: its name.
        selected: the range.
        first: an argument before the range, as SQL.
    """
    call = f"{macro}({first}, {RANGE_ARGUMENTS[1:]}" if first else f"{macro}{RANGE_ARGUMENTS}"
    if selected == profile.whole_range:
        return _kept(profile, call, selected.parameters)
    return profile.rows(f"SELECT * FROM {call}", selected.parameters)


def _kept(profile: Profile, call: str, parameters: dict[str, int]) -> list[dict[str, Any]]:
    digest = hashlib.blake2b(call.encode(), digest_size=6).hexdigest()
    name = f"{call.partition('(')[0]}-{digest}"
    rows: list[dict[str, Any]] = kept_facts(
        profile, name, tuple(profile.tables), lambda: profile.rows(f"SELECT * FROM {call}", parameters)
    )
    return rows
