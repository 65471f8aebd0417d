import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.errors import DeadlockError, MachineError
from neuroncore.isa import (
    FUNCTIONS,
    INSTRUCTIONS,
    ProgramBuilder,
    Signal,
    Tile,
    Wait,
    from_float32,
    synchronize,
    to_float32,
    verify,
)
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.special import SPECIAL
from neuroncore.machine import run
from neuroncore.targets import load_target

RNG = np.random.default_rng(7)
COVERED: set[str] = set()


Body = Callable[[ProgramBuilder, Mapping[str, Tile], Tile], None]


def on_chip(
    inputs: Mapping[str, tuple[np.ndarray, str]], out: tuple[int, int, str], body: Body, *, target: str = "trn2"
) -> np.ndarray:
    """The float32 value of the output tile [partitions, elements] after `body`."""
    b = ProgramBuilder("test")
    tiles: dict[str, Tile] = {}
    address = 0
    for name, (array, dtype) in inputs.items():
        rows, columns = array.shape
        tensor = b.input(f"in_{name}", array.shape, dtype)
        tiles[name] = b.sbuf(name, rows, columns, dtype, address)
        address += -(-columns * DTYPE_BYTES[dtype] // 64) * 64
        b.emit("dma_copy", dst=tiles[name], src=tensor.rows(0, rows))
    rows, columns, dtype = out
    result = b.sbuf("result", rows, columns, dtype, address)
    output = b.output("output", (rows, columns), dtype)
    body(b, tiles, result)
    b.emit("dma_copy", engine="Scalar", dst=output.rows(0, rows), src=result)
    program = synchronize(b.build())
    verify(program, load_target(target))
    arrays = [from_float32(a, d) if a.dtype == np.float32 else a for a, d in inputs.values()]
    outputs = [run(program, arrays, order=order)["output"] for order in ("program", "late")]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    return to_float32(outputs[0], dtype)


def rand(rows, columns, low=-4.0, high=4.0):
    return RNG.uniform(low, high, (rows, columns)).astype(np.float32)


def bf16(x):
    return to_float32(from_float32(x, "bf16"), "bf16")


def simple(opcode, inputs, out=None, *, dtype="fp32", engine=None, target="trn2", **fixed):
    """Run one instruction whose tile operands are `inputs`; `out` defaults to the shape of the first."""
    COVERED.add(opcode)
    first = next(iter(inputs.values()))
    rows, columns = out or first.shape
    given = {name: (array, _dtype(array, dtype)) for name, array in inputs.items()}

    def body(b, tiles, result):
        b.emit(opcode, engine=engine, dst=result, **tiles, **fixed)

    return on_chip(given, (rows, columns, dtype), body, target=target)


def _dtype(array, dtype):
    return dtype if array.dtype == np.float32 else array.dtype.name


# Number formats -------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32))
def test_bf16_rounds_to_nearest_even(value):
    x = np.float32(value)
    got = to_float32(from_float32(x, "bf16"), "bf16")
    if np.isnan(x):
        assert np.isnan(got)
        return
    bits = int(x.view(np.uint32))
    below = np.uint32(bits & 0xFFFF0000).view(np.float32)
    with np.errstate(over="ignore"):
        above = np.uint32(((bits >> 16) + 1 << 16) & 0xFFFFFFFF).view(np.float32) if not np.isinf(x) else x
    half = bits & 0xFFFF
    odd = (bits >> 16) & 1
    expected = above if half > 0x8000 or (half == 0x8000 and odd) else below
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (
            "fp8_e4m3",
            [1.0, 1.0625, 1.1875, 448.0, 1e6, 2.0**-9, 2.0**-11],
            [1.0, 1.0, 1.25, 448.0, 448.0, 2.0**-9, 0.0],
        ),
        (
            "fp8_e5m2",
            [1.0, 1.125, 1.375, 57344.0, 1e6, -1e6, 2.0**-16],
            [1.0, 1.0, 1.5, 57344.0, np.inf, -np.inf, 2.0**-16],
        ),
        ("int8", [1.5, 2.5, -3.5, 300.0, -300.0], [2, 2, -4, 127, -128]),
        ("uint8", [0.4, 255.9, -1.0], [0, 255, 0]),
        ("fp16", [1.0, 65504.0, 1e6], [1.0, 65504.0, np.inf]),
    ],
)
def test_casts_round_to_even_and_saturate(dtype, values, expected):
    got = to_float32(from_float32(np.array(values, np.float32), dtype), dtype)
    np.testing.assert_array_equal(got, np.array(expected, np.float32))


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_every_fp8_value_survives_a_round_trip(dtype):
    bits = np.arange(256, dtype=np.uint8)
    values = to_float32(bits, dtype)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(from_float32(values[finite], dtype), bits[finite])


