"""The analyses that have a command, a route and a panel of their own: which SQL file, over what range, in which words.

`ANALYSES` lists them; `analyse` runs one. The figures are those of its file in `sql/`, unchanged; sentences and reasons
are made here, once for every surface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuronscope.analysis import findings
from neuronscope.analysis.answers import answer, range_answer
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["ANALYSES", "Analysis", "Found", "UnknownAnalysisError", "analyse", "range_of"]

Row = dict[str, Any]


class UnknownAnalysisError(NeuronscopeError, KeyError):
    """No analysis of that name; the message lists them."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        name: of its command and route.
        macro: the table macro of `sql/<macro>.sql`, whose comment documents the columns.
        title: what it answers, a sentence for help and docs.
        share: what the column `share` is a share of.
        ranged: it takes a range; else it is always about everything recorded.
        whole: its default range is everything rather than the last complete step.
        facts: sentences about the rows, largest first.
        reason: why there are no rows.
        more: further tables by name: their macro.
    """

    name: str
    macro: str
    title: str
    share: str
    facts: Callable[[Profile, Sequence[Row]], Iterable[str]]
    reason: Callable[[Profile], str]
    ranged: bool = True
    whole: bool = False
    more: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What an analysis found: rows as of its SQL file, sentences, and where there are no rows the reason."""

    analysis: Analysis
    rows: tuple[Row, ...]
    facts: tuple[str, ...]
    reason: str
    range_text: str
    more: Mapping[str, tuple[Row, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        return {
            "analysis": self.analysis.name,
            "range": self.range_text,
            "share_of": self.analysis.share,
            "facts": list(self.facts),
            "reason": self.reason,
            "rows": list(self.rows),
            **{name: list(rows) for name, rows in self.more.items()},
        }

    def to_api(self, origin_ns: int) -> dict[str, Any]:
        """As `GET …/analyses/{name}` answers: times relative to the profile's origin, ids as text."""

        def plain(key: str, value: Any) -> Any:
            if isinstance(value, list):
                return [plain(key, one) for one in value]
            if isinstance(value, dict):
                return {name: plain(name, one) for name, one in value.items()}
            if key.endswith("_ts") and value is not None:
                return value - origin_ns
            return str(value) if key.endswith("event_id") else value

        answer: dict[str, Any] = plain("", self.to_dict())
        return answer


ANALYSES: Mapping[str, Analysis] = {
    one.name: one
    for one in (
        Analysis(
            "steps",
            "step_split",
            "Where the time of each step went: computing, exposed communication and copies, and why the device idled.",
            "the step's span",
            findings.steps,
            findings.no_steps,
            whole=True,
        ),
        Analysis(
            "insights",
            "insights",
            "What would make it faster, largest bound on the gain first, with formula and evidence.",
            "the steps' spans, summed over steps and ranks",
            findings.insights,
            findings.no_insights,
            whole=True,
        ),
        Analysis(
            "overlap",
            "overlap",
            "How much of communication and copying is hidden behind computing, by unions of intervals.",
            "the time in which collectives (or copies) ran",
            findings.overlap,
            findings.no_overlap,
        ),
        Analysis(
            "ranks",
            "rank_skew",
            "Ranks of a distributed job side by side: work, waits in collectives, stragglers; clocks aligned.",
            "the rank's time in matched collectives",
            findings.ranks,
            findings.no_ranks,
            ranged=False,
        ),
        Analysis(
            "memory",
            "memory_peaks",
            "Memory in use: the peak of each place and series, and what was alive at it.",
            "the place's reserved memory",
            findings.memory,
            findings.no_memory,
            ranged=False,
            more={"at_peak": "memory_at_peak", "curve": "memory_curve"},
        ),
        Analysis(
            "launches",
            "launches",
            "Host calls that launch device work: their time, the delay until it starts, work shorter than the call.",
            "the host time of all launch calls",
            findings.launches,
            findings.no_launches,
        ),
        Analysis(
            "tree",
            "operator_tree",
            "Operator calls as a tree: host time, and the device time launched below each call.",
            "the range's device time (without any: of the top-level calls' host time)",
            findings.tree,
            findings.no_tree,
        ),
        Analysis(
            "averages",
            "key_averages",
            "The table of torch's key_averages() for operators, and beside it ours where torch is known to be wrong.",
            "the range's device time (without any: of the operators' own host time)",
            findings.averages,
            findings.no_tree,
        ),
        Analysis(
            "hierarchy",
            "instruction_tree",
            "Instructions of device profiles by layer, HLO operator, BIR instruction and opcode, with engines' times.",
            "the time of all instructions of the range",
            findings.hierarchy,
            findings.no_hierarchy,
            whole=True,
        ),
        Analysis(
            "throttling",
            "throttling",
            "When the hardware held an engine back, and how far.",
            "the range's span",
            findings.throttling,
            findings.no_throttling,
            whole=True,
        ),
        Analysis(
            "lanes",
            "lane_use",
            "How busy each track of the timeline was.",
            "the range's span",
            findings.lanes,
            findings.no_lanes,
        ),
    )
}


def range_of(profile: Profile, name: str, selected: Range | None = None) -> Range:
    """The range an analysis is about when asked for `selected`.

    Raises:
        UnknownAnalysisError: there is no such analysis.
    """
    analysis = ANALYSES.get(name)
    if analysis is None:
        raise UnknownAnalysisError(f"no analysis {name!r}. There are: {', '.join(ANALYSES)}")
    if not analysis.ranged:
        return profile.whole_range
    return selected or (profile.whole_range if analysis.whole else profile.default_range)


def analyse(profile: Profile, name: str, selected: Range | None = None) -> Found:
    """Run one analysis.

    Args:
        profile: of what.
        name: one of `ANALYSES`.
        selected: the range; default the last complete step, or everything where the analysis is about steps. Analyses
            that take no range leave it aside.

    Raises:
        UnknownAnalysisError: there is no such analysis.
    """
    chosen = range_of(profile, name, selected)
    analysis = ANALYSES[name]
    rows = range_answer(profile, analysis.macro, chosen) if analysis.ranged else answer(profile, analysis.macro)
    more = {key: tuple(answer(profile, macro)) for key, macro in analysis.more.items()}
    reason = "" if rows else analysis.reason(profile)
    facts = tuple(analysis.facts(profile, rows)) if rows else ()
    return Found(analysis, tuple(rows), facts, reason, chosen.text, more)
