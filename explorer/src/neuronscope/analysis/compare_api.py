"""A comparison as the HTTP interface answers: with each execution, its operators and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuronscope.analysis.compare import Comparison
from neuronscope.analysis.compared import Compared
from neuronscope.analysis.explain import explain
from neuronscope.analysis.ranges import RANGE_ARGUMENTS

__all__ = ["operator_rows", "to_api"]

_SELECTED = f"executions{RANGE_ARGUMENTS}"
_EXECUTIONS_SHOWN = 2000


def to_api(comparison: Comparison) -> dict[str, Any]:
    """The comparison as `GET /api/compare` answers."""
    base = comparison.base
    answer = []
    for one in comparison.compared:
        terms = comparison.terms(one)
        row = one.to_row()
        device_time = row["device_time_ns"]
        answer.append(
            {
                "id": one.profile.id,
                **row,
                "estimated_ns": one.totals["estimated_ns"],
                "device_busy_ns": one.totals["busy_ns"],
                "bytes_at_hbm_peak_ns": one.bytes_at_peak_ns,
                "ratio": base.totals["device_time_ns"] / device_time if device_time else None,
                "span_ratio": base.totals["span_ns"] / row["span_ns"] if row["span_ns"] else None,
                "range": one.selected.text,
                "launch_status": one.profile.launch_status,
                "executions_list": _executions_list(one),
                "terms": [term.__dict__ for term in terms],
                "in_span": one.terms_in_span(comparison.split),
                "delta_span_ns": sum(term.delta_ns for term in terms),
                "sentence": "" if one is base else explain(base, one, comparison.split),
                "ops": operator_rows(one.operators.with_device_time),
            }
        )
    return {
        "base": base.profile.id,
        "warnings": list(comparison.warnings),
        "sentence": comparison.sentence,
        "profiles": answer,
        "roofline": _roofline(comparison),
    }


def operator_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """OperatorRows of the HTTP interface."""
    return [
        {
            "name": row.name,
            "calls": row.calls,
            "self_cpu_ns": row.self_cpu_ns,
            "device_time_ns": row.device_time_ns,
            "launch_ns": row.launch_ns,
            "program_ns": row.program_ns,
            "estimated_ns": row.estimated_ns,
            "bound_ns": row.bound_ns,
            "executions": row.executions,
            "share": row.share,
            "events": None if row.first_event is None else str(row.first_event),
        }
        for row in rows
    ]


def _executions_list(one: Compared) -> list[dict[str, Any]]:
    rows = one.profile.rows(
        f"""
        SELECT event_id, CASE WHEN op = '' THEN name ELSE op END AS op, kind, start_ts, duration_ns, launch_part,
               work_part, split, estimated_ns,
               greatest(start_ts - coalesce(max(end_ts) OVER (ORDER BY start_ts, execution_id
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ts), 0) AS gap,
               (SELECT min(h.start_ts) FROM HostOp h JOIN {_SELECTED} e ON e.op_event_id = h.event_id) AS dispatch
        FROM {_SELECTED}
        ORDER BY start_ts, execution_id LIMIT {_EXECUTIONS_SHOWN}
        """,
        one.selected.parameters,
    )
    if not rows:
        return []
    begin = rows[0]["dispatch"] if rows[0]["dispatch"] is not None else rows[0]["start_ts"]
    return [
        {
            "event_id": str(row["event_id"]),
            "op": row["op"],
            "kind": row["kind"],
            "start": row["start_ts"] - begin,
            "duration_ns": row["duration_ns"],
            "launch_ns": row["launch_part"] if row["split"] else None,
            "program_ns": row["work_part"] if row["split"] else None,
            "estimated": row["estimated_ns"] > 0,
            "gap_before_ns": row["gap"],
        }
        for row in rows
    ]


def _roofline(comparison: Comparison) -> dict[str, Any] | None:
    """One point per executable; None when any profile's ceilings are unknown or differ."""
    peaks = {one.peak for one in comparison.compared}
    if len(peaks) != 1 or (peak := peaks.pop()) is None:
        return None
    ridge = peak.flops_per_second / peak.hbm_bytes_per_second
    points = []
    for one in comparison.compared:
        rows = one.profile.rows(
            f"""
            SELECT CASE WHEN op = '' THEN name ELSE op END AS name, neff, count(*) AS executions,
                   sum(flops)::BIGINT AS flops, sum(bytes_read + bytes_written)::BIGINT AS bytes,
                   sum(work_part)::BIGINT AS work, sum(launch_part)::BIGINT AS launch
            FROM {_SELECTED} WHERE kind = 'exec' AND flops >= 0 AND bytes_read >= 0 AND bytes_written >= 0
            GROUP BY ALL ORDER BY name, neff
            """,
            one.selected.parameters,
        )
        for row in rows:
            if not row["bytes"] or not row["work"] or not row["flops"]:
                continue
            intensity = row["flops"] / row["bytes"]
            bound = "launch" if row["launch"] > row["work"] else "memory" if intensity < ridge else "compute"
            points.append(
                {
                    "profile": one.profile.id,
                    "name": row["name"],
                    "executions": row["executions"],
                    "flops_per_byte": intensity,
                    "flops_per_second": row["flops"] * 1e9 / row["work"],
                    "bound": bound,
                }
            )
    return {
        "target": f"{peak.target}, {peak.unit}, {peak.flops_dtype}",
        "peak_flops": peak.flops_per_second,
        "hbm_bytes_per_second": peak.hbm_bytes_per_second,
        "source": peak.source,
        "points": points,
    }
