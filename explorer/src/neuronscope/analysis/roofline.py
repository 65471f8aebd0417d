"""Each executable against the hardware's peaks: what bounds it, and how much of that bound it reaches.

The roofline of S. Williams, A. Waterman, D. Patterson ("Roofline: an insightful visual performance model", CACM 2009),
per physical NeuronCore: work per HBM byte on one axis, achieved FLOP/s on the other. Two departures. Before either roof
counts, an execution whose fixed launch cost is more than half of its device time is bound by the launch. And a core is
not one kind of arithmetic: matrix products are set against TensorE's peak (each element type at its own), everything
else against the time that the busiest other engine works on it, since those engines have no published FLOP peak.

Needs FLOPs and bytes per execution, and the peaks: from the profile's own hardware table, from its Metadata, from the
list of known targets, or given by the caller. What lacks them is listed with the reason, never guessed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from neuronscope.analysis.devices import peak_of
from neuronscope.analysis.ranges import RANGE_ARGUMENTS
from neuronscope.formats.errors import NeuronscopeError

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile, Range

__all__ = ["Placed", "Roofline", "RooflineError", "Roofs", "roofline"]

LAUNCH_SHARE = 0.5
"""Above this part of device time, the launch cost is what bounds an execution."""

_NEAR = 0.5  # below this part of its roof, most of a program's time is neither arithmetic nor traffic
_ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")
_OTHER_ENGINES = ("Vector", "Scalar", "GpSimd")


class RooflineError(NeuronscopeError, ValueError):
    """Nothing ran on a device, its peaks are neither known nor given, or a peak given is not positive."""


@dataclass(frozen=True)
class Roofs:
    """The ceilings, and where their numbers come from.

    Attributes:
        flops_per_second: dense matrix products in `flops_dtype`, "" as given.
        bytes_per_second: device memory, this core's share of it.
        ridge: FLOPs per byte where the two meet.
        unit: whose ceilings these are, e.g. "one core".
        source: where the numbers come from.
    """

    flops_per_second: float
    flops_dtype: str
    bytes_per_second: float
    unit: str
    source: str

    @property
    def ridge(self) -> float:
        """FLOPs per byte where memory and compute take equally long."""
        return self.flops_per_second / self.bytes_per_second


@dataclass(frozen=True)
class Placed:
    """One executable. Times are sums over its executions in the range.

    Attributes:
        name: what profiles call it; `op` is the operator it is attributed to.
        neff: hash of the executable, empty where it has none.
        executions: how often it ran.
        device_time_ns, launch_ns, program_ns: launch is None where the source has no such split.
        estimated_ns: part of device time that is an estimate.
        flops: of one execution, all engines; adjusted_flops: its matrix products, in those of `Roofs.flops_dtype`.
        bytes: HBM bytes of one execution, read and written.
        intensity: FLOPs per byte.
        achieved_flops_per_second: FLOPs over program time (engines and DMA).
        achieved_bytes_per_second: bytes over program time.
        compute_ns: shortest time of its arithmetic, of one execution; memory_ns: that of its bytes.
        compute_limit: what `compute_ns` is set by: "TensorE peak" or an engine's own busy time.
        roof: compute | memory, the one that takes longer; "" when it can't be placed.
        bound: launch | compute | memory, "" when it can't be placed.
        reached: the larger of compute_ns and memory_ns over program time of one execution.
        launch_share: launch cost over device time.
        engines: part of engine and DMA time in which each engine, and DMA, is active; empty without device profile.
        hfu, mfu, mbu: as Neuron Explorer defines them, over engine and DMA time (see docs/tables.md).
        text: the verdict in words, its denominator named; the reason where it is not placed.
    """

    name: str
    op: str
    neff: str
    executions: int
    device_time_ns: int
    launch_ns: int | None
    program_ns: int
    estimated_ns: int
    flops: int | None
    adjusted_flops: float | None
    bytes: int | None
    intensity: float | None
    achieved_flops_per_second: float | None
    achieved_bytes_per_second: float | None
    compute_ns: float | None
    memory_ns: float | None
    compute_limit: str
    roof: str
    bound: str
    reached: float | None
    launch_share: float | None
    engines: dict[str, float]
    hfu: float | None
    mfu: float | None
    mbu: float | None
    text: str


@dataclass(frozen=True)
class Roofline:
    """Executables of a range, largest device time first."""

    roofs: Roofs
    rows: tuple[Placed, ...]
    device_time_ns: int
    selected: Range

    @property
    def far(self) -> int:
        """Executables that reach less than half of their roof."""
        return sum(row.reached is not None and row.reached < _NEAR for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything, exact, for JSON."""
        return {
            "range": {"text": self.selected.text, "step": self.selected.step},
            "roofs": asdict(self.roofs) | {"ridge": self.roofs.ridge},
            "launch_bound_above": LAUNCH_SHARE,
            "device_time_ns": self.device_time_ns,
            "rows": [asdict(row) for row in self.rows],
        }


