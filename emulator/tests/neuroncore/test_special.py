"""Instructions that only programs by hand use: what each computes, refuses and costs."""

import dataclasses

import numpy as np
import pytest
from neuroncore.errors import ProgramError
from neuroncore.isa import ProgramBuilder, from_float32, parse_program, print_program, to_float32, verify
from neuroncore.isa.instructions import INSTRUCTIONS
from neuroncore.isa.special import SPECIAL
from neuroncore.machine import run
from neuroncore.targets import load_target
from neuroncore.timing import simulate

TRN2, TRN3 = load_target("trn2"), load_target("trn3")
DICE = np.random.default_rng(0)


def execute(opcode, inputs, results, target=TRN2, engine=None, **attributes):
    """Load inputs {operand: (dtype, values)}, run one instruction, store results {operand: (dtype, columns, rows)}."""
    b = ProgramBuilder(opcode)
    tiles, loaded, address = {}, [], 0
    for name, (dtype, values) in inputs.items():
        rows, columns = values.shape
        tiles[name] = b.sbuf(name, rows, columns, dtype, address)
        address += 4 * columns
        b.emit("dma_copy", dst=tiles[name], src=b.input(f"in_{name}", values.shape, dtype).rows(0, rows))
        loaded.append(from_float32(values, dtype) if dtype in ("fp32", "bf16") else values)
    for name, (dtype, columns, rows) in results.items():
        if name not in tiles:
            tiles[name] = b.sbuf(name, rows, columns, dtype, address)
            address += 4 * columns
    b.emit(opcode, engine=engine, **tiles, **attributes)
    for name, (dtype, columns, rows) in results.items():
        out = b.output(f"out_{name}", (rows, columns), dtype)
        b.emit("dma_copy", engine="Scalar", dst=out.rows(0, rows), src=tiles[name])
    program = dataclasses.replace(b.build(), derived=True)
    verify(program, target)
    assert parse_program(print_program(program)) == program
    assert simulate(program, target).program_ns > 0
    written = run(program, loaded, order="late")
    return [
        to_float32(written[f"out_{n}"], d) if d == "bf16" else written[f"out_{n}"] for n, (d, _, _) in results.items()
    ]


def numbers(rows, columns):
    return DICE.standard_normal((rows, columns)).astype(np.float32)


