"""What an NTFF says beside the timeline, checked on small programs a reader can follow."""

import pytest
from neuroncore.errors import VerifyError
from neuroncore.isa import parse_program, synchronize
from neuroncore.targets import load_target
from neuroncore.timing import simulate
from neuroncore.timing.details import details, hardware

ROLLED = """program "scale"
tensor x input bf16 [131072]
tensor y output bf16 [131072]
tile a SBUF 128 bytes 512 bf16 address 0 partition 0
tile b SBUF 128 bytes 512 bf16 address 512 partition 0
loop i 4 {
  Sync dma_copy dst=<a bf16 p0+128 f1*256> src=<x bf16 p0+128*256 f1*256 +32768*i> queue=qLoad signal=qLoad+16
  Vector tensor_scalar dst=<b bf16 p0+128 f1*256> data=<a bf16 p0+128 f1*256> operand0=2.0 op0="add" \
wait=qLoad>=16+16*i signal=Vector+1
  Scalar dma_copy dst=<y bf16 p0+128*256 f1*256 +32768*i> src=<b bf16 p0+128 f1*256> \
queue=qStore wait=Vector>=1+1*i signal=qStore+16
}
"""

TURN = """program "turn"
tensor x input bf16 [16384]
tensor y output bf16 [16384]
tile a SBUF 128 bytes 256 bf16 address 0 partition 0
tile t PSUM 128 bytes 256 bf16 address 2048 partition 0
tile b SBUF 128 bytes 256 bf16 address 256 partition 0
Sync dma_copy dst=<a bf16 p0+128 f1*128> src=<x bf16 p0+128*128 f1*128> queue=qLoad
Tensor nc_transpose dst=<t bf16 p0+128 f1*128> data=<a bf16 p0+128 f1*128>
Vector tensor_copy dst=<b bf16 p0+128 f1*128> data=<t bf16 p0+128 f1*128>
Scalar dma_copy dst=<y bf16 p0+128*128 f1*128> src=<b bf16 p0+128 f1*128> queue=qStore
"""


def told(program):
    target = load_target("trn2")
    timeline = simulate(program, target)
    tables = details(program, target, timeline.instruction_table("1"), timeline.dma_table("1"), "1")
    return timeline, {name: table.to_pylist() for name, table in tables.items()}


def test_a_rolled_program_tells_what_its_unrolled_form_tells():
    program = parse_program(ROLLED)
    _, rolled = told(program)
    _, flat = told(program.expand())
    assert rolled == flat
    assert [(w["instruction_id"], w["semaphore"], w["value"]) for w in rolled["waits"]] == [
        pair for i in range(4) for pair in ((3 * i + 1, "qLoad", 16 + 16 * i), (3 * i + 2, "Vector", 1 + i))
    ]
    assert [d["transfer_id"] for d in rolled["instruction_details"]] == [0, -1, 1, 2, -1, 3, 4, -1, 5, 6, -1, 7]
    assert {d["signals"] for d in rolled["instruction_details"]} == {"qLoad+16", "Vector+1", "qStore+16"}


def test_a_tile_lives_from_its_first_write_to_the_last_use_before_the_next():
    timeline, tables = told(parse_program(ROLLED))
    done = timeline.instructions["done_offset_ns"]
    start = timeline.instructions["offset_ns"]
    lives = [(a["name"], a["start_offset_ns"], a["end_offset_ns"]) for a in tables["allocations"]]
    assert lives == [("a", start[3 * i], done[3 * i + 1]) for i in range(4)] + [
        ("b", start[3 * i + 1], done[3 * i + 2]) for i in range(4)
    ]
    assert {(a["memory"], a["address"], a["bytes"], a["partitions"]) for a in tables["allocations"]} == {
        ("SBUF", 0, 512, 128),
        ("SBUF", 512, 512, 128),
    }


def test_transposes_and_performance_modes_are_told():
    _, tables = told(synchronize(parse_program(TURN)))
    facts = [(d["dtype"], d["performance_mode"], d["transpose_flops"]) for d in tables["instruction_details"]]
    assert facts == [("bf16", "", 0), ("bf16", "", 2 * 128**3), ("bf16", "2x", 0), ("bf16", "", 0)]
    assert [(t["name"], t["kind"], t["shape"], t["bytes"]) for t in tables["tensors"]] == [
        ("x", "input", "[16384]", 32768),
        ("y", "output", "[16384]", 32768),
    ]
    assert [a["memory"] for a in tables["allocations"]] == ["SBUF", "PSUM", "SBUF"]


def test_the_timeline_of_another_program_is_refused():
    target = load_target("trn2")
    other = simulate(parse_program(ROLLED), target)
    with pytest.raises(VerifyError, match=r"turn: 12 instructions on the timeline, 4 executed"):
        details(parse_program(TURN), target, other.instruction_table("1"), other.dma_table("1"), "1")


def test_every_number_of_the_target_is_kept_with_its_status():
    rows = hardware(load_target("trn2"))
    values = dict(zip(rows["name"], rows["value"], strict=True))
    assert values["tensor_clock_hz"] == 2.4e9
    assert values["tensor_peak_flops_per_second.bf16"] == 7.864e13
    assert dict(zip(rows["name"], rows["status"], strict=True))["launch_cost_profiled_ns"] == "calibrated"