# Instructions against numpy -------------------------------------------------------------------------------------------

REFERENCE = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "tanh": np.tanh,
    "sin": np.sin,
    "arctan": np.arctan,
    "abs": np.abs,
    "sign": np.sign,
    "square": lambda x: x * x,
    "relu": lambda x: np.maximum(x, 0),
    "copy": lambda x: x,
    "identity": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": np.vectorize(math.erf),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_activation(function):
    positive = function in ("log", "sqrt", "rsqrt", "reciprocal")
    x, bias = rand(8, 32, 0.1 if positive else -3.0, 3.0), rand(8, 1, 0.0, 1.0)
    got = simple("activation", {"data": x, "bias": bias}, (8, 32), op=function, scale=0.5)
    expected = REFERENCE[function](x.astype(np.float64) * 0.5 + bias)
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("opcode", ["activation", "activation_reduce"])
def test_activation_sums_its_results(opcode):
    COVERED.add(opcode)
    x = rand(16, 40)

    def body(b, tiles, result):
        y = b.sbuf("y", 16, 40, "fp32", 4096)
        b.emit(opcode, dst=y, data=tiles["x"], op="square", reduce_op="add", reduce_res=result)

    got = on_chip({"x": (x, "fp32")}, (16, 1, "fp32"), body)
    np.testing.assert_allclose(got[:, 0], (x * x).sum(1), rtol=1e-5)


ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "greater": lambda a, b: (a > b) * 1.0,
    "less_equal": lambda a, b: (a <= b) * 1.0,
    "not_equal": lambda a, b: (a != b) * 1.0,
    "logical_and": lambda a, b: ((a != 0) & (b != 0)) * 1.0,
    "abs_max": lambda a, b: np.maximum(np.abs(a), np.abs(b)),
    "mod": np.mod,
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_tensor_tensor(op, dtype):
    a, b = rand(32, 24), rand(32, 24)
    got = simple("tensor_tensor", {"data1": a, "data2": b}, dtype=dtype, op=op)
    stored = [to_float32(from_float32(x, dtype), dtype) for x in (a, b)]
    expected = to_float32(from_float32(ARITHMETIC[op](*stored).astype(np.float32), dtype), dtype)
    np.testing.assert_allclose(got, expected, rtol=0 if op != "mod" else 0.02, atol=0 if op != "mod" else 0.02)


def test_power_and_exact_integers_on_gpsimd():
    a, b = rand(4, 8, 0.5, 2.0), rand(4, 8)
    got = simple("tensor_tensor", {"data1": a, "data2": b}, op="power", engine="GpSimd")
    np.testing.assert_allclose(got, a**b, rtol=1e-5)
    big = np.full((4, 8), 2**24, np.int32)
    one = np.ones((4, 8), np.int32)
    program, inputs = _int_add("GpSimd"), [big, one]
    assert run(program, inputs)["y"][0, 0] == 2**24 + 1
    assert run(_int_add("Vector"), inputs)["y"][0, 0] == 2**24  # Vector goes through fp32


def _int_add(engine):
    b = ProgramBuilder("int")
    x1, x2 = b.input("x1", (4, 8), "int32"), b.input("x2", (4, 8), "int32")
    y = b.output("y", (4, 8), "int32")
    t1, t2 = b.sbuf("t1", 4, 8, "int32", 0), b.sbuf("t2", 4, 8, "int32", 64)
    b.emit("dma_copy", dst=t1, src=x1.rows(0, 4))
    b.emit("dma_copy", dst=t2, src=x2.rows(0, 4))
    b.emit("tensor_tensor", engine=engine, dst=t1, data1=t1, data2=t2, op="add")
    b.emit("dma_copy", dst=y.rows(0, 4), src=t1)
    return synchronize(b.build())