def test_activate2():
    x, bias = numbers(64, 40), numbers(64, 1)
    inputs = {"data": ("fp32", x), "operand1": ("fp32", bias)}
    y, most = execute(
        "activate2", inputs, {"dst": ("fp32", 40, 64), "reduce_res": ("fp32", 1, 64)}, TRN3,
        op="tanh", op0="multiply", operand0=2.0, op1="subtract", reduce_op="max",
    )  # fmt: skip
    np.testing.assert_allclose(y, np.tanh(2 * x - bias), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(most[:, 0], y.max(axis=1))


def test_dropout_zeroes_its_share_and_scales_nothing():
    x = numbers(128, 400)
    (y,) = execute("dropout", {"data": ("fp32", x)}, {"dst": ("fp32", 400, 128)}, prob=0.25)
    assert np.array_equal(y[y != 0], x[y != 0])
    assert abs((y == 0).mean() - 0.25) < 0.01


def test_local_gather_serves_groups_of_sixteen_partitions():
    x, index = numbers(32, 64), DICE.integers(0, 32, (32, 3)).astype(np.uint16)
    inputs = {"data": ("fp32", x), "index": ("uint16", index)}
    (y,) = execute("local_gather", inputs, {"dst": ("fp32", 80, 32)}, num_elem_per_idx=2)
    for row in range(32):
        wanted = index[row // 16 * 16 : row // 16 * 16 + 16].T.reshape(-1)[:40]
        np.testing.assert_array_equal(y[row].reshape(40, 2), x[row].reshape(32, 2)[wanted])


def test_nc_n_gather_takes_an_index_for_every_element():
    x, index = numbers(50, 64), DICE.integers(0, 64, (50, 30)).astype(np.uint32)
    (y,) = execute("nc_n_gather", {"data": ("fp32", x), "index": ("uint32", index)}, {"dst": ("fp32", 30, 50)})
    np.testing.assert_array_equal(y, np.take_along_axis(x, index.astype(int), 1))


def test_stream_shuffle_moves_partitions_within_their_quadrant():
    x, old = numbers(64, 8), numbers(64, 8)
    mask = tuple(255 if i == 5 else 31 - i for i in range(32))
    inputs = {"data": ("fp32", x), "dst": ("fp32", old)}
    (y,) = execute("nc_stream_shuffle", inputs, {"dst": ("fp32", 8, 64)}, mask=mask)
    wanted = np.concatenate([x[31::-1], x[63:31:-1]])
    wanted[[5, 37]] = old[[5, 37]]
    np.testing.assert_array_equal(y, wanted)


def test_rsqrt_on_gpsimd():
    x = np.abs(numbers(16, 20)) + 1
    (y,) = execute("rsqrt_on_gpsimd", {"data": ("fp32", x)}, {"dst": ("fp32", 20, 16)})
    np.testing.assert_allclose(y, 1 / np.sqrt(x), rtol=1e-6)


def test_cumulative_tensor_scalar():
    x = numbers(30, 50)
    (y,) = execute(
        "tensor_scalar_cumulative", {"data": ("fp32", x)}, {"dst": ("fp32", 50, 30)},
        op0="multiply", operand0=0.5, op1="add", operand1=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(y, 1 + np.cumsum(0.5 * x, axis=1), rtol=1e-4, atol=1e-4)


def test_topk():
    x = np.stack([DICE.permutation(200) for _ in range(16)]).astype(np.float32)
    y, places = execute("topk", {"data": ("bf16", x)}, {"dst": ("bf16", 5, 16), "index": ("uint32", 5, 16)})
    np.testing.assert_array_equal(y, -np.sort(-x, axis=1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(x, places.astype(int), 1), y)


def test_rand2_is_uniform_between_its_bounds():
    (y,) = execute("rand2", {}, {"dst": ("fp32", 500, 128)}, TRN3, low=-1.0, high=3.0)
    assert y.min() >= -1 and y.max() < 3 and abs(y.mean() - 1) < 0.02


def test_a_seed_repeats_the_numbers():
    b = ProgramBuilder("seeds")
    seed, out = b.sbuf("seed", 1, 1, "int32", 0), b.output("out", (2, 64, 10), "uint32")
    draws = [b.sbuf(f"draw{i}", 64, 10, "uint32", 64 + 40 * i) for i in range(2)]
    b.emit("memset", dst=seed, value=7)
    for tile in draws:
        b.emit("set_rng_seed", data=seed)
        b.emit("rng", dst=tile, engine="Vector")
    for i, tile in enumerate(draws):
        b.emit("dma_copy", dst=out.access(64, ((1, 10),), offset=640 * i, partition_stride=10), src=tile)
    y = run(dataclasses.replace(b.build(), derived=True), [])["out"]
    np.testing.assert_array_equal(y[0], y[1])


def test_sequence_bounds():
    ids = np.array([[0, 0, 1, 1, 1, 3, 2, 2]], np.float32)
    (y,) = execute("sequence_bounds", {"data": ("fp32", ids)}, {"dst": ("fp32", 16, 1)})
    np.testing.assert_array_equal(y[0, :8], [8, 8, 2, 2, 2, 5, 6, 6])
    np.testing.assert_array_equal(y[0, 8:], [-1, -1, 5, 5, 5, 6, 8, 8])


def test_nonzero_with_count():
    x = (numbers(17, 12) > 0.5).astype(np.float32)
    inputs = {"data": ("fp32", x), "dst": ("int32", np.full((17, 13), 9, np.int32))}
    (y,) = execute("nonzero_with_count", inputs, {"dst": ("int32", 13, 17)}, index_offset=100)
    for row in (0, 16):
        places = np.flatnonzero(x[row])
        assert y[row, :-1].tolist() == [*(100 + places), *[-1] * (12 - len(places))] and y[row, -1] == len(places)
    assert (y[1:16] == 9).all()


def test_dma_compute_adds_on_the_way():
    b = ProgramBuilder("sum")
    parts = [b.input(f"x{i}", (128, 64), "fp32") for i in range(3)]
    out = b.output("out", (128, 64), "bf16")
    first, *rest = (x.rows(0, 128) for x in parts)
    b.emit("dma_compute", dst=out.rows(0, 128), src=first, **{f"src{i + 1}": x for i, x in enumerate(rest)})
    program = dataclasses.replace(b.build(), derived=True)
    verify(program, TRN2)
    data = [numbers(128, 64) for _ in parts]
    np.testing.assert_array_equal(run(program, data)["out"], from_float32(sum(data), "bf16"))
    timeline = simulate(program, TRN2)
    assert (timeline.bytes_read, timeline.bytes_written) == (3 * 128 * 64 * 4, 128 * 64 * 2)


@pytest.mark.parametrize(
    ("opcode", "inputs", "results", "attributes", "said"),
    [
        ("topk", {"data": ("bf16", numbers(8, 64))}, {"dst": ("bf16", 5, 8), "index": ("uint32", 5, 8)}, {},
         "multiple of 16"),
        ("nc_stream_shuffle", {"data": ("fp32", numbers(32, 8)), "dst": ("fp32", numbers(32, 8))},
         {"dst": ("fp32", 8, 32)}, {"mask": (0, 1)}, "needs 32 partitions"),
        ("local_gather", {"data": ("fp32", numbers(16, 8)), "index": ("uint16", np.zeros((16, 1), np.uint16))},
         {"dst": ("fp32", 17, 16)}, {}, "at most 16 indices"),
        ("rand2", {}, {"dst": ("fp32", 5, 8)}, {"low": 0.0, "high": 1.0}, "needs NeuronCore-v4"),
        ("sequence_bounds", {"data": ("fp32", numbers(2, 8))}, {"dst": ("fp32", 16, 2)}, {}, "one partition"),
    ],
)  # fmt: skip
def test_limits_are_refused_with_what_was_given(opcode, inputs, results, attributes, said):
    with pytest.raises(ProgramError, match=said):
        execute(opcode, inputs, results, **attributes)


def test_costs_follow_the_published_formulas():
    def cycles(opcode, clock_hz, latency, target=TRN2, **inputs):
        b = ProgramBuilder(opcode)
        tiles = {n: b.sbuf(n, 128, c, d, 16384 * i) for i, (n, (d, c)) in enumerate(inputs.items())}
        b.emit(opcode, **tiles, **({"prob": 0.5} if opcode == "dropout" else {}))
        return round(
            simulate(dataclasses.replace(b.build(), derived=True), target).program_ns * clock_hz / 1e9 - latency
        )

    vector, gpsimd = (
        (TRN2.vector_clock_hz, TRN2.vector_latency_cycles),
        (TRN2.gpsimd_clock_hz, TRN2.gpsimd_latency_cycles),
    )
    assert cycles("dropout", *vector, dst=("fp32", 512), data=("fp32", 512)) == 512
    found = cycles("topk", *gpsimd, dst=("bf16", 8), index=("uint32", 8), data=("bf16", 512))
    assert abs(found - (4 * 512 + 8)) <= 1


def test_every_public_instruction_is_here():
    assert {spec.name for spec in SPECIAL} <= set(INSTRUCTIONS)
    assert len(INSTRUCTIONS) == 54
    assert sum(spec.implemented for spec in INSTRUCTIONS.values()) == 41
    for name, spec in INSTRUCTIONS.items():
        assert spec.doc.endswith("."), name
