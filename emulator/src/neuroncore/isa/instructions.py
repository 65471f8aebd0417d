"""The instruction set: one declaration per instruction, for builder, verifier, machine and timing model.

An `InstructionSpec` says on which engines an instruction runs, its operands with their memories and dtypes, its
attributes with defaults, its limits, what it computes (`execute`, see `semantics`) and what it costs (`cycles`, see
`costs`). Instructions without `execute` are declared but not modelled yet: the builder refuses them with a clear
error.

Names and limits follow nki.isa of SDK 2.32; `reference/hw/isa.json` lists the source of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroncore.errors import ProgramError, UnsupportedInstructionError
from neuroncore.isa import costs, semantics
from neuroncore.isa.dtypes import FLOAT_DTYPES, INT_DTYPES
from neuroncore.isa.program import Value

__all__ = [
    "INSTRUCTIONS",
    "REQUIRED",
    "AttributeSpec",
    "InstructionSpec",
    "OperandSpec",
    "Required",
    "instruction_spec",
]

ANY = (*FLOAT_DTYPES, *INT_DTYPES)
SBUF = ("SBUF",)
CHIP = ("SBUF", "PSUM")
DMA = ("HBM", "SBUF")
INTS = tuple(d for d in INT_DTYPES if d != "bool")


class Required:
    """Marks an attribute without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