def test_tensor_scalar_with_numbers_columns_and_reversed_operands():
    x, column = rand(8, 16), rand(8, 1)
    got = simple(
        "tensor_scalar", {"data": x, "operand0": column}, (8, 16), op0="multiply", operand1=2.0, op1="subtract"
    )
    np.testing.assert_allclose(got, x * column - 2, rtol=1e-6)
    got = simple("tensor_scalar", {"data": x}, operand0=1.0, op0="subtract", reverse0=True)
    np.testing.assert_allclose(got, 1 - x, rtol=1e-6)
    ints = RNG.integers(0, 1000, (8, 16)).astype(np.int32)
    COVERED.add("tensor_scalar")

    def body(b, tiles, result):
        b.emit(
            "tensor_scalar", dst=result, data=tiles["x"], operand0=255, op0="bitwise_and", operand1=2, op1="left_shift"
        )

    got = on_chip({"x": (ints, "int32")}, (8, 16, "int32"), body)
    np.testing.assert_array_equal(got, (ints & 255) << 2)


def test_scalar_tensor_tensor():
    x, y, column = rand(8, 16), rand(8, 16), rand(8, 1)
    got = simple(
        "scalar_tensor_tensor", {"data": x, "operand0": column, "operand1": y}, (8, 16), op0="subtract", op1="multiply"
    )
    np.testing.assert_allclose(got, (x - column) * y, rtol=1e-6)


def test_tensor_scalar_reduce_and_tensor_tensor_scan():
    x = rand(8, 16)
    COVERED.add("tensor_scalar_reduce")

    def body(b, tiles, result):
        y = b.sbuf("y", 8, 16, "fp32", 4096)
        b.emit(
            "tensor_scalar_reduce", dst=y, data=tiles["x"], operand0=3.0, op0="add", reduce_op="max", reduce_res=result
        )

    np.testing.assert_allclose(on_chip({"x": (x, "fp32")}, (8, 1, "fp32"), body)[:, 0], (x + 3).max(1), rtol=1e-6)
    a, c = rand(8, 16, -1, 1), rand(8, 16)
    got = simple("tensor_tensor_scan", {"data0": a, "data1": c}, initial=0.5, op0="multiply", op1="add")
    state = np.full(8, 0.5, np.float32)
    for i in range(16):
        state = a[:, i] * state + c[:, i]
        np.testing.assert_allclose(got[:, i], state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "function"), [("add", np.sum), ("max", np.max), ("min", np.min), ("multiply", np.prod)])
def test_tensor_reduce_over_trailing_dimensions(op, function):
    x = rand(8, 24, 0.5, 1.5)
    COVERED.add("tensor_reduce")
    for axes, columns in ((1, 6), (2, 1)):

        def body(b, tiles, result, axes=axes):
            b.emit("tensor_reduce", dst=result, data=tiles["x"].view(6, 4), op=op, axes=axes)

        got = on_chip({"x": (x, "fp32")}, (8, columns, "fp32"), body)
        expected = function(x.reshape(8, 6, 4), axis=tuple(range(3 - axes, 3)))
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-5)


def test_reductions_over_partitions():
    x = rand(64, 8)
    got = simple("tensor_partition_reduce", {"data": x}, (1, 8), op="add")
    np.testing.assert_allclose(got[0], x.sum(0), rtol=1e-5, atol=1e-5)


