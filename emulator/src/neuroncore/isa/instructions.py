"""The instruction set: one declaration per instruction, for builder, verifier, machine and timing model.

An `InstructionSpec` (`spec.py`) says on which engines an instruction runs, its operands with their memories and dtypes,
its attributes with defaults, its limits, what it computes (`execute`, see `semantics`) and what it costs (`cycles`, see
`costs`). Those the compiler does not emit are in `special.py`. Instructions without `execute` are declared but not
modelled: the builder refuses them with the reason.

Names and limits follow nki.isa of SDK 2.32; `reference/hw/isa.json` lists the source of each.
"""

from __future__ import annotations

from neuroncore.errors import ProgramError, UnsupportedInstructionError
from neuroncore.isa import costs, semantics
from neuroncore.isa.dtypes import FLOAT_DTYPES
from neuroncore.isa.spec import (
    ANY,
    CHIP,
    DMA,
    FUNCTIONS,
    INTS,
    OPERATORS,
    REQUIRED,
    SBUF,
    AttributeSpec,
    InstructionSpec,
    OperandSpec,
    Required,
    column,
    dst,
    result,
    src,
)
from neuroncore.isa.special import NOT_MODELLED, SPECIAL

__all__ = [
    "INSTRUCTIONS",
    "REQUIRED",
    "AttributeSpec",
    "InstructionSpec",
    "OperandSpec",
    "Required",
    "instruction_spec",
]


def instruction_spec(opcode: str) -> InstructionSpec:
    """The declaration of `opcode`.

    Raises:
        ProgramError: no such instruction.
        UnsupportedInstructionError: declared, not modelled.
    """
    spec = INSTRUCTIONS.get(opcode)
    if spec is None:
        raise ProgramError(f"{opcode}: no such instruction; known: {', '.join(sorted(INSTRUCTIONS))}")
    if not spec.implemented:
        raise UnsupportedInstructionError(
            f"{opcode}: declared but not modelled: {spec.doc} Modelled are "
            + ", ".join(sorted(name for name, known in INSTRUCTIONS.items() if known.implemented))
        )
    return spec


_A = AttributeSpec
_REVERSE = (_A("reverse0", False, (False, True)), _A("reverse1", False, (False, True)))

