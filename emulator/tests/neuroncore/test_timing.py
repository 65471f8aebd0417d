import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.errors import DeadlockError
from neuroncore.isa import ENGINES, Program, ProgramBuilder, Signal, Wait, synchronize, verify
from neuroncore.targets import known_targets, load_target
from neuroncore.timing import bounds, simulate
from neuronscope.formats import tables

TRN2 = load_target("trn2")
SIZES = {"fp32": 4, "bf16": 2}


def pipeline(*, tiles=4, rows=128, columns=512, dtype="bf16", buffers=2, op="exp", matmul=False):
    """Load, activate, add a scalar (optionally multiply by itself on the PE), store; `buffers` tiles in turn."""
    b = ProgramBuilder("pipeline")
    x, y = b.input("x", (tiles * rows, columns), dtype), b.output("y", (tiles * rows, columns), "fp32")
    width = columns * 4
    loaded = [b.sbuf(f"l{i}", rows, columns, dtype, i * 3 * width) for i in range(buffers)]
    active = [b.sbuf(f"a{i}", rows, columns, dtype, i * 3 * width + width) for i in range(buffers)]
    results = [b.sbuf(f"r{i}", rows, columns, "fp32", i * 3 * width + 2 * width) for i in range(buffers)]
    banks = [b.psum(f"p{i}", min(columns, 128), columns, "fp32", i * 2048) for i in range(2)] if matmul else []
    for i in range(tiles):
        tile, act, result = loaded[i % buffers], active[i % buffers], results[i % buffers]
        b.emit("dma_copy", dst=tile, src=x.rows(i * rows, rows))
        b.emit("activation", dst=act, data=tile, op=op)
        if matmul:
            stationary = act.columns(0, min(columns, 128))
            b.emit("nc_matmul", dst=banks[i % 2], stationary=stationary, moving=tile)
        b.emit("tensor_scalar", dst=result, data=act, operand0=1.0, op0="add")
        b.emit("dma_copy", engine="Scalar", dst=y.rows(i * rows, rows), src=result)
    return synchronize(b.build())


def one(opcode, target=TRN2, *, engine=None, columns=512, dtype="fp32", memory="sbuf", rows=128, **operands):
    """The timeline of a single instruction whose tile operands are named in `operands` with value True."""
    b = ProgramBuilder(opcode)
    tiles = {}
    for i, (name, value) in enumerate([("dst", True), *operands.items()]):
        if value is True:
            make = b.psum if memory == "psum" and name != "dst" else b.sbuf
            tiles[name] = make(name, rows, columns, dtype, 2048 * i if memory == "psum" else i * columns * 4)
    plain = {k: v for k, v in operands.items() if v is not True}
    b.emit(opcode, engine=engine, **tiles, **plain)
    return simulate(synchronize(b.build()), target)


def durations(timeline, engine):
    return [
        d
        for e, d in zip(timeline.instructions["engine"], timeline.instructions["duration_ns"], strict=True)
        if e == engine
    ]


# Published durations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "published_ns"), [(4096, 3708), (128, 400)])
def test_activation_durations_of_the_published_timeline(elements, published_ns):
    timeline = one("activation", columns=elements, data=True, op="copy")
    assert durations(timeline, "Scalar")[0] == pytest.approx(published_ns, rel=0.02)


def test_function_tables_are_loaded_on_first_use_and_on_a_switch():
    b = ProgramBuilder("tables")
    t = b.sbuf("t", 128, 128, "fp32", 0)
    for op in ("exp", "exp", "square", "tanh", "exp"):
        b.emit("activation", dst=t, data=t, op=op)
    timeline = simulate(synchronize(b.build()), TRN2)
    rows = list(zip(timeline.instructions["opcode"], timeline.instructions["duration_ns"], strict=True))
    assert [op for op, _ in rows] == [
        "act_table_load",
        *["activation"] * 3,
        "act_table_load",
        "activation",
        "act_table_load",
        "activation",
    ]
    assert {d for op, d in rows if op == "act_table_load"} == {1283}
    assert list(timeline.instructions["id"]) == list(range(8))


def test_dma_of_32_kib_on_one_engine():
    b = ProgramBuilder("dma")
    x, t = b.input("x", (4, 2048), "fp32"), b.sbuf("t", 4, 2048, "fp32", 0)
    b.emit("dma_copy", dst=t, src=x.rows(0, 4))
    timeline = simulate(synchronize(b.build()), TRN2)
    assert timeline.dma_transfers["engines"] == [1]
    assert timeline.dma_transfers["duration_ns"][0] == pytest.approx(1416, rel=0.05)