@dataclass(frozen=True)
class OperandSpec:
    """One operand.

    Attributes:
        role: "write", "read" or "update" (read and written).
        memories: where it may live.
        dtypes: element types allowed.
        optional: may be left out.
        scalar: a plain number is allowed instead of an access pattern.
        column: must be [P, 1], one value per partition.
    """

    name: str
    role: str
    memories: tuple[str, ...]
    dtypes: tuple[str, ...] = ANY
    optional: bool = False
    scalar: bool = False
    column: bool = False


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute: its default (`REQUIRED` if none) and, if not empty, the values allowed."""

    name: str
    default: Value | Required = REQUIRED
    allowed: tuple[Value, ...] = ()


@dataclass(frozen=True)
class InstructionSpec:
    """Everything there is to know about one instruction.

    Attributes:
        engines: streams that may execute it (trigger it, for DMA); the first is the default.
        generation: first NeuronCore version that has it (2, 3, 4).
        execute: what it computes; None when not modelled yet.
        cycles: engine cycles it occupies its engine; None for DMA (timed by the queue model) or when not modelled.
        check: further limits; raises ProgramError.
        dma: runs on a DMA queue.
        same_elements: names of operands that must have as many elements per partition as the first one.
        not_both_psum: pair of operands that must not both be in PSUM.
    """

    name: str
    doc: str
    engines: tuple[str, ...]
    operands: tuple[OperandSpec, ...] = ()
    attributes: tuple[AttributeSpec, ...] = ()
    execute: Callable[[semantics.Context], None] | None = None
    cycles: Callable[[costs.Use], float] | None = None
    check: Callable[[costs.Use], None] | None = None
    generation: int = 2
    dma: bool = False
    same_elements: tuple[str, ...] = ()
    not_both_psum: tuple[str, str] | None = None

    @property
    def implemented(self) -> bool:
        """Whether machine and timing model know it."""
        return self.execute is not None

    def operand(self, name: str) -> OperandSpec | None:
        """The operand called `name`."""
        return next((o for o in self.operands if o.name == name), None)


def instruction_spec(opcode: str) -> InstructionSpec:
    """The declaration of `opcode`.

    Raises:
        ProgramError: no such instruction.
        UnsupportedInstructionError: declared, not modelled yet.
    """
    spec = INSTRUCTIONS.get(opcode)
    if spec is None:
        raise ProgramError(f"{opcode}: no such instruction; known: {', '.join(sorted(INSTRUCTIONS))}")
    if not spec.implemented:
        raise UnsupportedInstructionError(
            f"{opcode}: declared but not modelled yet; modelled are "
            + ", ".join(sorted(name for name, known in INSTRUCTIONS.items() if known.implemented))
        )
    return spec


def _dst(memories: tuple[str, ...] = CHIP, role: str = "write", dtypes: tuple[str, ...] = ANY) -> OperandSpec:
    return OperandSpec("dst", role, memories, dtypes)


def _src(name: str = "data", memories: tuple[str, ...] = CHIP, dtypes: tuple[str, ...] = ANY) -> OperandSpec:
    return OperandSpec(name, "read", memories, dtypes)


def _column(name: str, *, optional: bool = True, scalar: bool = True) -> OperandSpec:
    return OperandSpec(name, "read", CHIP, ANY, optional=optional, scalar=scalar, column=True)


def _result(name: str = "reduce_res") -> OperandSpec:
    return OperandSpec(name, "write", CHIP, ANY, optional=True, column=True)


_A = AttributeSpec
_ALU = tuple(semantics.ALU)
_REVERSE = (_A("reverse0", False, (False, True)), _A("reverse1", False, (False, True)))
_FUNCTIONS = tuple(semantics.FUNCTIONS)

_MODELLED = (
    InstructionSpec(
        "activation",
        "dst = op(data * scale + bias); optionally reduce_res = sum over the free elements.",
        ("Scalar",),
        (_dst(), _src(), _column("bias"), _column("scale"), _result()),
        (_A("op", REQUIRED, _FUNCTIONS), _A("reduce_op", None, (None, "add"))),
        semantics.activation,
        costs.activation,
        same_elements=("data",),
    ),
    InstructionSpec(
        "activation_reduce",
        "activation with a mandatory sum into reduce_res.",
        ("Scalar",),
        (_dst(), _src(), _column("bias"), _column("scale"), OperandSpec("reduce_res", "write", CHIP, column=True)),
        (_A("op", REQUIRED, _FUNCTIONS), _A("reduce_op", "add", ("add",))),
        semantics.activation,
        costs.activation,
        same_elements=("data",),
    ),
    InstructionSpec(
        "affine_select",
        "dst = data where (offset + p*channel_multiplier + sum of step*index) cmp_op 0, else on_false_value.",
        ("GpSimd",),
        (_dst(SBUF), _src("data", SBUF)),
        (
            _A("pattern"),
            _A("offset", 0),
            _A("channel_multiplier", 0),
            _A("on_false_value", 0.0),
            _A("cmp_op", "greater_equal", tuple(semantics.COMPARE)),
        ),
        semantics.affine_select,
        costs.gpsimd,
        same_elements=("data",),
    ),
    InstructionSpec(
        "iota",
        "dst = offset + p*channel_multiplier + sum of step*index; `pattern` is ((step, size), …) over the elements.",
        ("GpSimd",),
        (_dst(SBUF),),
        (_A("pattern"), _A("offset", 0), _A("channel_multiplier", 0)),
        semantics.iota,
        costs.gpsimd,
    ),
    InstructionSpec(
        "bn_stats",
        "dst[:, 0:6] = (count, mean, var*count) of the even and of the odd elements; at most 512 elements.",
        ("Vector",),
        (_dst(), _src()),
        (),
        semantics.bn_stats,
        costs.vector,
        costs.check_bn_stats,
    ),
    InstructionSpec(
        "bn_aggr",
        "dst[:, 0:2] = (mean, variance) of all (count, mean, var*count) triples in data.",
        ("Vector",),
        (_dst(), _src()),
        (),
        semantics.bn_aggr,
        costs.bn_aggr,
        costs.check_bn_aggr,
    ),
    InstructionSpec(
        "max8",
        "dst[:, 0:8] = the eight largest values, in descending order.",
        ("Vector",),
        (_dst(), _src()),
        (),
        semantics.max8,
        costs.vector,
        costs.check_max8,
    ),
    InstructionSpec(
        "nc_find_index8",
        "dst[:, k] = where vals[:, k] first occurs in data; the k-th occurrence for the k-th equal value, all ones if "
        "it does not occur.",
        ("Vector",),
        (_dst(CHIP, dtypes=("uint16", "uint32")), _src(), _src("vals")),
        (),
        semantics.nc_find_index8,
        costs.find_index8,
        costs.check_find_index8,
    ),
    InstructionSpec(
        "nc_match_replace8",
        "dst = data with the first occurrence of each of the eight vals replaced by imm.",
        ("Vector",),
        (_dst(), _src(), _src("vals")),
        (_A("imm", 0.0),),
        semantics.nc_match_replace8,
        costs.find_index8,
        same_elements=("data",),
    ),
    InstructionSpec(
        "rng",
        "dst = uniform random bits from the engine's own generator.",
        ("Vector", "GpSimd"),
        (_dst(CHIP, dtypes=INTS),),
        (),
        semantics.rng,
        costs.rng,
    ),
    InstructionSpec(
        "memset",
        "dst = value.",
        ("Vector", "GpSimd"),
        (_dst(),),
        (_A("value", 0.0),),
        semantics.memset,
        costs.memset,
    ),
    InstructionSpec(
        "nc_matmul",
        "dst (+)= stationary.T @ moving, contracted over the partitions, accumulated in fp32 in one PSUM bank. "
        "tile_columns: columns of the PE array it takes; tiles of 32 or 64 run beside those of other columns.",
        ("Tensor",),
        (
            _dst(("PSUM",), "update", ("fp32",)),
            _src("stationary", SBUF, FLOAT_DTYPES),
            _src("moving", SBUF, FLOAT_DTYPES),
        ),
        (_A("accumulate", False, (False, True)), _A("tile_columns", 128, (32, 64, 128))),
        semantics.nc_matmul,
        costs.nc_matmul,
        costs.check_matmul,
    ),
    InstructionSpec(
        "nc_transpose",
        "dst = data.T; Tensor: up to 128x128 from SBUF to PSUM, Vector: up to 32x32.",
        ("Tensor", "Vector"),
        (_dst(), _src()),
        (),
        semantics.nc_transpose,
        costs.nc_transpose,
        costs.check_transpose,
    ),
    InstructionSpec(
        "range_select",
        "dst = on_true_tile where bound0 cmp0 index and index cmp1 bound1, else the lowest fp32, from range_start.",
        ("Vector",),
        (
            _dst(),
            _src("on_true_tile"),
            OperandSpec("bound0", "read", CHIP, ("fp32",), column=True),
            OperandSpec("bound1", "read", CHIP, ("fp32",), column=True),
            _result(),
        ),
        (
            _A("comp_op0", "greater_equal", tuple(semantics.COMPARE)),
            _A("comp_op1", "less", tuple(semantics.COMPARE)),
            _A("range_start", 0),
            _A("reduce_op", None, (None, "max")),
        ),
        semantics.range_select,
        costs.vector,
        generation=3,
        same_elements=("on_true_tile",),
    ),
    InstructionSpec(
        "select_reduce",
        "dst = on_true where predicate else on_false (a number or one per partition); optional max into reduce_res.",
        ("Vector",),
        (
            _dst(),
            _src("predicate", CHIP, ("uint8", "int8", "uint16", "int16", "bool")),
            _src("on_true", CHIP, tuple(d for d in ANY if d not in ("int32", "uint32"))),
            _column("on_false", optional=False),
            _result(),
        ),
        (_A("reverse_pred", False, (False, True)), _A("reduce_op", None, (None, "max"))),
        semantics.select_reduce,
        costs.predicated,
        same_elements=("predicate", "on_true"),
        not_both_psum=("predicate", "on_true"),
    ),
    InstructionSpec(
        "reciprocal",
        "dst = 1 / data, on Vector (eight times the price of activation's reciprocal).",
        ("Vector",),
        (_dst(), _src()),
        (),
        semantics.reciprocal,
        costs.reciprocal,
        same_elements=("data",),
    ),
    InstructionSpec(
        "scalar_tensor_tensor",
        "dst = (data op0 operand0) op1 operand1; operand0 a number or one per partition, operand1 a tile.",
        ("Vector",),
        (_dst(), _src(), _column("operand0", optional=False), _src("operand1")),
        (_A("op0", REQUIRED, _ALU), _A("op1", REQUIRED, _ALU), *_REVERSE),
        semantics.scalar_tensor_tensor,
        costs.scalar_tensor_tensor,
        same_elements=("data", "operand1"),
        not_both_psum=("data", "operand1"),
    ),
    InstructionSpec(
        "tensor_copy",
        "dst = data, cast on the way.",
        ("Vector", "Scalar", "GpSimd"),
        (_dst(), _src()),
        (),
        semantics.tensor_copy,
        costs.tensor_copy,
        costs.check_tensor_copy,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_copy_predicated",
        "dst = data where predicate is not zero, else unchanged.",
        ("Vector",),
        (
            _dst(CHIP, "update"),
            _src(),
            _src("predicate", CHIP, ("uint8", "uint16", "uint32", "int8", "int16", "int32", "bool")),
        ),
        (_A("reverse_pred", False, (False, True)),),
        semantics.tensor_copy_predicated,
        costs.predicated,
        costs.check_same_dtype,
        same_elements=("data", "predicate"),
        not_both_psum=("data", "predicate"),
    ),
    InstructionSpec(
        "tensor_reduce",
        "dst = op over the last `axes` free dimensions of data.",
        ("Vector",),
        (_dst(), _src()),
        (_A("op", REQUIRED, tuple(semantics.REDUCE)), _A("axes", 1, (1, 2, 3, 4)), _A("negate", False, (False, True))),
        semantics.tensor_reduce,
        costs.tensor_reduce,
        costs.check_tensor_reduce,
    ),
    InstructionSpec(
        "tensor_partition_reduce",
        "dst[0, :] = op over the partitions of data; slow, a ones-vector matmul is usually better.",
        ("GpSimd",),
        (_dst(SBUF), _src("data", SBUF)),
        (_A("op", REQUIRED, tuple(semantics.REDUCE)),),
        semantics.tensor_partition_reduce,
        costs.tensor_partition_reduce,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_scalar",
        "dst = (data op0 operand0) op1 operand1; operands: a number or one value per partition; op1 optional.",
        ("Vector", "Scalar", "GpSimd"),
        (_dst(), _src(), _column("operand0", optional=False), _column("operand1")),
        (_A("op0", REQUIRED, _ALU), _A("op1", None, (None, *_ALU)), *_REVERSE),
        semantics.tensor_scalar,
        costs.tensor_scalar,
        costs.check_tensor_scalar,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_scalar_reduce",
        "dst = data op0 operand0 and reduce_res = reduce_op over the free elements of that.",
        ("Vector",),
        (_dst(), _src(), _column("operand0", optional=False), OperandSpec("reduce_res", "write", CHIP, column=True)),
        (
            _A("op0", REQUIRED, _ALU),
            _A("reduce_op", "add", tuple(semantics.REDUCE)),
            _A("reverse0", False, (False, True)),
        ),
        semantics.tensor_scalar_reduce,
        costs.vector_reduce_result,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_tensor",
        "dst = data1 op data2.",
        ("Vector", "GpSimd"),
        (_dst(), _src("data1"), _src("data2")),
        (_A("op", REQUIRED, _ALU),),
        semantics.tensor_tensor,
        costs.tensor_tensor,
        costs.check_tensor_tensor,
        same_elements=("data1", "data2"),
        not_both_psum=("data1", "data2"),
    ),
    InstructionSpec(
        "tensor_tensor_scan",
        "dst[:, i] = (data0[:, i] op0 dst[:, i-1]) op1 data1[:, i], starting from initial.",
        ("Vector",),
        (_dst(), _src("data0"), _src("data1"), _column("initial", optional=False)),
        (_A("op0", REQUIRED, _ALU), _A("op1", REQUIRED, _ALU)),
        semantics.tensor_tensor_scan,
        costs.two_input,
        same_elements=("data0", "data1"),
        not_both_psum=("data0", "data1"),
    ),
    InstructionSpec(
        "exponential",
        "dst = exp(data - max_value); optional sum into reduce_res.",
        ("Vector",),
        (_dst(), _src(), _column("max_value", optional=False), _result()),
        (_A("reduce_op", None, (None, "add")),),
        semantics.exponential,
        costs.exponential,
        generation=4,
        same_elements=("data",),
    ),
    InstructionSpec(
        "dma_copy",
        "dst = src between HBM and SBUF, cast in flight. With `index` ([P, 1] integers in SBUF; GpSimd only), row p is "
        "taken from "
        "(or, index_side dst, put to) row index[p] of the HBM side, whose partition_stride is the row length.",
        ("Sync", "Scalar", "GpSimd", "Vector", "Tensor"),
        (
            OperandSpec("dst", "write", DMA, ()),
            OperandSpec("src", "read", DMA, ()),
            OperandSpec("index", "read", SBUF, ("int32", "uint32"), optional=True, column=True),
        ),
        (_A("index_side", "src", ("src", "dst")),),
        semantics.dma_copy,
        None,
        costs.check_dma_copy,
        dma=True,
    ),
    InstructionSpec(
        "dma_transpose",
        "dst[c, r] = src[r, c] for 2- and 4-byte data, block by block: `blocks` equal parts of src's columns.",
        ("Sync", "Scalar", "GpSimd", "Vector", "Tensor"),
        (OperandSpec("dst", "write", SBUF, ()), OperandSpec("src", "read", DMA, ())),
        (_A("blocks", 1),),
        semantics.dma_transpose,
        None,
        costs.check_dma_transpose,
        dma=True,
    ),
)

# Declared so that a program naming them gets a clear refusal instead of "no such instruction".
_NOT_MODELLED = {
    "activate2": (("Scalar",), 4, "activation with a pair of operators before the function."),
    "dropout": (("Vector",), 2, "Zero elements with a probability."),
    "local_gather": (("GpSimd",), 2, "Gather within groups of 16 partitions."),
    "nc_n_gather": (("GpSimd",), 2, "Per-partition gather."),
    "nc_matmul_mx": (("Tensor",), 4, "Matmul of MX formats."),
    "nc_stream_shuffle": (("Vector",), 2, "Move partitions within a quadrant."),
    "rsqrt_on_gpsimd": (("GpSimd",), 2, "Removed from the current API; use activation(rsqrt)."),
    "tensor_copy_dynamic_src": (("Vector", "Scalar", "GpSimd"), 2, "Copy from a dynamic address."),
    "tensor_copy_dynamic_dst": (("Vector", "Scalar", "GpSimd"), 2, "Copy to a dynamic address."),
    "tensor_scalar_cumulative": (("Vector",), 2, "Running tensor_scalar along the free dimension."),
    "quantize_mx": (("Vector",), 4, "Quantize to MX formats."),
    "topk": (("GpSimd",), 2, "The K largest of n."),
    "rand2": (("Vector",), 4, "Random numbers."),
    "rand_get_state": (("GpSimd", "Vector"), 3, "Read the random state."),
    "rand_set_state": (("GpSimd", "Vector"), 3, "Write the random state."),
    "set_rng_seed": (("Vector",), 2, "Seed the random generator."),
    "sequence_bounds": (("GpSimd",), 2, "Start and end of each sequence."),
    "nonzero_with_count": (("GpSimd",), 3, "Indices of non-zero elements and their count."),
    "core_barrier": (
        ("GpSimd", "Vector", "Scalar", "Tensor", "Sync"),
        3,
        "Barrier between the cores of a logical NeuronCore.",
    ),
    "sendrecv": (("GpSimd",), 3, "Exchange SBUF data between two cores."),
    "dma_compute": (("Sync", "Scalar", "GpSimd", "Vector", "Tensor"), 2, "DMA with addition."),
    "register_alloc": (("GpSimd", "Vector", "Scalar", "Tensor", "Sync"), 2, "Allocate a register."),
    "register_move": (("GpSimd", "Vector", "Scalar", "Tensor", "Sync"), 2, "Move a register."),
    "register_load": (("GpSimd", "Vector", "Scalar", "Tensor", "Sync"), 2, "Load a register."),
    "register_store": (("GpSimd", "Vector", "Scalar", "Tensor", "Sync"), 2, "Store a register."),
    "builtin_custom_op": (("GpSimd",), 2, "User code on GpSimd."),
}

#: Every instruction by nki.isa name.
INSTRUCTIONS: dict[str, InstructionSpec] = {
    **{spec.name: spec for spec in _MODELLED},
    **{name: InstructionSpec(name, doc, engines, generation=g) for name, (engines, g, doc) in _NOT_MODELLED.items()},
}