_MODELLED = (
    InstructionSpec(
        "activation",
        "dst = op(data * scale + bias); optionally reduce_res = sum over the free elements.",
        ("Scalar",),
        (dst(), src(), column("bias"), column("scale"), result()),
        (_A("op", REQUIRED, FUNCTIONS), _A("reduce_op", None, (None, "add"))),
        semantics.activation,
        costs.activation,
        same_elements=("data",),
    ),
    InstructionSpec(
        "activation_reduce",
        "activation with a mandatory sum into reduce_res.",
        ("Scalar",),
        (dst(), src(), column("bias"), column("scale"), OperandSpec("reduce_res", "write", CHIP, column=True)),
        (_A("op", REQUIRED, FUNCTIONS), _A("reduce_op", "add", ("add",))),
        semantics.activation,
        costs.activation,
        same_elements=("data",),
    ),
    InstructionSpec(
        "affine_select",
        "dst = data where (offset + p*channel_multiplier + sum of step*index) cmp_op 0, else on_false_value.",
        ("GpSimd",),
        (dst(SBUF), src("data", SBUF)),
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
        (dst(SBUF),),
        (_A("pattern"), _A("offset", 0), _A("channel_multiplier", 0)),
        semantics.iota,
        costs.gpsimd,
    ),
    InstructionSpec(
        "bn_stats",
        "dst[:, 0:6] = (count, mean, var*count) of the even and of the odd elements; at most 512 elements.",
        ("Vector",),
        (dst(), src()),
        (),
        semantics.bn_stats,
        costs.vector,
        costs.check_bn_stats,
    ),
    InstructionSpec(
        "bn_aggr",
        "dst[:, 0:2] = (mean, variance) of all (count, mean, var*count) triples in data.",
        ("Vector",),
        (dst(), src()),
        (),
        semantics.bn_aggr,
        costs.bn_aggr,
        costs.check_bn_aggr,
    ),
    InstructionSpec(
        "max8",
        "dst[:, 0:8] = the eight largest values, in descending order.",
        ("Vector",),
        (dst(), src()),
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
        (dst(CHIP, dtypes=("uint16", "uint32")), src(), src("vals")),
        (),
        semantics.nc_find_index8,
        costs.find_index8,
        costs.check_find_index8,
    ),
    InstructionSpec(
        "nc_match_replace8",
        "dst = data with the first occurrence of each of the eight vals replaced by imm.",
        ("Vector",),
        (dst(), src(), src("vals")),
        (_A("imm", 0.0),),
        semantics.nc_match_replace8,
        costs.find_index8,
        same_elements=("data",),
    ),
    InstructionSpec(
        "rng",
        "dst = uniform random bits from the engine's own generator.",
        ("Vector", "GpSimd"),
        (dst(CHIP, dtypes=INTS),),
        (),
        semantics.rng,
        costs.rng,
    ),
    InstructionSpec(
        "memset",
        "dst = value.",
        ("Vector", "GpSimd"),
        (dst(),),
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
            dst(("PSUM",), "update", ("fp32",)),
            src("stationary", SBUF, FLOAT_DTYPES),
            src("moving", SBUF, FLOAT_DTYPES),
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
        (dst(), src()),
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
            dst(),
            src("on_true_tile"),
            OperandSpec("bound0", "read", CHIP, ("fp32",), column=True),
            OperandSpec("bound1", "read", CHIP, ("fp32",), column=True),
            result(),
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
            dst(),
            src("predicate", CHIP, ("uint8", "int8", "uint16", "int16", "bool")),
            src("on_true", CHIP, tuple(d for d in ANY if d not in ("int32", "uint32"))),
            column("on_false", optional=False),
            result(),
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
        (dst(), src()),
        (),
        semantics.reciprocal,
        costs.reciprocal,
        same_elements=("data",),
    ),
    InstructionSpec(
        "scalar_tensor_tensor",
        "dst = (data op0 operand0) op1 operand1; operand0 a number or one per partition, operand1 a tile.",
        ("Vector",),
        (dst(), src(), column("operand0", optional=False), src("operand1")),
        (_A("op0", REQUIRED, OPERATORS), _A("op1", REQUIRED, OPERATORS), *_REVERSE),
        semantics.scalar_tensor_tensor,
        costs.scalar_tensor_tensor,
        same_elements=("data", "operand1"),
        not_both_psum=("data", "operand1"),
    ),
    InstructionSpec(
        "tensor_copy",
        "dst = data, cast on the way.",
        ("Vector", "Scalar", "GpSimd"),
        (dst(), src()),
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
            dst(CHIP, "update"),
            src(),
            src("predicate", CHIP, ("uint8", "uint16", "uint32", "int8", "int16", "int32", "bool")),
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
        (dst(), src()),
        (_A("op", REQUIRED, tuple(semantics.REDUCE)), _A("axes", 1, (1, 2, 3, 4)), _A("negate", False, (False, True))),
        semantics.tensor_reduce,
        costs.tensor_reduce,
        costs.check_tensor_reduce,
    ),
    InstructionSpec(
        "tensor_partition_reduce",
        "dst[0, :] = op over the partitions of data; slow, a ones-vector matmul is usually better.",
        ("GpSimd",),
        (dst(SBUF), src("data", SBUF)),
        (_A("op", REQUIRED, tuple(semantics.REDUCE)),),
        semantics.tensor_partition_reduce,
        costs.tensor_partition_reduce,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_scalar",
        "dst = (data op0 operand0) op1 operand1; operands: a number or one value per partition; op1 optional.",
        ("Vector", "Scalar", "GpSimd"),
        (dst(), src(), column("operand0", optional=False), column("operand1")),
        (_A("op0", REQUIRED, OPERATORS), _A("op1", None, (None, *OPERATORS)), *_REVERSE),
        semantics.tensor_scalar,
        costs.tensor_scalar,
        costs.check_tensor_scalar,
        same_elements=("data",),
    ),
    InstructionSpec(
        "tensor_scalar_reduce",
        "dst = data op0 operand0 and reduce_res = reduce_op over the free elements of that.",
        ("Vector",),
        (dst(), src(), column("operand0", optional=False), OperandSpec("reduce_res", "write", CHIP, column=True)),
        (
            _A("op0", REQUIRED, OPERATORS),
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
        (dst(), src("data1"), src("data2")),
        (_A("op", REQUIRED, OPERATORS),),
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
        (dst(), src("data0"), src("data1"), column("initial", optional=False)),
        (_A("op0", REQUIRED, OPERATORS), _A("op1", REQUIRED, OPERATORS)),
        semantics.tensor_tensor_scan,
        costs.two_input,
        same_elements=("data0", "data1"),
        not_both_psum=("data0", "data1"),
    ),
    InstructionSpec(
        "exponential",
        "dst = exp(data - max_value); optional sum into reduce_res.",
        ("Vector",),
        (dst(), src(), column("max_value", optional=False), result()),
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

#: Every instruction by nki.isa name.
INSTRUCTIONS: dict[str, InstructionSpec] = {
    **{spec.name: spec for spec in (*_MODELLED, *SPECIAL)},
    **{
        name: InstructionSpec(name, reason, engines, generation=generation)
        for name, (engines, generation, reason) in NOT_MODELLED.items()
    },
}
