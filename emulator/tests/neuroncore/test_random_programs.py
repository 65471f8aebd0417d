"""What holds for every program: twins agree, loops cost what they unroll to, times lie in bounds, faster helps."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.isa import ProgramBuilder, parse_program, print_program, synchronize
from neuroncore.isa.columns import columns, native
from neuroncore.machine import run
from neuroncore.targets import load_target
from neuroncore.timing import bounds, critical_path_ns, simulate

TRN2 = load_target("trn2")
WIDTH = 16

needs_native = pytest.mark.skipif(native() is None, reason="neuroncore._native is not built")

tiles = st.integers(0, 5)
starts = st.sampled_from([0, 32])
blocks = st.tuples(st.integers(0, 2), st.integers(0, 2))
moves = st.integers(0, 1)  # how far an access advances per iteration, in its own unit
steps = st.one_of(
    st.tuples(st.just("load"), tiles, starts, blocks, moves, st.sampled_from(["Sync", "Scalar", "GpSimd"])),
    st.tuples(st.just("store"), tiles, starts, blocks, moves, st.sampled_from(["Sync", "Scalar"])),
    st.tuples(st.just("transposed"), tiles, blocks, moves),
    st.tuples(st.just("gather"), tiles),
    st.tuples(st.just("copy"), tiles, tiles, starts, moves, st.sampled_from(["Vector", "Scalar", "GpSimd"])),
    st.tuples(st.just("apply"), tiles, tiles, starts, st.sampled_from(["tanh", "exp", "square", "rsqrt"])),
    st.tuples(st.just("matmul"), tiles, tiles, st.booleans()),
    st.tuples(st.just("evict"), tiles, st.sampled_from(["Vector", "Scalar"])),
)
#: A program: straight-line steps, or loops (count, steps) of them, loops in loops included.
bodies = st.recursive(
    st.lists(steps, min_size=1, max_size=6),
    lambda inner: st.lists(st.one_of(steps, st.tuples(st.integers(0, 3), inner)), min_size=1, max_size=4),
    max_leaves=4,
)


def build(script):
    b = ProgramBuilder("random")
    x = b.tensor("x", (160, 7 * WIDTH), "fp32", "inout")
    flat = b.tensor("flat", (64 * 4 * WIDTH,), "fp32", "inout")
    picks = b.sbuf("picks", 32, 1, "int32", 1024)
    sbuf = [b.sbuf(f"t{i}", 64, 2 * WIDTH, "fp32", i * WIDTH * 2) for i in range(6)]
    bank = b.psum("bank", WIDTH, WIDTH, "fp32", 0)

    def part(tile, start, loop, moved):
        steps = ((loop, moved),) if loop else ()
        return sbuf[tile].access((start, start + 32), ((1, WIDTH),), steps=steps)

    def block(where, loop, moved):
        steps = ((loop, 16 * moved),) if loop else ()
        row, column = where
        offset = 32 * row * x.shape[-1] + WIDTH * column
        return x.access(32, ((1, WIDTH),), offset=offset, partition_stride=x.shape[-1], steps=steps)

    def emit(step, loop):
        kind, *a = step
        match kind:
            case "load":
                b.emit("dma_copy", engine=a[4], dst=part(a[0], a[1], loop, 0), src=block(a[2], loop, a[3]))
            case "store":
                b.emit("dma_copy", engine=a[4], dst=block(a[2], loop, a[3]), src=part(a[0], a[1], loop, 0))
            case "transposed":
                steps = ((loop, 5 * a[2]),) if loop else ()
                b.emit(
                    "dma_copy",
                    dst=part(a[0], 0, loop, 0),
                    src=flat.access(32, ((32, WIDTH),), offset=WIDTH * a[1][0], partition_stride=1, steps=steps),
                )
            case "gather":
                rows = x.access(32, ((1, WIDTH),), partition_stride=x.shape[-1])
                b.emit("dma_copy", engine="GpSimd", dst=part(a[0], 0, loop, 0), src=rows, index=picks, index_side="src")
            case "copy":
                b.emit("tensor_copy", engine=a[4], dst=part(a[0], a[2], loop, a[3]), data=part(a[1], a[2], loop, 0))
            case "apply":
                b.emit("activation", dst=part(a[0], a[2], loop, 0), data=part(a[1], a[2], loop, 0), op=a[3])
            case "matmul":
                pair = {name: sbuf[t].columns(0, WIDTH) for name, t in zip(("stationary", "moving"), a, strict=False)}
                b.emit("nc_matmul", dst=bank, accumulate=a[2], **pair)
            case "evict":
                b.emit("tensor_copy", engine=a[1], dst=sbuf[a[0]].access((0, WIDTH), ((1, WIDTH),)), data=bank)

    def body(items, loop=None):
        for item in items:
            if isinstance(item[0], int):
                with b.loop(item[0]) as inner:
                    body(item[1], inner)
            else:
                emit(item, loop)

    body(script)
    return b.build()


def same(one, two):
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert a == b, field.name


def named(executed):
    """Waits and signals by name: the numbering of semaphores is nobody's business."""
    signals = [
        (executed.semaphores[s], n)
        for s, n in zip(executed.signal_semaphore.tolist(), executed.signal_increment.tolist(), strict=True)
    ]
    used = set(executed.index.tolist())
    starts = executed.signal_start.tolist()
    return (
        [sorted(executed.waits(i)) for i in range(len(executed))],
        {t: signals[starts[t] : starts[t + 1]] for t in used},
        executed.index.tolist(),
    )