@pytest.mark.parametrize(
    ("row_bytes", "published"), [(256, 0.103), (512, 0.207), (1024, 0.423), (2048, 0.814), (4096, 0.966), (8192, 0.983)]
)
def test_dma_efficiency_follows_the_published_row_size_curve(row_bytes, published):
    def rate(size):
        b = ProgramBuilder("rows")
        x, t = b.input("x", (128 * 64, size // 4), "fp32"), b.sbuf("t", 128, size // 4, "fp32", 0)
        for i in range(64):
            b.emit("dma_copy", dst=t, src=x.rows(128 * i, 128), queue="q")
        program = b.build()  # no semaphores: the queue alone orders them
        return 64 * 128 * size / simulate(program, TRN2).program_ns

    assert rate(row_bytes) / rate(32768) == pytest.approx(published, rel=0.12)


def test_matmul_warms_up_and_then_runs_at_its_peak():
    def total(count, target=TRN2):
        b = ProgramBuilder("mm")
        s, m, p = b.sbuf("s", 128, 128, "bf16", 0), b.sbuf("m", 128, 512, "bf16", 512), b.psum("p", 128, 512, "fp32", 0)
        for k in range(count):
            b.emit("nc_matmul", dst=p, stationary=s, moving=m, accumulate=k > 0)
        return simulate(synchronize(b.build()), target).program_ns

    full_rate_ns = 512 / 2.4
    assert total(400) - total(200) == pytest.approx(200 * full_rate_ns, rel=1e-3)
    always_warm = dataclasses.replace(TRN2, tensor_warmup_rate=1.0)
    assert total(200) - total(200, always_warm) == pytest.approx(1500, abs=2)  # 3 us at half rate
    flops = 200 * 2 * 128 * 128 * 512
    assert flops / (200 * full_rate_ns * 1e-9) == pytest.approx(TRN2.peak_flops_per_second("bf16"), rel=1e-3)


def test_fp32_matmul_costs_four_times_bf16():
    def busy(dtype):
        b = ProgramBuilder("mm")
        s, m, p = b.sbuf("s", 128, 128, dtype, 0), b.sbuf("m", 128, 512, dtype, 512), b.psum("p", 128, 512, "fp32", 0)
        b.emit("nc_matmul", dst=p, stationary=s, moving=m)
        return bounds(synchronize(b.build()), TRN2).engine_ns["Tensor"]

    assert busy("fp32") == pytest.approx(4 * busy("bf16"))


@pytest.mark.parametrize(
    ("opcode", "operands", "dtype", "memory", "cycles"),
    [
        ("tensor_tensor", {"data1": True, "data2": True, "op": "add"}, "fp32", "sbuf", 1024),
        ("tensor_tensor", {"data1": True, "data2": True, "op": "add"}, "bf16", "sbuf", 512),
        ("tensor_copy", {"data": True}, "bf16", "sbuf", 128),
        ("tensor_copy", {"data": True}, "fp32", "sbuf", 512),
        ("tensor_copy", {"data": True}, "fp32", "psum", 512),
        ("tensor_scalar", {"data": True, "operand0": 1.0, "op0": "add"}, "bf16", "sbuf", 128),
        ("reciprocal", {"data": True}, "fp32", "sbuf", 4096),
        ("memset", {"value": 0.0}, "bf16", "sbuf", 256),
        ("memset", {"value": 1.0}, "bf16", "sbuf", 512),
    ],
)
def test_vector_costs_and_performance_modes(opcode, operands, dtype, memory, cycles):
    b = one(opcode, columns=512, dtype=dtype, memory=memory, **operands)
    assert b.program_ns == pytest.approx((cycles + TRN2.vector_latency_cycles) / 0.96, abs=1)


def test_short_vector_instructions_cost_64_cycles():
    assert one("tensor_copy", columns=1, data=True).program_ns == one("tensor_copy", columns=64, data=True).program_ns


def test_strided_dma_is_much_slower_than_contiguous():
    def total(contiguous):
        b = ProgramBuilder("stride")
        x, t = b.input("x", (512, 128), "fp32"), b.sbuf("t", 128, 512, "fp32", 0)
        if contiguous:
            source = x.access(128, ((1, 512),), partition_stride=512)
        else:
            source = x.access(128, ((128, 512),), partition_stride=1)
        b.emit("dma_copy", dst=t, src=source)
        return simulate(synchronize(b.build()), TRN2)

    fast, slow = total(True), total(False)
    assert slow.dma_transfers["rows"] == [65536]
    assert slow.dma_transfers["duration_ns"][0] > 20 * fast.dma_transfers["duration_ns"][0]
    assert slow.bytes_read == fast.bytes_read == 512 * 128 * 4


def test_queues_share_the_dma_engines_fairly():
    b = ProgramBuilder("share")
    x = b.input("x", (256, 8192), "fp32")
    tiles = [b.sbuf(f"t{i}", 128, 8192, "fp32", i * 32768) for i in range(2)]
    for i, engine in enumerate(("Sync", "Scalar")):
        b.emit("dma_copy", engine=engine, dst=tiles[i], src=x.rows(i * 128, 128))
    timeline = simulate(synchronize(b.build()), TRN2)
    ends = timeline.dma_transfers["offset_ns"] + timeline.dma_transfers["duration_ns"]
    both = 2 * 128 * 32768 / TRN2.dma_bytes_per_second * 1e9
    assert ends[0] == ends[1]
    assert ends[0] == pytest.approx(TRN2.dma_trigger_ns + TRN2.dma_start_ns + both, rel=1e-3)


# Properties -----------------------------------------------------------------------------------------------------------

shapes = st.fixed_dictionaries(
    {
        "tiles": st.integers(1, 5),
        "rows": st.sampled_from([1, 4, 32, 64, 128]),
        "columns": st.sampled_from([1, 16, 128, 500, 512]),
        "dtype": st.sampled_from(["fp32", "bf16"]),
        "buffers": st.integers(1, 3),
        "op": st.sampled_from(["exp", "square", "tanh"]),
        "matmul": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from(known_targets()))
def test_a_program_lies_between_its_bounds_and_engines_do_not_overlap(shape, name):
    target = load_target(name)
    program = pipeline(**shape)
    verify(program, target)
    timeline = simulate(program, target)
    limit = bounds(program, target)
    assert limit.roofline_ns <= timeline.program_ns + 1
    assert timeline.program_ns <= limit.serial_ns + 1
    size = SIZES[shape["dtype"]] * shape["tiles"] * shape["rows"] * shape["columns"]
    assert timeline.bytes_read == size
    assert timeline.bytes_written == shape["tiles"] * shape["rows"] * shape["columns"] * 4
    columns = timeline.instructions
    ends = columns["offset_ns"] + columns["duration_ns"]
    assert (columns["duration_ns"] >= 0).all()
    for engine in ENGINES:
        mine = np.array([e == engine for e in columns["engine"]])
        assert (columns["offset_ns"][mine][1:] >= ends[mine][:-1]).all()
        assert timeline.busy_ns[engine] == columns["duration_ns"][mine].sum()
        assert timeline.busy_ns[engine] <= timeline.program_ns
    assert ends.max(initial=0) <= timeline.program_ns
    moves = timeline.dma_transfers
    assert (moves["trigger_offset_ns"] <= moves["offset_ns"]).all()
    assert (moves["offset_ns"] + moves["duration_ns"] <= moves["done_offset_ns"]).all()
    for queue in set(moves["queue"]):
        mine = np.array([q == queue for q in moves["queue"]])
        assert (moves["offset_ns"][mine][1:] >= (moves["offset_ns"] + moves["duration_ns"])[mine][:-1]).all()
    assert moves["done_offset_ns"].max() == timeline.program_ns


@settings(max_examples=30, deadline=None)
@given(shapes)
def test_the_same_program_takes_the_same_nanoseconds(shape):
    first, second = simulate(pipeline(**shape), TRN2), simulate(pipeline(**shape), TRN2)
    assert first.instruction_table("1").equals(second.instruction_table("1"))
    assert first.dma_table("1").equals(second.dma_table("1"))
    assert first.program_ns == second.program_ns


FASTER = {
    "HBM": {"hbm_bytes_per_second": 2.0},
    "DMA engines": {"dma_engine_bytes_per_second": 2.0},
    "Vector clock": {"vector_clock_hz": 2.0},
    "Scalar clock": {"scalar_clock_hz": 2.0},
    "DMA start": {"dma_start_ns": 0.5},
    "semaphores": {"semaphore_ns": 0.5},
    "descriptors": {"dge_fixed_ns": 0.5},
    "queue interval": {"dma_queue_interval_ns": 0.5},
}


@pytest.mark.parametrize("what", FASTER)
def test_faster_hardware_is_never_slower(what):
    faster = dataclasses.replace(TRN2, **{key: getattr(TRN2, key) * f for key, f in FASTER[what].items()})
    for shape in ({}, {"columns": 2048, "tiles": 8}, {"rows": 4, "columns": 16}, {"dtype": "fp32", "buffers": 3}):
        program = pipeline(**shape)
        assert simulate(program, faster).program_ns <= simulate(program, TRN2).program_ns


def test_time_grows_with_bytes():
    for grow in ("tiles", "columns", "rows"):
        steps = {"tiles": [1, 2, 4, 8], "columns": [64, 512, 2048, 8192], "rows": [1, 16, 64, 128]}[grow]
        times = [simulate(pipeline(**{grow: n}), TRN2).program_ns for n in steps]
        assert times == sorted(times)
        assert times[-1] > times[0]
    wide, narrow = (simulate(pipeline(columns=4096, dtype=d), TRN2).program_ns for d in ("fp32", "bf16"))
    assert narrow < wide


def test_more_buffers_overlap_loads_with_compute():
    serial, double = (simulate(pipeline(tiles=8, columns=2048, buffers=n), TRN2).program_ns for n in (1, 3))
    assert double < 0.7 * serial


def test_a_dependent_instruction_waits_for_the_latency_an_independent_one_does_not():
    def total(dependent):
        b = ProgramBuilder("chain")
        tiles = [b.sbuf(f"t{i}", 128, 64, "fp32", i * 256) for i in range(9)]
        for i in range(8):
            b.emit("tensor_scalar", dst=tiles[i + 1], data=tiles[i if dependent else 0], operand0=1.0, op0="add")
        return simulate(synchronize(b.build()), TRN2).program_ns

    latency = TRN2.vector_latency_cycles / 0.96
    assert total(True) - total(False) == pytest.approx(7 * latency, abs=2)


# Tables and errors ----------------------------------------------------------------------------------------------------


def test_tables_have_the_declared_columns():
    timeline = simulate(pipeline(matmul=True), TRN2)
    instructions, transfers = timeline.instruction_table("42"), timeline.dma_table("42")
    assert instructions.schema == tables.INSTRUCTIONS.schema
    assert transfers.schema == tables.DMA_TRANSFERS.schema
    assert set(instructions.column("neff").to_pylist()) == {"42"}
    assert sum(instructions.column("flops").to_pylist()) == timeline.flops
    assert timeline.flops >= 4 * 2 * 128 * 128 * 512
    assert set(transfers.column("queue_type").to_pylist()) == {"input", "output"}
    assert set(transfers.column("variable").to_pylist()) == {"x", "y"}
    assert sum(transfers.column("bytes").to_pylist()) == timeline.bytes_read + timeline.bytes_written


def test_an_empty_program_takes_no_time():
    timeline = simulate(Program("empty", (), (), ()), TRN2)
    assert timeline.program_ns == timeline.dma_busy_ns == 0
    assert timeline.instruction_table("1").num_rows == 0


def test_deadlock_names_engine_and_semaphore():
    b = ProgramBuilder("stuck")
    t = b.sbuf("t", 4, 4, "fp32", 0)
    b.emit("memset", dst=t, waits=[Wait("Scalar", 1)], signals=[Signal("Vector")])
    b.emit("activation", dst=t, data=t, op="copy", waits=[Wait("Vector", 1)], signals=[Signal("Scalar")])
    with pytest.raises(DeadlockError, match=r"Vector for Scalar \(reached 0\).*Scalar for Vector \(reached 0\)"):
        simulate(b.build(), TRN2)


def test_loops_are_timed_as_if_written_out():
    def program(rolled):
        b = ProgramBuilder("loop")
        x = b.input("x", (1280, 16), "fp32")
        t = b.sbuf("t", 128, 160, "fp32", 0)
        if rolled:
            with b.loop(10) as i:
                b.emit(
                    "dma_copy",
                    dst=t.access(None, ((1, 16),), steps=((i, 16),)),
                    src=x.access(128, ((1, 16),), partition_stride=16, steps=((i, 2048),)),
                )
        else:
            for i in range(10):
                b.emit("dma_copy", dst=t.columns(16 * i, 16 * i + 16), src=x.rows(128 * i, 128))
        return b.build()

    timelines = [simulate(program(rolled), TRN2) for rolled in (True, False)]
    assert timelines[0].dma_table("1").equals(timelines[1].dma_table("1"))