def test_copies_casts_and_predication():
    x = rand(8, 16)
    COVERED.update(("tensor_copy", "tensor_copy_predicated", "select_reduce"))

    def cast(b, tiles, result):
        b.emit("tensor_copy", engine="Scalar", dst=result, data=tiles["x"])

    np.testing.assert_array_equal(on_chip({"x": (x, "fp32")}, (8, 16, "bf16"), cast), bf16(x))
    predicate = RNG.integers(0, 2, (8, 16)).astype(np.uint8)
    other = rand(8, 16)

    def where(b, tiles, result):
        b.emit("tensor_copy", dst=result, data=tiles["other"])
        b.emit("tensor_copy_predicated", dst=result, data=tiles["x"], predicate=tiles["p"])

    inputs = {"x": (x, "fp32"), "other": (other, "fp32"), "p": (predicate, "uint8")}
    np.testing.assert_array_equal(on_chip(inputs, (8, 16, "fp32"), where), np.where(predicate, x, other))

    def select(b, tiles, result):
        b.emit("select_reduce", dst=result, predicate=tiles["p"], on_true=tiles["x"], on_false=-1.5, reverse_pred=True)

    np.testing.assert_array_equal(on_chip(inputs, (8, 16, "fp32"), select), np.where(predicate, np.float32(-1.5), x))


def test_generated_patterns():
    COVERED.update(("memset", "iota", "affine_select"))
    got = on_chip({}, (4, 6, "bf16"), lambda b, _, r: b.emit("memset", dst=r, value=2.5, engine="GpSimd"))
    assert (got == 2.5).all()
    got = on_chip(
        {},
        (4, 6, "int32"),
        lambda b, _, r: b.emit("iota", dst=r, pattern=((10, 2), (1, 3)), offset=5, channel_multiplier=100),
    )
    expected = 5 + 100 * np.arange(4)[:, None] + np.array([0, 1, 2, 10, 11, 12])
    np.testing.assert_array_equal(got, expected)
    x = rand(8, 8)
    got = simple(
        "affine_select",
        {"data": x},
        pattern=((-1, 8),),
        channel_multiplier=1,
        on_false_value=-9.0,
        cmp_op="greater_equal",
    )
    np.testing.assert_array_equal(got, np.where(np.tri(8, dtype=bool), x, np.float32(-9)))


def test_range_select():
    x, low, high = rand(4, 10), np.full((4, 1), 2, np.float32), np.arange(4, 8, dtype=np.float32)[:, None]
    got = simple("range_select", {"on_true_tile": x, "bound0": low, "bound1": high}, (4, 10))
    index = np.arange(10)
    expected = np.where((index >= low) & (index < high), x, np.finfo(np.float32).min)
    np.testing.assert_array_equal(got, expected)


def test_reciprocal_max8_and_exponential():
    x = rand(8, 16, 0.5, 4.0)
    np.testing.assert_allclose(simple("reciprocal", {"data": x}), 1 / x, rtol=1e-6)
    np.testing.assert_array_equal(simple("max8", {"data": x}, (8, 8)), -np.sort(-x, axis=1)[:, :8])
    got = simple("exponential", {"data": x}, max_value=4.0, target="trn3")
    np.testing.assert_allclose(got, np.exp(x - 4), rtol=1e-6)


def find(x, vals):
    COVERED.add("nc_find_index8")

    def body(b, tiles, result):
        b.emit("nc_find_index8", dst=result, data=tiles["x"], vals=tiles["vals"])

    return on_chip({"x": (x, "fp32"), "vals": (vals, "fp32")}, body=body, out=(x.shape[0], 8, "uint32"))


def test_places_of_eight_values():
    x = RNG.permutation(64).reshape(4, 16).astype(np.float32)
    vals = -np.sort(-x, axis=1)[:, :8]
    places = find(x, vals)
    np.testing.assert_array_equal(np.take_along_axis(x, places.astype(np.int64), 1), vals)
    got = simple("nc_match_replace8", {"data": x, "vals": vals}, (4, 16), imm=-1.0)
    np.testing.assert_array_equal(got, np.where(np.isin(x, vals), -1.0, x))


def test_equal_values_take_successive_places():
    x = np.zeros((1, 8), np.float32)
    vals = np.array([[0, 0, 0, 0, 0, 0, 0, 5]], np.float32)
    assert find(x, vals).tolist() == [[0, 1, 2, 3, 4, 5, 6, 2.0**32]]  # all ones, as float32