@needs_native
@settings(max_examples=150, deadline=None)
@given(bodies, st.booleans())
def test_twins_agree_to_the_nanosecond(script, derived):
    program = build(script)
    program = dataclasses.replace(program, derived=True) if derived else synchronize(program)
    assert named(columns(program)) == named(columns(program, plain=True))
    compiled, plain = simulate(program, TRN2), simulate(program, TRN2, plain=True)
    same(compiled.schedule, plain.schedule)
    assert compiled.instruction_table("1").equals(plain.instruction_table("1"))
    assert compiled.dma_table("1").equals(plain.dma_table("1"))


@needs_native
@settings(max_examples=60, deadline=None)
@given(bodies)
def test_a_rolled_program_costs_what_its_unrolled_form_costs(script):
    rolled = dataclasses.replace(build(script), derived=True)
    written = synchronize(rolled)
    one, two = simulate(rolled, TRN2), simulate(written, TRN2)
    same(one.schedule, two.schedule)
    assert one.dma_table("1").equals(two.dma_table("1"))
    assert (one.program_ns, one.flops, one.bytes_read, one.busy_ns) == (
        two.program_ns,
        two.flops,
        two.bytes_read,
        two.busy_ns,
    )


@settings(max_examples=80, deadline=None)
@given(bodies)
def test_time_lies_between_its_bounds(script):
    program = dataclasses.replace(build(script), derived=True)
    limit, spent = bounds(program, TRN2), simulate(program, TRN2).program_ns
    assert limit.roofline_ns - 1 <= spent
    assert critical_path_ns(program, TRN2) - 1 <= spent <= limit.serial_ns + 1


#: What may get faster: (field, factor that makes it so).
FASTER = (
    ("hbm_bytes_per_second", 2.0), ("dma_engine_bytes_per_second", 1.3), ("tensor_clock_hz", 1.5),
    ("vector_clock_hz", 1.5), ("scalar_clock_hz", 1.2), ("gpsimd_clock_hz", 2.0), ("semaphore_ns", 0.5),
    ("dma_start_ns", 0.5), ("dma_done_ns", 0.7), ("dge_fixed_ns", 0.1), ("dma_queue_interval_ns", 0.5),
    ("dma_trigger_ns", 0.5), ("activation_table_load_ns", 0.3), ("dma_row_min_ns", 0.5),
)  # fmt: skip


def faster_than(target, which):
    return dataclasses.replace(target, **{name: getattr(target, name) * factor for name, factor in which})


