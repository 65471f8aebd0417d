import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.errors import ParseError, ProgramError, UnsupportedInstructionError
from neuroncore.graph import DTYPE_BYTES as GRAPH_DTYPES
from neuroncore.isa import (
    DTYPE_BYTES,
    ENGINES,
    INSTRUCTIONS,
    Access,
    Instruction,
    Loop,
    Program,
    ProgramBuilder,
    Signal,
    Tensor,
    Tile,
    Wait,
    parse_program,
    print_program,
    synchronize,
    verify,
)
from neuroncore.isa.synchronize import stream_of
from neuroncore.targets import load_target

TRN2 = load_target("trn2")


def test_all_54_instructions_are_declared_and_the_missing_ones_say_so():
    assert len(INSTRUCTIONS) == 54
    for name, spec in INSTRUCTIONS.items():
        assert set(spec.engines) <= set(ENGINES)
        if not spec.implemented:
            with pytest.raises(UnsupportedInstructionError, match=f"{name}: declared but not modelled: "):
                ProgramBuilder("p").emit(name)
        else:
            assert spec.dma or spec.cycles is not None


def test_dtype_names_are_those_of_the_graph():
    assert DTYPE_BYTES == GRAPH_DTYPES


# Round trip -----------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[a-z][a-z0-9_.]{0,6}", fullmatch=True)
loops = st.from_regex(r"[a-z][a-z0-9]{0,3}", fullmatch=True)
steps = st.lists(st.tuples(loops, st.integers(-9999, 9999)), max_size=2).map(tuple)
dtypes = st.sampled_from(sorted(DTYPE_BYTES))
accesses = st.builds(
    Access,
    names,
    dtypes,
    st.integers(1, 128),
    st.lists(st.tuples(st.integers(-5000, 5000), st.integers(1, 5000)), max_size=4).map(tuple),
    st.integers(0, 10**9),
    st.integers(0, 127),
    st.integers(-5000, 10**6),
    steps,
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = plain | st.lists(st.integers() | st.tuples(st.integers(), st.integers()), max_size=3).map(tuple)
instructions = st.builds(
    Instruction,
    st.sampled_from(sorted(INSTRUCTIONS)),
    st.sampled_from(ENGINES),
    st.lists(st.tuples(st.sampled_from(["dst", "src", "op0", "value"]), accesses | values), max_size=4).map(tuple),
    st.lists(st.builds(Wait, names, st.integers(0, 10**6), steps), max_size=2).map(tuple),
    st.lists(st.builds(Signal, names, st.integers(1, 16)), max_size=2).map(tuple),
    st.just("") | names,
    st.text(max_size=8),
    st.text(max_size=8),
)
bodies = st.recursive(
    instructions,
    lambda inner: st.builds(Loop, loops, st.integers(0, 99), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
programs = st.builds(
    Program,
    st.text(max_size=8),
    st.lists(
        st.builds(Tensor, names, st.lists(st.integers(0, 99), max_size=4).map(tuple), dtypes, st.just("input")),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(
            Tile,
            names,
            st.sampled_from(["SBUF", "PSUM"]),
            st.integers(1, 128),
            st.integers(1, 9999),
            dtypes,
            st.none() | st.integers(0, 10**6),
            st.integers(0, 96),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(bodies, max_size=4).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(programs)
def test_printed_programs_parse_back(program):
    for origins in (False, True):
        text = print_program(program, origins=origins)
        parsed = parse_program(text)
        assert parsed == program
        assert print_program(parsed, origins=origins) == text  # ops and sources too, which equality ignores


def test_the_text_of_a_program_does_not_depend_on_who_called_it():
    def program(source):
        b = ProgramBuilder("p")
        with b.op("aten.zero_.default", source=source):
            b.emit("memset", dst=_sbuf(b))
        return b.build()

    assert print_program(program("a.py:1")) == print_program(program("b.py:2"))
    assert ';op "aten.zero_.default" at "a.py:1"' in print_program(program("a.py:1"), origins=True)


def test_parse_error_names_the_line():
    with pytest.raises(ParseError, match="line 2: not a line of a printed program: 'Vector tensor_tensor dst=<'"):
        parse_program('program "p"\nVector tensor_tensor dst=<')
    with pytest.raises(ParseError, match="loop 'i' is not closed"):
        parse_program("loop i 3 {")


def test_loops_unroll_with_affine_offsets():
    b = ProgramBuilder("loop")
    x = b.input("x", (512, 16), "fp32")
    t = b.sbuf("t", 128, 64, "fp32", address=0)
    with b.loop(4) as i:
        b.emit(
            "dma_copy",
            dst=t.access(None, ((1, 16),), steps=((i, 16),)),
            src=x.access(128, ((1, 16),), partition_stride=16, steps=((i, 2048),)),
        )
    flat = b.build().expand()
    assert [item.get("src").offset for item in flat.body] == [0, 2048, 4096, 6144]
    assert [item.get("dst").offset for item in flat.body] == [0, 16, 32, 48]


# Builder --------------------------------------------------------------------------------------------------------------


def _tiles(b, dtype="fp32"):
    return [b.sbuf(f"t{i}", 128, 64, dtype, address=i * 256) for i in range(3)]


@pytest.mark.parametrize(
    ("opcode", "operands", "message"),
    [
        ("add", {}, "add: no such instruction"),
        ("tensor_tensor", {"op": "add"}, "operand dst is missing"),
        ("tensor_tensor", {"op": "divide", "dst": 0, "data1": 1, "data2": 2}, "op='divide' is not one of"),
        ("tensor_tensor", {"op": "add", "dst": 0, "data1": 1, "data2": 2, "data3": 2}, "unknown operand data3"),
        ("tensor_tensor", {"op": "add", "dst": 0, "data1": 1, "data2": 2, "engine": "Scalar"}, "engine Scalar can't"),
        ("tensor_tensor", {"op": "add", "dst": 0, "data1": 1, "data2": 2, "queue": "q"}, "not a DMA"),
        ("tensor_copy", {"dst": 0, "data": 2.0}, "operand data must be an access pattern"),
    ],
)
def test_builder_refuses_what_is_not_declared(opcode, operands, message):
    b = ProgramBuilder("p")
    tiles = _tiles(b)
    given = {k: tiles[v] if type(v) is int else v for k, v in operands.items()}
    with pytest.raises(ProgramError, match=message):
        b.emit(opcode, **given)


def test_names_are_unique():
    b = ProgramBuilder("p")
    b.input("x", (4,), "fp32")
    with pytest.raises(ProgramError, match="x: declared twice"):
        b.sbuf("x", 4, 4, "fp32")


# Verify ---------------------------------------------------------------------------------------------------------------


def _refused(build, message, target=TRN2):
    b = ProgramBuilder("p")
    build(b)
    with pytest.raises(ProgramError, match=message):
        verify(synchronize(b.build()), target)


def _sbuf(b, columns=64, dtype="fp32", *, partitions=128, address=0, name="s"):
    return b.sbuf(name, partitions, columns, dtype, address)


def _psum(b, columns=512, partitions=128, address=0, name="p"):
    return b.psum(name, partitions, columns, "fp32", address)


REFUSALS = {
    "instruction 0, tensor_copy on Vector: operand data: 129 partitions, limit 128": lambda b: b.emit(
        "tensor_copy", dst=_sbuf(b), data=Access("s", "fp32", 129, ((1, 64),))
    ),
    "tile s: partitions 0..200, trn2 has 128": lambda b: _sbuf(b, partitions=200),
    "tile s: bytes 212000..213024 of each partition, SBUF of trn2 has 212984": lambda b: _sbuf(b, 256, address=212000),
    "tile p: bytes 15000..17048 of each partition, PSUM of trn2 has 16384": lambda b: _psum(b, address=15000),
    "tile s: no address": lambda b: _sbuf(b, address=None),
    "nc_matmul on Tensor: operand dst: spans PSUM banks 0..1": lambda b: b.emit(
        "nc_matmul", dst=_psum(b, address=1024), stationary=_sbuf(b, 128), moving=_sbuf(b, 512, name="m", address=512)
    ),
    "nc_matmul on Tensor: operand moving has 600 columns, limit 512": lambda b: b.emit(
        "nc_matmul", dst=_psum(b), stationary=_sbuf(b, 128), moving=_sbuf(b, 600, name="m", address=512)
    ),
    "operand stationary has 130 columns, limit 128": lambda b: b.emit(
        "nc_matmul", dst=_psum(b), stationary=_sbuf(b, 130), moving=_sbuf(b, 512, name="m", address=1024)
    ),
    "operand stationary: dtype int32, allowed: fp32": lambda b: b.emit(
        "nc_matmul", dst=_psum(b), stationary=_sbuf(b, 128, "int32"), moving=_sbuf(b, 512, name="m", address=512)
    ),
    "stationary bf16 and moving fp32: fp32 pairs only with fp32": lambda b: b.emit(
        "nc_matmul", dst=_psum(b), stationary=_sbuf(b, 128, "bf16"), moving=_sbuf(b, 512, name="m", address=512)
    ),
    "operand moving has 64 partitions, stationary 128": lambda b: b.emit(
        "nc_matmul", dst=_psum(b), stationary=_sbuf(b, 128), moving=_sbuf(b, 512, partitions=64, name="m", address=512)
    ),
    "operand dst: s is in SBUF, allowed: PSUM": lambda b: b.emit(
        "nc_matmul", dst=_sbuf(b, 128), stationary=_sbuf(b, 128, name="a"), moving=_sbuf(b, 128, name="m")
    ),
    "dma_copy on Sync: operand dst: p is in PSUM, allowed: HBM, SBUF": lambda b: b.emit(
        "dma_copy", dst=_psum(b), src=b.input("x", (128, 512), "fp32").rows(0, 128)
    ),
    "dma_copy on Sync: operand dst has 8192 elements, src 65536": lambda b: b.emit(
        "dma_copy", dst=_sbuf(b), src=b.input("x", (128, 512), "fp32").rows(0, 128)
    ),
    "operand src: elements 65536..131072 of x, which has 65536": lambda b: b.emit(
        "dma_copy", dst=_sbuf(b, 512), src=b.input("x", (128, 512), "fp32").rows(128, 128)
    ),
    "iota on GpSimd: operand dst: p is in PSUM, allowed: SBUF": lambda b: b.emit(
        "iota", dst=_psum(b), pattern=((1, 512),)
    ),
    "operands data1 and data2 are both in PSUM": lambda b: b.emit(
        "tensor_tensor", dst=_sbuf(b, 512), data1=_psum(b), data2=_psum(b, name="p2", address=2048), op="add"
    ),
    r"operand data2 is \[128, 32\], dst is \[128, 64\]": lambda b: b.emit(
        "tensor_tensor", dst=_sbuf(b), data1=_sbuf(b, name="a"), data2=_sbuf(b, 32, name="c"), op="add"
    ),
    r"operand bias is \[128, 2\], needs \[128, 1\]": lambda b: b.emit(
        "activation", dst=_sbuf(b), data=_sbuf(b, name="a"), bias=_sbuf(b, 2, name="c"), op="exp"
    ),
    "starts at partition 16; 64 partitions may start at 0, 64": lambda b: b.emit(
        "memset", dst=_sbuf(b).access((16, 80))
    ),
    "operand dst: bytes 0..512 of each partition of tile s, which has 256": lambda b: b.emit(
        "memset", dst=_sbuf(b).columns(0, 128)
    ),
    "operand dst: dtype fp64": lambda b: b.emit("memset", dst=_sbuf(b, 8, "fp64")),
    "operand dst: 5 free dimensions, limit 4": lambda b: b.emit(
        "memset", dst=_sbuf(b).access(None, ((1, 1), (1, 1), (1, 1), (1, 1), (1, 4)))
    ),
    "op='power' runs on GpSimd only": lambda b: b.emit(
        "tensor_tensor", dst=_sbuf(b), data1=_sbuf(b, name="a"), data2=_sbuf(b, name="c"), op="power"
    ),
    "bitwise operators need Vector and one integer dtype": lambda b: b.emit(
        "tensor_scalar", dst=_sbuf(b), data=_sbuf(b, name="a"), operand0=1, op0="bitwise_and"
    ),
    "on Scalar only multiply-add, multiply or add": lambda b: b.emit(
        "tensor_scalar", engine="Scalar", dst=_sbuf(b), data=_sbuf(b, name="a"), operand0=1.0, op0="max"
    ),
    r"operand data is \[128, 64\], limit \[32, 32\]": lambda b: b.emit(
        "nc_transpose", engine="Vector", dst=_sbuf(b, 128, partitions=64), data=_sbuf(b, name="a")
    ),
    "operand data has 600 elements per partition, limit 512": lambda b: b.emit(
        "bn_stats", dst=_sbuf(b, 6), data=_sbuf(b, 600, name="a")
    ),
    "needs NeuronCore-v4, trn2 is NeuronCore-v3": lambda b: b.emit(
        "exponential", dst=_sbuf(b), data=_sbuf(b, name="a"), max_value=0.0
    ),
    "its tensors need .* B of HBM at once, trn2 has": lambda b: b.input("x", (2**33,), "fp32"),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_verify_refuses_what_the_hardware_refuses(message):
    _refused(REFUSALS[message], message)


def test_verify_refuses_a_queue_of_two_engines_and_waits_without_signals():
    def shared(b):
        t, x = _sbuf(b), b.input("x", (128, 64), "fp32")
        b.emit("dma_copy", dst=t, src=x.rows(0, 128), queue="q")
        b.emit("dma_copy", dst=t, src=x.rows(0, 128), queue="q", engine="Scalar")

    _refused(shared, "queue q is triggered by Sync too")
    b = ProgramBuilder("p")
    b.emit("memset", dst=_sbuf(b), waits=[Wait("never", 1)])
    with pytest.raises(ProgramError, match="waits for never >= 1, all signals together reach 0"):
        verify(b.build(), TRN2)


def test_verify_refuses_a_semaphore_of_two_streams():
    b = ProgramBuilder("p")
    t = _sbuf(b)
    b.emit("memset", dst=t, signals=[Signal("s")])
    b.emit("memset", dst=t, engine="GpSimd", signals=[Signal("s")])
    with pytest.raises(ProgramError, match="raises s, as Vector does: one stream per semaphore"):
        verify(b.build(), TRN2)


def test_verify_accepts_the_same_program_on_a_newer_generation():
    b = ProgramBuilder("p")
    b.emit("exponential", dst=_sbuf(b), data=_sbuf(b, name="a", address=256), max_value=0.0)
    verify(synchronize(b.build()), load_target("trn3"))


# Synchronize ----------------------------------------------------------------------------------------------------------


def _waits(program):
    return [[(w.semaphore, w.value) for w in i.waits] for i in program.body]


def test_synchronize_orders_reads_writes_and_reuse():
    b = ProgramBuilder("p")
    x, y = b.input("x", (128, 64), "fp32"), b.output("y", (128, 64), "fp32")
    t, u = _sbuf(b), _sbuf(b, name="u", address=256)
    b.emit("dma_copy", dst=t, src=x.rows(0, 128))
    b.emit("activation", dst=u, data=t, op="exp")
    b.emit("tensor_copy", dst=t, data=u)  # reads Scalar's result; t's readers are Scalar too
    b.emit("dma_copy", engine="Scalar", dst=y.rows(0, 128), src=t)
    b.emit("dma_copy", dst=t, src=x.rows(0, 128))  # may not overwrite t before the store has read it
    program = synchronize(b.build())
    assert _waits(program) == [
        [],
        [("qSyncLoad", 16)],
        [("Scalar", 1)],
        [("Vector", 1)],
        [("qScalarStore", 16)],
    ]
    assert [stream_of(i) for i in program.body] == ["qSyncLoad", "Scalar", "Vector", "qScalarStore", "qSyncLoad"]


def test_synchronize_sees_tiles_that_share_memory_and_skips_those_that_do_not():
    b = ProgramBuilder("p")
    a, same, other = _sbuf(b), _sbuf(b, name="same", address=128), _sbuf(b, name="other", address=1024)
    b.emit("memset", dst=a, value=1.0)
    b.emit("memset", dst=same, value=2.0, engine="GpSimd")
    b.emit("memset", dst=other, value=3.0, engine="GpSimd")
    assert _waits(synchronize(b.build())) == [[], [("Vector", 1)], []]


def test_neighbouring_column_blocks_of_a_tensor_are_independent():
    b = ProgramBuilder("p")
    x, t = b.temporary("x", (128, 128), "fp32"), _sbuf(b)
    b.emit("dma_copy", dst=x.rows(0, 128, (0, 64)), src=t)
    b.emit("dma_copy", dst=t, src=x.rows(0, 128, (64, 128)), engine="Scalar")
    b.emit("dma_copy", dst=_sbuf(b, name="u", address=512), src=x.rows(0, 128, (0, 64)), engine="Scalar")
    waits = _waits(synchronize(b.build()))
    assert waits[1] == [("qSyncStore", 16)]  # only because t is overwritten
    assert waits[2] == []  # implied by the wait before it


def test_accumulating_matmuls_do_not_wait_for_each_other():
    b = ProgramBuilder("p")
    s, m, p = _sbuf(b, 128), _sbuf(b, 512, name="m", address=512), _psum(b)
    for k in range(3):
        b.emit("nc_matmul", dst=p, stationary=s, moving=m, accumulate=k > 0)
    b.emit("tensor_copy", dst=_sbuf(b, 512, name="o", address=4096), data=p)
    assert _waits(synchronize(b.build())) == [[], [], [], [("Tensor", 3)]]


def test_temporaries_that_are_not_live_together_share_hbm():
    target = load_target("trn2")

    def program(overlap):
        b = ProgramBuilder("temporaries")
        size = target.hbm_bytes // 3 * 2 // 128
        first, second = (b.temporary(name, (128, size), "uint8") for name in ("first", "second"))
        t = b.sbuf("t", 128, 64, "uint8", 0)
        order = (first, second, first) if overlap else (first, first, second)
        for tensor in order:
            b.emit("dma_copy", dst=tensor.rows(0, 128, (0, 64)), src=t)
        return b.build(derived=True)

    verify(program(overlap=False), target)
    with pytest.raises(ProgramError, match="B of HBM at once"):
        verify(program(overlap=True), target)