def roofline(
    profile: Profile,
    selected: Range | None = None,
    *,
    peak_flops: float | None = None,
    peak_bandwidth: float | None = None,
) -> Roofline:
    """Place the executables of a range (default: the last complete step).

    Args:
        profile: whose executions.
        selected: what part of it.
        peak_flops: FLOP/s of dense matrix products, instead of the known peak.
        peak_bandwidth: bytes/s of device memory, likewise.

    Raises:
        RooflineError: no device work, or the hardware's peaks are neither known nor given, or not positive.
    """
    selected = selected or profile.default_range
    if not profile.has_device_rows:
        raise RooflineError(f"{profile.name}: no device work in this profile, so nothing to place")
    roofs = _roofs(profile, peak_flops, peak_bandwidth)
    summaries = {row["neff"]: row for row in profile.rows(_SUMMARIES)}
    rows = profile.rows(_EXECUTABLES, selected.parameters)
    if sum(row["neff"] == "" for row in rows) > 1:
        summaries.pop("", None)  # whose it is can't be said
    if not rows:
        rows = _device_only(profile, summaries)
    placed = tuple(_place(row, summaries.get(row["neff"]), roofs) for row in rows)
    return Roofline(roofs, placed, sum(row.device_time_ns for row in placed), selected)


#: Executables by what they are, not by call site; copies and fills move bytes and compute nothing: not here.
_EXECUTABLES = f"""
SELECT any_value(CASE WHEN neff <> '' AND overload <> '' THEN overload ELSE name END) AS name,
       any_value(op) AS op, neff, count(*) AS executions, sum(device_part)::BIGINT AS device_time_ns,
       CASE WHEN bool_and(split) THEN sum(launch_part)::BIGINT END AS launch_ns, sum(work_part)::BIGINT AS program_ns,
       sum(estimated_ns)::BIGINT AS estimated_ns,
       CASE WHEN min(flops) >= 0 THEN avg(flops) END AS flops,
       CASE WHEN min(bytes_read) >= 0 AND min(bytes_written) >= 0 THEN avg(bytes_read + bytes_written) END AS bytes
FROM executions{RANGE_ARGUMENTS} WHERE kind = 'exec' AND device_part > 0
GROUP BY neff, CASE WHEN neff = '' THEN name END ORDER BY device_time_ns DESC, name
"""

#: Of each executable one device profile; a vendor's profile has a single one without names.
_SUMMARIES = f"""
SELECT coalesce(neff, '') AS neff, any_value(total_time) AS seconds,
       any_value(hardware_flops) AS hardware_flops, any_value(transpose_flops) AS transpose_flops,
       any_value(adjusted_hardware_flops) AS adjusted_hardware_flops,
       any_value(adjusted_transpose_flops) AS adjusted_transpose_flops,
       any_value(elementwise_flops) AS elementwise_flops, any_value(hbm_read_bytes) AS hbm_read_bytes,
       any_value(hbm_write_bytes) AS hbm_write_bytes, any_value(hfu_estimated_percent) AS hfu,
       any_value(coalesce(mfu_estimated_percent, mfu_inst_estimated_percent)) AS mfu,
       any_value(mbu_estimated_percent) AS mbu, any_value(dma_active_time_percent) AS DMA_share,
       {", ".join(f"any_value({name.lower()}_engine_active_time_percent) AS {name}_share" for name in _ENGINES)},
       {", ".join(f"any_value({engine.lower()}_engine_active_time) AS {engine}" for engine in _OTHER_ENGINES)}
FROM Summary GROUP BY ALL
"""


def _roofs(profile: Profile, peak_flops: float | None, peak_bandwidth: float | None) -> Roofs:
    for name, value in (("peak_flops", peak_flops), ("peak_bandwidth", peak_bandwidth)):
        if value is not None and not 0 < value < float("inf"):
            raise RooflineError(f"{name} {value:g}: must be more than zero and finite")
    known = _recorded(profile) or _metadata(profile) or _listed(profile)
    if peak_flops is not None and peak_bandwidth is not None:
        return Roofs(peak_flops, "", peak_bandwidth, known.unit if known else "one device", "as given")
    if known is None:
        device = profile.info.get("device_name") or "this device"
        raise RooflineError(
            f"{profile.name}: the peaks of {device} are not known here. Give both: --peak-flops 989e12 "
            f"--peak-bandwidth 3.35e12 (FLOP/s of dense matrix products and bytes/s, from its data sheet)"
        )
    return Roofs(
        peak_flops or known.flops_per_second,
        known.flops_dtype,
        peak_bandwidth or known.bytes_per_second,
        known.unit,
        known.source if peak_flops is None and peak_bandwidth is None else f"{known.source}; one as given",
    )


def _recorded(profile: Profile) -> Roofs | None:
    """From the numbers the timelines were simulated with."""
    numbers = {row["name"]: row["value"] for row in profile.rows("SELECT name, value FROM Hardware")}
    flops = numbers.get("tensor_peak_flops_per_second.bf16")
    bandwidth = numbers.get("hbm_bytes_per_second")
    target = profile.info.get("target", "")
    if not flops or not bandwidth:
        return None
    return Roofs(flops, "bf16", bandwidth, f"one core of {target}" if target else "one core", "the profile's own")


