"""Instructions the compiler does not emit, for programs by hand: gathers on chip, shuffles, orders, random numbers.

Each has its semantics, cost and limits here. Where isa.json has no published cost its estimate is used, and said so.
What is left is in `NOT_MODELLED`, with the reason.
"""

from __future__ import annotations

import numpy as np

from neuroncore.isa import costs
from neuroncore.isa.costs import GPSIMD_START_CYCLES, MIN_INTERVAL_CYCLES, Use
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.semantics import ALU, FUNCTIONS, REDUCE, Context
from neuroncore.isa.spec import (
    CHIP,
    DMA,
    OPERATORS,
    REQUIRED,
    SBUF,
    AttributeSpec,
    InstructionSpec,
    OperandSpec,
    column,
    dst,
    result,
    src,
)
from neuroncore.isa.spec import FUNCTIONS as FUNCTION_NAMES

__all__ = ["NOT_MODELLED", "SPECIAL"]

_A = AttributeSpec
_GROUP = 16  # partitions a GpSimd processor serves
_QUADRANT = 32
_KEEP = 255  # in a shuffle's mask: nothing is written there
_SOURCES = tuple(f"src{n}" for n in range(1, 16))


# What they compute ----------------------------------------------------------------------------------------------------


def activate2(c: Context) -> None:
    """Dst = op((data op0 operand0) op1 operand1), optionally reduced."""
    x = c.f32("data")
    for number in ("0", "1"):
        if c.attribute(f"op{number}") is not None:
            x = np.asarray(ALU[c.attribute(f"op{number}")](x, c.f32(f"operand{number}")), np.float32)
    y = np.asarray(FUNCTIONS[c.attribute("op")](x), np.float32)
    c.write("dst", y)
    if c.attribute("reduce_op") and c.has("reduce_res"):
        c.write("reduce_res", np.asarray(_REDUCTIONS[c.attribute("reduce_op")](y, axis=1))[:, None])


_REDUCTIONS = {**REDUCE, "abs_min": lambda a, axis: np.min(np.abs(a), axis=axis)}


def dropout(c: Context) -> None:
    """Zero elements with a probability; what stays is not scaled."""
    x = c.f32("data")
    chance = c.random(x.size).reshape(x.shape).astype(np.float64) / 2.0**32
    c.write("dst", np.where(chance < c.f32("prob"), np.float32(0), x))


