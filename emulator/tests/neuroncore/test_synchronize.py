"""Whatever the streams' order, a synchronized program computes what its instructions compute one after the other."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.isa import ProgramBuilder, synchronize
from neuroncore.machine import Machine, run
from neuroncore.targets import load_target
from neuroncore.timing import bounds, simulate

WIDTH = 16  # elements of a tile; tiles start every half width, so neighbours overlap
TRN2 = load_target("trn2")

tiles = st.integers(0, 5)
starts = st.sampled_from([0, 32])
columns = st.tuples(st.integers(0, WIDTH - 1), st.integers(1, WIDTH)).filter(lambda c: sum(c) <= WIDTH)
blocks = st.tuples(st.integers(0, 2), st.integers(0, 3))
steps = st.one_of(
    st.tuples(st.just("load"), tiles, starts, blocks, st.sampled_from(["Sync", "Scalar", "GpSimd"])),
    st.tuples(st.just("store"), tiles, starts, blocks, st.sampled_from(["Sync", "Scalar"])),
    st.tuples(st.just("move"), blocks, blocks),
    st.tuples(st.just("copy"), tiles, tiles, starts, columns, st.sampled_from(["Vector", "Scalar", "GpSimd"])),
    st.tuples(st.just("add"), tiles, tiles, tiles, starts, st.sampled_from(["Vector", "GpSimd"])),
    st.tuples(st.just("square"), tiles, tiles, starts),
    st.tuples(st.just("fill"), tiles, starts, columns, st.integers(-3, 3), st.sampled_from(["Vector", "GpSimd"])),
    st.tuples(st.just("matmul"), tiles, tiles, st.booleans()),
    st.tuples(st.just("evict"), tiles, st.sampled_from(["Vector", "Scalar"])),
)


def build(script):
    b = ProgramBuilder("random")
    x = b.tensor("x", (96, 4 * WIDTH), "fp32", "inout")
    sbuf = [b.sbuf(f"t{i}", 64, WIDTH, "fp32", i * WIDTH * 2) for i in range(6)]
    bank = b.psum("bank", WIDTH, WIDTH, "fp32", 0)

    def block(where):
        return x.rows(32 * where[0], 32, (WIDTH * where[1], WIDTH * where[1] + WIDTH))

    def part(tile, start, span=(0, WIDTH)):
        return sbuf[tile].columns(span[0], span[0] + span[1], (start, start + 32))

    for kind, *a in script:
        match kind:
            case "load":
                b.emit("dma_copy", engine=a[3], dst=part(a[0], a[1]), src=block(a[2]))
            case "store":
                b.emit("dma_copy", engine=a[3], dst=block(a[2]), src=part(a[0], a[1]))
            case "move":
                b.emit("dma_copy", dst=block(a[0]), src=block(a[1]))
            case "copy":
                b.emit("tensor_copy", engine=a[4], dst=part(a[0], a[2], a[3]), data=part(a[1], a[2], a[3]))
            case "add":
                b.emit(
                    "tensor_tensor",
                    engine=a[4],
                    dst=part(a[0], a[3]),
                    data1=part(a[1], a[3]),
                    data2=part(a[2], a[3]),
                    op="add",
                )
            case "square":
                b.emit("activation", dst=part(a[0], a[2]), data=part(a[1], a[2]), op="tanh")
            case "fill":
                b.emit("memset", engine=a[4], dst=part(a[0], a[1], a[2]), value=float(a[3]))
            case "matmul":
                b.emit("nc_matmul", dst=bank, stationary=sbuf[a[0]], moving=sbuf[a[1]], accumulate=a[2])
            case "evict":
                b.emit("tensor_copy", engine=a[1], dst=sbuf[a[0]].access((0, WIDTH)), data=bank)
    for i in range(6):  # make every tile visible in the result
        y = b.output(f"y{i}", (64, WIDTH), "fp32")
        b.emit("dma_copy", dst=y.rows(0, 64), src=sbuf[i])
    return b.build()


def one_after_the_other(program, inputs):
    machine = Machine(program)
    machine.load(inputs)
    for instruction in program.instructions():
        machine.step(instruction)
    return machine.hbm


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=2, max_size=25), st.integers(0, 2**32))
def test_results_do_not_depend_on_the_order_of_the_streams(script, seed):
    program = build(script)
    x = np.random.default_rng(3).standard_normal((96, 4 * WIDTH)).astype(np.float32)
    expected = one_after_the_other(program, [x])
    synchronized = synchronize(program)
    for order in ("program", "late", random.Random(seed), random.Random(seed + 1)):
        for name, array in run(synchronized, [x], order=order).items():
            np.testing.assert_array_equal(array.reshape(-1).view(np.uint8), expected[name], err_msg=f"{name}, {order}")


@settings(max_examples=50, deadline=None)
@given(st.lists(steps, min_size=2, max_size=25))
def test_random_programs_lie_between_their_bounds(script):
    program = synchronize(build(script))
    limit = bounds(program, TRN2)
    assert limit.roofline_ns - 1 <= simulate(program, TRN2).program_ns <= limit.serial_ns + 1


def test_the_test_above_would_notice_a_missing_wait():
    script = [("load", 0, 0, (0, 0), "Sync"), ("square", 1, 0, 0), ("store", 1, 0, (1, 1), "Sync")]
    program = synchronize(build(script))
    x = np.random.default_rng(3).standard_normal((96, 4 * WIDTH)).astype(np.float32)
    expected = run(program, [x])["x"]
    broken = replace(program, body=tuple(replace(i, waits=()) for i in program.body))
    assert not np.array_equal(run(broken, [x], order="late")["x"], expected)