def _metadata(profile: Profile) -> Roofs | None:
    """From a vendor's device profile: TensorE's rows, columns and clock, and the HBM bandwidth it divides by."""
    query = """SELECT 2.0 * tensor_engine_num_rows * tensor_engine_num_cols * tensor_engine_clock_freq * 1e9 AS flops,
                      hbm_ddr_bandwidth AS bandwidth FROM Metadata"""
    for row in profile.rows(query):
        if row["flops"] and row["bandwidth"]:
            return Roofs(row["flops"], "bf16", row["bandwidth"], "one core, a whole HBM stack", "Metadata")
    return None


def _listed(profile: Profile) -> Roofs | None:
    peak = peak_of(profile)
    if peak is None:
        return None
    return Roofs(peak.flops_per_second, peak.flops_dtype, peak.hbm_bytes_per_second, peak.unit, peak.source)


def _device_only(profile: Profile, summaries: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of profiles without executions: what Summary describes, once."""
    return [
        {
            "name": profile.name, "op": "", "neff": neff, "executions": 1, "device_time_ns": ns, "launch_ns": None,
            "program_ns": ns, "estimated_ns": 0, "flops": None, "bytes": None,
        }
        for neff, row in summaries.items()
        if (ns := round((row["seconds"] or 0) * 1e9))
    ]  # fmt: skip


def _place(row: dict[str, Any], summary: dict[str, Any] | None, roofs: Roofs) -> Placed:
    count = row["executions"]
    program = row["program_ns"] / count
    launch_share = row["launch_ns"] / row["device_time_ns"] if row["launch_ns"] is not None else None
    flops, size = row["flops"], row["bytes"]
    adjusted: float | None = None
    compute_ns: float | None = None
    limit = ""
    if summary is not None:
        useful = (summary["hardware_flops"] or 0) - (summary["transpose_flops"] or 0)
        adjusted = float((summary["adjusted_hardware_flops"] or 0) - (summary["adjusted_transpose_flops"] or 0))
        adjusted = adjusted or float(useful)
        if summary["hardware_flops"] is not None:
            flops = useful + (summary["elementwise_flops"] or 0)
        if size is None and summary["hbm_read_bytes"] is not None:
            size = summary["hbm_read_bytes"] + (summary["hbm_write_bytes"] or 0)
        tensor_ns = adjusted / roofs.flops_per_second * 1e9
        busy = {engine: (summary[engine] or 0) * 1e9 for engine in _OTHER_ENGINES}
        busiest = max(busy, key=lambda engine: busy[engine])
        compute_ns, limit = max(
            (tensor_ns, f"TensorE peak, {roofs.flops_dtype}".rstrip(", ")), (busy[busiest], f"{busiest} busy")
        )
    elif flops is not None:
        compute_ns, limit = flops / roofs.flops_per_second * 1e9, f"peak, {roofs.flops_dtype}".rstrip(", ")
    memory_ns = size / roofs.bytes_per_second * 1e9 if size is not None else None
    hfu, mfu, mbu = (None if summary is None else summary[name] for name in ("hfu", "mfu", "mbu"))
    missing = [name for name, value in (("FLOPs", flops), ("bytes", size)) if value is None]
    roof, bound, reached, text = "", "", None, f"not placed: the profile has no {' and no '.join(missing)} of it"
    if not missing and compute_ns is not None and memory_ns is not None:
        roof = "compute" if compute_ns > memory_ns else "memory"
        reached = max(compute_ns, memory_ns) / program if program else None
        bound, text = _verdict(roof, limit if roof == "compute" else "HBM share", reached, launch_share)
    elif launch_share is not None and launch_share > LAUNCH_SHARE:
        bound, text = "launch", f"launch cost is {launch_share:.0%} of device time"
    return Placed(
        row["name"], row["op"] or "", row["neff"], count, row["device_time_ns"], row["launch_ns"], row["program_ns"],
        row["estimated_ns"],
        None if flops is None else round(flops),
        adjusted,
        None if size is None else round(size),
        flops / size if flops is not None and size else None,
        flops / program * 1e9 if flops is not None and program else None,
        size / program * 1e9 if size is not None and program else None,
        compute_ns, memory_ns, limit, roof, bound, reached, launch_share, _shares(summary),
        hfu, mfu, mbu, text,
    )  # fmt: skip


def _shares(summary: dict[str, Any] | None) -> dict[str, float]:
    if summary is None:
        return {}
    found = {engine: summary[f"{engine}_share"] for engine in (*_ENGINES, "DMA")}
    return {engine: share for engine, share in found.items() if share is not None}


def _verdict(roof: str, limit: str, reached: float | None, launch_share: float | None) -> tuple[str, str]:
    share = "" if reached is None else f"; engine and DMA time reaches {reached:.0%} of the {roof} roof ({limit})"
    if reached is not None and reached < _NEAR:
        share += ", the rest is latency and waiting"
    if launch_share is not None and launch_share > LAUNCH_SHARE:
        return "launch", f"launch cost is {launch_share:.0%} of device time{share}"
    return roof, f"{roof}-bound{share}"