def local_gather(c: Context) -> None:
    """In each group of 16 partitions: runs of elements at the group's indices, which lie down its partitions."""
    data, index = c.raw("data"), c.raw("index").astype(np.int64)
    run = int(c.attribute("num_elem_per_idx"))
    out = np.zeros_like(c.raw("dst"))
    for first in range(0, data.shape[0], _GROUP):
        wanted = index[first : first + _GROUP].flatten(order="F")[: out.shape[1] // run]
        places = (wanted[:, None] * run + np.arange(run)).reshape(-1)
        out[first : first + _GROUP] = data[first : first + _GROUP][:, places]
    c.write_raw("dst", out)


def nc_n_gather(c: Context) -> None:
    """dst[p, i] = data[p, index[p, i]]."""
    c.write_raw("dst", np.take_along_axis(c.raw("data"), c.raw("index").astype(np.int64), axis=1))


def nc_stream_shuffle(c: Context) -> None:
    """Partition 32q + i becomes data's 32q + mask[i]; 255 leaves it as it was."""
    data, out = c.raw("data"), c.raw("dst")
    for first in range(0, data.shape[0], _QUADRANT):
        for place, source in enumerate(c.attribute("mask")):
            if source != _KEEP and first + place < out.shape[0]:
                out[first + place] = data[first + source]
    c.write_raw("dst", out)


def rsqrt_on_gpsimd(c: Context) -> None:
    """Dst = 1 / sqrt(data)."""
    c.write("dst", 1 / np.sqrt(c.f32("data")))


def tensor_scalar_cumulative(c: Context) -> None:
    """dst[:, i] = (data[:, i] op0 operand0) op1 dst[:, i-1], starting from operand1."""
    x = np.asarray(ALU[c.attribute("op0")](c.f32("data"), c.f32("operand0")), np.float32)
    combine = ALU[c.attribute("op1")]
    state = np.broadcast_to(np.asarray(c.f32("operand1"), np.float32).reshape(-1), (x.shape[0],))
    y = np.empty_like(x)
    for i in range(x.shape[1]):
        y[:, i] = state = np.asarray(combine(x[:, i], state), np.float32)
    c.write("dst", y)


def topk(c: Context) -> None:
    """The largest values of each row in descending order, and their places; equal ones in the order of places."""
    x = c.f32("data")
    places = np.argsort(-x, axis=1, kind="stable")[:, : c.raw("dst").shape[1]]
    c.write("dst", np.take_along_axis(x, places, axis=1))
    c.write_raw("index", places.astype(np.uint32))


def rand2(c: Context) -> None:
    """Uniform numbers in [low, high)."""
    shape = c.raw("dst").shape
    unit = (c.random(int(np.prod(shape))).reshape(shape) >> np.uint32(8)).astype(np.float32) / np.float32(2**24)
    low, high = c.f32("low"), c.f32("high")
    c.write("dst", low + unit * (high - low))


def set_rng_seed(c: Context) -> None:
    """The engine's generator starts anew."""
    c.seed(int(c.raw("data").view(np.uint32).reshape(-1)[0]))


def sequence_bounds(c: Context) -> None:
    """First and one-past-last place of each element's run of equal ids; for id 0, padding: N and -1."""
    ids = c.f32("data")[0]
    edges = np.flatnonzero(np.diff(ids, prepend=np.nan, append=np.nan) != 0)
    run = np.searchsorted(edges, np.arange(len(ids)), side="right") - 1
    begin, end = edges[run].astype(np.float32), edges[run + 1].astype(np.float32)
    padding = ids == 0
    bounds = np.stack([np.where(padding, np.float32(len(ids)), begin), np.where(padding, np.float32(-1), end)])
    c.write("dst", bounds.reshape(1, -1))


def nonzero_with_count(c: Context) -> None:
    """In every 16th partition: places of what is not zero (plus index_offset), padding, and last their count."""
    x, out = c.f32("data"), c.raw("dst")
    for row in range(0, x.shape[0], _GROUP):
        places = np.flatnonzero(x[row])
        out[row] = c.attribute("padding_val")
        out[row, : len(places)] = places + c.attribute("index_offset")
        out[row, -1] = len(places)
    c.write_raw("dst", out)


def dma_compute(c: Context) -> None:
    """Dst = the sum of its sources, in fp32."""
    total = c.f32("src").copy()
    for name in _SOURCES:
        if c.has(name):
            total = total + c.f32(name).reshape(total.shape)
    c.write("dst", total)


# What they cost, cycles -----------------------------------------------------------------------------------------------


def _local_gather_cycles(use: Use) -> float:
    """150 + elements / C as published; isa.json calls C doubtful for runs longer than one."""
    run, width = int(str(use.operands["num_elem_per_idx"])), DTYPE_BYTES[use.dtype("data")]
    per_cycle = (28 + 4 * run) / (4 * run) / min(4 / width, run)
    return GPSIMD_START_CYCLES + use.access("dst").free_elements / per_cycle


def _n_gather_cycles(use: Use) -> float:
    """(150 + 512 * 4) per 512 elements (estimated)."""
    return -(-use.access("dst").free_elements // 512) * (GPSIMD_START_CYCLES + 512 * 4.0)


def _four_times(use: Use) -> float:
    """150 + 4N (estimated)."""
    return GPSIMD_START_CYCLES + 4.0 * use.n


def _topk_cycles(use: Use) -> float:
    """4n + K."""
    return 4.0 * use.access("data").free_elements + use.access("dst").free_elements


def _quarter(use: Use) -> float:
    """N / 4: four numbers a lane and cycle."""
    return max(float(MIN_INTERVAL_CYCLES), use.n / 4)


def _seed_cycles(use: Use) -> float:
    """64 (estimated)."""
    return float(MIN_INTERVAL_CYCLES)


def _nonzero_cycles(use: Use) -> float:
    """150 + 2N (estimated)."""
    return GPSIMD_START_CYCLES + 2.0 * use.access("data").free_elements


# Limits ---------------------------------------------------------------------------------------------------------------


def _check_groups(use: Use) -> None:
    """Whole groups of 16 partitions; 4096 indices each."""
    data, index = use.access("data"), use.access("index")
    run = use.operands["num_elem_per_idx"]
    if data.partitions % _GROUP:
        raise use.fail(f"operand data has {data.partitions} partitions, needs a multiple of {_GROUP}")
    if index.partitions != data.partitions:
        raise use.fail(f"operand index has {index.partitions} partitions, data {data.partitions}: they must be equal")
    assert isinstance(run, int)
    count = use.access("dst").free_elements // run
    if use.access("dst").free_elements % run or count > min(4096, _GROUP * index.free_elements):
        raise use.fail(
            f"operand dst has {use.access('dst').free_elements} elements per partition: not one run of {run} for each "
            f"of at most {min(4096, _GROUP * index.free_elements)} indices"
        )
    costs.check_same_dtype(use)


def _check_n_gather(use: Use) -> None:
    if use.access("index").free_elements != use.access("dst").free_elements:
        raise use.fail(
            f"operand index has {use.access('index').free_elements} elements per partition, "
            f"dst {use.access('dst').free_elements}: they must be equal"
        )
    costs.check_same_dtype(use)


def _check_shuffle(use: Use) -> None:
    mask = use.operands["mask"]
    right = isinstance(mask, tuple) and len(mask) == _QUADRANT
    if not right or any(not isinstance(m, int) or not (0 <= m < _QUADRANT or m == _KEEP) for m in mask):  # type: ignore[union-attr]
        raise use.fail(f"mask={mask!r}: needs {_QUADRANT} partitions 0..{_QUADRANT - 1}, or {_KEEP} for none")
    if use.access("data").partitions % _QUADRANT:
        raise use.fail(f"operand data has {use.access('data').partitions} partitions, needs a multiple of {_QUADRANT}")
    costs.check_same_dtype(use)


def _check_topk(use: Use) -> None:
    data, k = use.access("data"), use.access("dst").free_elements
    if data.partitions % _GROUP:
        raise use.fail(f"operand data has {data.partitions} partitions, needs a multiple of {_GROUP}")
    if not 8 <= data.free_elements <= 65535 or not 1 <= k <= min(32767, data.free_elements):
        raise use.fail(f"{k} of {data.free_elements} elements: takes 1..32767 of 8..65535")
    if use.access("index").free_elements != k:
        raise use.fail(f"operand index has {use.access('index').free_elements} elements per partition, dst {k}")


def _check_sequence_bounds(use: Use) -> None:
    data = use.access("data")
    if data.partitions != 1 or use.access("dst").free_elements != 2 * data.free_elements:
        raise use.fail(f"data is [{data.partitions}, {data.free_elements}]: one partition, twice as many results")


def _check_nonzero(use: Use) -> None:
    data, out = use.access("data"), use.access("dst")
    if out.free_elements != data.free_elements + 1:
        raise use.fail(f"operand dst has {out.free_elements} elements per partition, needs {data.free_elements + 1}")


def _check_seed(use: Use) -> None:
    data = use.access("data")
    if (data.partitions, data.free_elements) != (1, 1):
        raise use.fail(f"operand data is [{data.partitions}, {data.free_elements}], needs [1, 1]")


def _check_sum(use: Use) -> None:
    expected = use.access("dst").elements
    for name, access in use.instruction.accesses():
        if access.elements != expected:
            raise use.fail(f"operand {name} has {access.elements} elements, dst {expected}: they must be equal")


# The declarations -----------------------------------------------------------------------------------------------------

_WIDE = ("int32", "uint32", "fp32")

SPECIAL = (
    InstructionSpec(
        "activate2",
        "dst = op((data op0 operand0) op1 operand1); optionally reduce_res = reduce_op over the free elements.",
        ("Scalar",),
        (dst(), src(), column("operand0"), column("operand1"), result()),
        (
            _A("op", REQUIRED, FUNCTION_NAMES),
            _A("op0", None, (None, "multiply", "add", "subtract")),
            _A("op1", None, (None, "add", "subtract")),
            _A("reduce_op", None, (None, "add", "max", "min", "abs_max", "abs_min")),
        ),
        activate2,
        costs.activation,
        generation=4,
        same_elements=("data",),
    ),
    InstructionSpec(
        "dropout",
        "dst = data, elements zeroed with probability prob.",
        ("Vector",),
        (dst(), src(), column("prob", optional=False)),
        (),
        dropout,
        costs.vector,
        costs.check_same_dtype,
        same_elements=("data",),
    ),
    InstructionSpec(
        "local_gather",
        "In each group of 16 partitions: dst = runs of num_elem_per_idx elements of data at the group's indices, "
        "which count down its partitions first.",
        ("GpSimd",),
        (dst(SBUF), src("data", SBUF), OperandSpec("index", "read", SBUF, ("uint16",))),
        (_A("num_elem_per_idx", 1, (1, 2, 4, 8, 16, 32)),),
        local_gather,
        _local_gather_cycles,
        _check_groups,
    ),
    InstructionSpec(
        "nc_n_gather",
        "dst[p, i] = data[p, index[p, i]].",
        ("GpSimd",),
        (dst(SBUF), src("data", SBUF), OperandSpec("index", "read", SBUF, ("uint32",))),
        (),
        nc_n_gather,
        _n_gather_cycles,
        _check_n_gather,
    ),
    InstructionSpec(
        "nc_stream_shuffle",
        "dst's partition 32q+i = data's partition 32q+mask[i], 255 leaves it.",
        ("Vector",),
        (dst(CHIP, "update"), src()),
        (_A("mask"),),
        nc_stream_shuffle,
        costs.vector,
        _check_shuffle,
        same_elements=("data",),
    ),
    InstructionSpec(
        "rsqrt_on_gpsimd",
        "dst = 1 / sqrt(data); slow, activation's rsqrt is usually better.",
        ("GpSimd",),
        (dst(SBUF), src("data", SBUF)),
        (),
        rsqrt_on_gpsimd,
        _four_times,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_scalar_cumulative",
        "dst[:, i] = (data[:, i] op0 operand0) op1 dst[:, i-1], starting from operand1.",
        ("Vector",),
        (dst(), src(), column("operand0", optional=False), column("operand1", optional=False)),
        (_A("op0", REQUIRED, OPERATORS), _A("op1", REQUIRED, OPERATORS)),
        tensor_scalar_cumulative,
        costs.vector,
        same_elements=("data",),
    ),
    InstructionSpec(
        "topk",
        "dst = the largest values of each row in descending order, index = their places.",
        ("GpSimd",),
        (dst(SBUF, dtypes=("bf16",)), OperandSpec("index", "write", SBUF, ("uint32",)), src("data", SBUF, ("bf16",))),
        (),
        topk,
        _topk_cycles,
        _check_topk,
    ),
    InstructionSpec(
        "rand2",
        "dst = uniform numbers in [low, high).",
        ("Vector",),
        (dst(), column("low", optional=False), column("high", optional=False)),
        (),
        rand2,
        _quarter,
        generation=4,
    ),
    InstructionSpec(
        "set_rng_seed",
        "The engine's random generator starts from data, one number of 32 bits.",
        ("Vector",),
        (src("data", CHIP, _WIDE),),
        (),
        set_rng_seed,
        _seed_cycles,
        _check_seed,
    ),
    InstructionSpec(
        "sequence_bounds",
        "dst[0, 0:N] = where the run of equal ids around each element begins, dst[0, N:2N] = where it ends; for id 0 "
        "(padding) N and -1.",
        ("GpSimd",),
        (dst(SBUF, dtypes=("fp32", "int32")), src("data", SBUF, ("fp32", "int32"))),
        (),
        sequence_bounds,
        _four_times,
        _check_sequence_bounds,
    ),
    InstructionSpec(
        "nonzero_with_count",
        "In partitions 0, 16, …: dst = places of what is not zero plus index_offset, then padding_val, last the count.",
        ("GpSimd",),
        (dst(SBUF, "update", ("int32",)), src("data", SBUF, ("fp32", "int32"))),
        (_A("index_offset", 0), _A("padding_val", -1)),
        nonzero_with_count,
        _nonzero_cycles,
        _check_nonzero,
        generation=3,
    ),
    InstructionSpec(
        "dma_compute",
        "dst = the sum of up to 16 sources (src, src1, …), added in fp32 on the way.",
        ("Sync", "Scalar", "GpSimd", "Vector", "Tensor"),
        (
            OperandSpec("dst", "write", DMA, ()),
            OperandSpec("src", "read", DMA, ()),
            *(OperandSpec(name, "read", DMA, (), optional=True) for name in _SOURCES),
        ),
        (),
        dma_compute,
        None,
        _check_sum,
        dma=True,
    ),
)

_ALL = ("GpSimd", "Vector", "Scalar", "Tensor", "Sync")
_REGISTERS = "programs here have no registers; their loops and addresses are written out."
_MX = "needs the packed MX formats, which no tensor here has."
_TWO_CORES = "needs two cores, a program here runs on one."
_STATE = "what the words of a generator's state mean is not public; set_rng_seed starts it anew."
_DYNAMIC = "needs an address in a register (removed from the current interface); nc_n_gather takes indices from a tile."

#: Declared so that a program naming them gets the reason instead of "no such instruction".
NOT_MODELLED = {
    "nc_matmul_mx": (("Tensor",), 4, _MX),
    "quantize_mx": (("Vector",), 4, _MX),
    "tensor_copy_dynamic_src": (("Vector", "Scalar", "GpSimd"), 2, _DYNAMIC),
    "tensor_copy_dynamic_dst": (("Vector", "Scalar", "GpSimd"), 2, _DYNAMIC),
    "rand_get_state": (("GpSimd", "Vector"), 3, _STATE),
    "rand_set_state": (("GpSimd", "Vector"), 3, _STATE),
    "core_barrier": (_ALL, 3, _TWO_CORES),
    "sendrecv": (("GpSimd",), 3, _TWO_CORES),
    "register_alloc": (_ALL, 2, _REGISTERS),
    "register_move": (_ALL, 2, _REGISTERS),
    "register_load": (_ALL, 2, _REGISTERS),
    "register_store": (_ALL, 2, _REGISTERS),
    "builtin_custom_op": (("GpSimd",), 2, "runs the user's own code on GpSimd, whose time nobody can know."),
}