def test_random_bits_are_uniform_and_differ_between_draws():
    x = rand(64, 256)
    COVERED.add("rng")

    def body(b, tiles, result):
        b.emit("rng", dst=result)

    bits = on_chip({"x": (x, "fp32")}, (64, 256, "uint32"), body)
    assert abs(bits.astype(np.float64).mean() / 2**31 - 1) < 0.02
    assert len(np.unique(bits)) > 16_000


@pytest.mark.parametrize("columns", [2, 7, 64])
def test_batch_norm_statistics(columns):
    x = rand(8, columns)
    COVERED.update(("bn_stats", "bn_aggr"))

    def body(b, tiles, result):
        stats = b.sbuf("stats", 8, 6, "fp32", 4096)
        b.emit("bn_stats", dst=stats, data=tiles["x"])
        b.emit("bn_aggr", dst=result, data=stats)

    got = on_chip({"x": (x, "fp32")}, (8, 2, "fp32"), body)
    np.testing.assert_allclose(got[:, 0], x.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[:, 1], x.var(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_matmul_accumulates_in_fp32_over_contraction_tiles(dtype):
    lhs, rhs = rand(128, 64), rand(128, 96)
    COVERED.add("nc_matmul")

    def body(b, tiles, result):
        bank = b.psum("bank", 64, 96, address=2048)
        half = ((0, 64), (64, 128))
        for i, part in enumerate(half):
            b.emit(
                "nc_matmul",
                dst=bank,
                stationary=tiles["lhs"].access(part),
                moving=tiles["rhs"].access(part),
                accumulate=i > 0,
            )
        b.emit("tensor_copy", dst=result, data=bank)

    got = on_chip({"lhs": (lhs, dtype), "rhs": (rhs, dtype)}, (64, 96, "fp32"), body)
    stored = [to_float32(from_float32(x, dtype), dtype) for x in (lhs, rhs)]
    np.testing.assert_allclose(got, stored[0].T @ stored[1], rtol=1e-4, atol=1e-4)


def test_transposes():
    x = rand(96, 128)
    COVERED.update(("nc_transpose", "dma_transpose"))

    def tensor_once(b, tiles, result):
        bank = b.psum("bank", 128, 96, address=2048)
        b.emit("nc_transpose", dst=bank, data=tiles["x"])
        b.emit("tensor_copy", dst=result, data=bank)

    np.testing.assert_array_equal(on_chip({"x": (x, "fp32")}, (128, 96, "fp32"), tensor_once), x.T)
    small = rand(32, 16)
    got = simple("nc_transpose", {"data": small}, (16, 32), engine="Vector")
    np.testing.assert_array_equal(got, small.T)

    def dma(b, tiles, result):
        b.emit("dma_transpose", dst=result, src=tiles["x"])

    np.testing.assert_array_equal(on_chip({"x": (x, "bf16")}, (128, 96, "bf16"), dma), bf16(x).T)


def test_dma_moves_strided_broadcast_cast_and_indexed():
    COVERED.add("dma_copy")
    b = ProgramBuilder("dma")
    x, rows = b.input("x", (16, 12), "fp32"), b.input("rows", (4, 1), "int32")
    transposed, broadcast = b.output("transposed", (12, 16), "bf16"), b.output("broadcast", (8, 12), "fp32")
    gathered, scattered, moved = (
        b.output(n, (16, 12) if n != "gathered" else (4, 12), "fp32") for n in ("gathered", "scattered", "moved")
    )
    t, u = b.sbuf("t", 12, 16, "bf16", 0), b.sbuf("u", 8, 12, "fp32", 64)
    index, g = b.sbuf("index", 4, 1, "int32", 128), b.sbuf("g", 4, 12, "fp32", 256)
    b.emit("dma_copy", dst=t, src=x.access(12, ((12, 16),), partition_stride=1))
    b.emit("dma_copy", dst=transposed.rows(0, 12), src=t)
    b.emit("dma_copy", dst=u, src=x.access(8, ((1, 12),), offset=36))
    b.emit("dma_copy", dst=broadcast.rows(0, 8), src=u)
    b.emit("dma_copy", dst=index, src=rows.rows(0, 4))
    row = x.access(4, ((1, 12),), partition_stride=12)
    b.emit("dma_copy", engine="GpSimd", dst=g, src=row, index=index)
    b.emit("dma_copy", dst=gathered.rows(0, 4), src=g)
    target = scattered.access(4, ((1, 12),), partition_stride=12)
    b.emit("dma_copy", engine="GpSimd", dst=target, src=g, index=index, index_side="dst")
    b.emit("dma_copy", dst=moved.rows(0, 16), src=x.rows(0, 16))
    program = synchronize(b.build())
    values, picks = rand(16, 12), np.array([[3], [0], [15], [3]], np.int32)
    for order in ("program", "late"):
        out = run(program, {"x": values, "rows": picks}, order=order)
        np.testing.assert_array_equal(to_float32(out["transposed"], "bf16"), bf16(values.T))
        np.testing.assert_array_equal(out["broadcast"], np.broadcast_to(values[3], (8, 12)))
        np.testing.assert_array_equal(out["gathered"], values[[3, 0, 15, 3]])
        expected = np.zeros((16, 12), np.float32)
        expected[[0, 3, 15]] = values[[0, 3, 15]]
        np.testing.assert_array_equal(out["scattered"], expected)
        np.testing.assert_array_equal(out["moved"], values)
    with pytest.raises(MachineError, match=r"operand src: index 0\.\.16, x has rows 0\.\.15"):
        run(program, {"x": values, "rows": picks + np.array([[0], [0], [1], [0]], np.int32)})


def test_every_modelled_instruction_was_compared_with_numpy():
    modelled = {name for name, spec in INSTRUCTIONS.items() if spec.implemented}
    assert modelled - COVERED == {spec.name for spec in SPECIAL}  # test_special has these


# Order and errors -----------------------------------------------------------------------------------------------------


def test_a_missing_semaphore_shows_in_the_late_order():
    b = ProgramBuilder("race")
    x, y = b.input("x", (4, 8), "fp32"), b.output("y", (4, 8), "fp32")
    t = b.sbuf("t", 4, 8, "fp32", 0)
    b.emit("dma_copy", dst=t, src=x.rows(0, 4), signals=[Signal("q", 16)])
    b.emit("dma_copy", engine="Scalar", dst=y.rows(0, 4), src=t)
    ones = [np.ones((4, 8), np.float32)]
    assert run(b.build(), ones)["y"].all()
    assert not run(b.build(), ones, order="late")["y"].all()
    assert run(synchronize(b.build()), ones, order="late")["y"].all()


def test_deadlock_says_who_waits_for_what():
    b = ProgramBuilder("stuck")
    b.emit("memset", dst=b.sbuf("t", 4, 8, "fp32", 0), waits=[Wait("never", 3)])
    with pytest.raises(DeadlockError, match=r"instruction 0, memset on Vector, waits for never >= 3 \(is 0\)"):
        run(b.build(), [])


def test_inputs_that_do_not_fit_are_refused():
    program = _int_add("Vector")
    with pytest.raises(MachineError, match="takes 2 inputs, got 1"):
        run(program, [np.zeros((4, 8), np.int32)])
    with pytest.raises(MachineError, match="input x2: needs 32 elements of int32"):
        run(program, [np.zeros((4, 8), np.int32), np.zeros((4, 8), np.float32)])
    with pytest.raises(MachineError, match="input x2 is missing"):
        run(program, {"x1": np.zeros((4, 8), np.int32)})


def test_inout_tensors_are_read_and_written_in_place():
    b = ProgramBuilder("inplace")
    x = b.tensor("x", (4, 8), "fp32", "inout")
    t = b.sbuf("t", 4, 8, "fp32", 0)
    b.emit("dma_copy", dst=t, src=x.rows(0, 4))
    b.emit("tensor_scalar", dst=t, data=t, operand0=1.0, op0="add")
    b.emit("dma_copy", dst=x.rows(0, 4), src=t)
    given = np.zeros((4, 8), np.float32)
    for order in ("program", "late"):
        assert (run(synchronize(b.build()), [given], order=order)["x"] == 1).all()
    assert not given.any()