def lost(timeline):
    """What transfers took from each other and cold TensorE cost, ns."""
    schedule, prices, index = timeline.schedule, timeline.prices, timeline.columns.index
    alone = np.array([p.transfer.alone_ns if p.transfer else 0.0 for p in prices])[index]
    issue = np.array([p.issue_ns for p in prices])[index]
    return (schedule.last_byte - schedule.first_byte - alone).sum() + (schedule.end - schedule.start - issue).sum()


@settings(max_examples=80, deadline=None)
@given(bodies, st.sets(st.sampled_from(FASTER), min_size=1, max_size=4))
def test_faster_hardware_is_never_slower_but_for_what_sharing_takes(script, which):
    program = dataclasses.replace(build(script), derived=True)
    faster = faster_than(TRN2, which)
    before, after = simulate(program, TRN2), simulate(program, faster)
    assert after.program_ns <= before.program_ns + lost(after) + 1
    assert critical_path_ns(program, faster) <= critical_path_ns(program, TRN2) + 1e-6
    assert bounds(program, faster).roofline_ns <= bounds(program, TRN2).roofline_ns + 1e-6


@settings(max_examples=80, deadline=None)
@given(bodies, st.sets(st.sampled_from(FASTER), min_size=1, max_size=4))
def test_faster_hardware_is_never_slower_where_nothing_is_shared(script, which):
    program = dataclasses.replace(build([alone(step) for step in script]), derived=True)
    warm = dataclasses.replace(TRN2, tensor_warmup_rate=1.0)
    assert simulate(program, faster_than(warm, which)).program_ns <= simulate(program, warm).program_ns


def alone(step):
    """The step, a DMA on the one queue of Sync; other DMAs become copies."""
    if isinstance(step[0], int):
        return (step[0], [alone(inner) for inner in step[1]])
    if step[0] in ("load", "transposed"):
        return (*step[:-1], "Sync") if step[0] == "load" else step
    if step[0] in ("store", "gather"):
        return ("copy", step[1], step[1], 0, 0, "Vector")
    return step


@settings(max_examples=40, deadline=None)
@given(bodies, st.sampled_from([2.0, 3.0]))
def test_all_of_it_twice_as_fast_takes_half_the_time(script, factor):
    program = dataclasses.replace(build(script), derived=True)
    scaled = {
        field.name: getattr(TRN2, field.name) * (factor if not field.name.endswith("_ns") else 1 / factor)
        for field in dataclasses.fields(TRN2)
        if field.name.endswith(("_hz", "_ns", "_bytes_per_second"))
    }
    before, after = simulate(program, TRN2), simulate(program, dataclasses.replace(TRN2, **scaled))
    assert after.program_ns == pytest.approx(before.program_ns / factor, abs=1)


def test_a_loop_of_a_million_instructions_stays_small():
    b = ProgramBuilder("long")
    t = b.sbuf("t", 128, 64, "fp32", 0)
    with b.loop(1000), b.loop(1000):
        b.emit("tensor_scalar", dst=t, data=t, operand0=1.0, op0="add")
    program = dataclasses.replace(b.build(), derived=True)
    assert len(print_program(program)) < 500
    assert parse_program(print_program(program)) == program
    assert program.executed == 1_000_000
    if native() is not None:
        timeline = simulate(program, TRN2)
        assert timeline.program_ns > 1_000_000 * 60
        assert timeline.instruction_table("1").num_rows == 1_000_000


def test_the_machine_runs_a_program_with_derived_semaphores():
    b = ProgramBuilder("double")
    x, y = b.input("x", (128, 4), "fp32"), b.output("y", (128, 4), "fp32")
    t = b.sbuf("t", 128, 4, "fp32", 0)
    b.emit("dma_copy", dst=t, src=x.rows(0, 128))
    with b.loop(3):
        b.emit("tensor_scalar", dst=t, data=t, operand0=2.0, op0="multiply")
    b.emit("dma_copy", engine="Scalar", dst=y.rows(0, 128), src=t)
    data = np.arange(512, dtype=np.float32).reshape(128, 4)
    result = run(dataclasses.replace(b.build(), derived=True), [data], order="late")
    np.testing.assert_array_equal(result["y"], 8 * data)
