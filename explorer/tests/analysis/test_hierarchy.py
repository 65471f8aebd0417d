"""Instructions by layer and operator, throttling, and stack frames of device profiles."""

import pyarrow as pa
import pytest
from neuronscope.analysis.catalog import analyse
from neuronscope.analysis.profile import Profile
from neuronscope.analysis.stack_frames import stack_frames


def instruction(start, duration, engine, layer, hlo, opcode, bir=None):
    return {
        "start_ts": start, "end_ts": start + duration, "duration_ns": duration, "engine": engine, "layer": layer,
        "hlo_name": hlo, "opcode": opcode, "bir_instruction_name": bir, "hbm_read_bytes": 64, "raw_flops": 2,
        "execution_id": 1,
    }  # fmt: skip


@pytest.fixture
def profile(build_tables, rmsnorm):
    """Six instructions of two layers beside the walk-through's executions, two throttled periods, three frames."""
    tables = build_tables(rmsnorm)
    start = min(tables["Slice"]["start_ts"].to_pylist())
    rows = [
        instruction(start, 10, "Tensor", "layers.0", "dot.1", "matmul", "I-1"),
        instruction(start + 10, 20, "Tensor", "layers.0", "dot.1", "matmul", "I-2"),
        instruction(start + 30, 5, "Vector", "layers.0", "add.2", "tensor_tensor"),
        instruction(start + 35, 5, "Scalar", "layers.1", "layers.1", "activation"),
        instruction(start + 40, 60, "Vector", "layers.1", None, "tensor_tensor"),
    ]
    throttle = [
        {"timestamp": start, "duration": 30, "k": 1, "n": 2, "type": "power", "pcore_idx": 0},
        {"timestamp": start + 50, "duration": 10, "k": 1, "n": 4, "type": "power", "pcore_idx": 0},
    ]
    frames = {
        "StackFrame": [
            {"id": "1", "file_location_id": 7, "parent_frame_id": None},
            {"id": "2", "file_location_id": 8, "parent_frame_id": "1"},
        ],
        "StackFrameFileLocation": [
            {"id": "7", "file_name_id": 1, "function_name_id": 1, "line_number": 3},
            {"id": "8", "file_name_id": 2, "function_name_id": 2, "line_number": 44},
        ],
        "StackFrameFileName": [{"id": "1", "name": "train.py"}, {"id": "2", "name": "model.py"}],
        "StackFrameFunctionName": [{"id": "1", "name": "main"}, {"id": "2", "name": "forward"}],
    }
    more = {"Instruction": rows, "Throttle": throttle, **frames}
    return Profile("p", {**tables, **{name: pa.Table.from_pylist(some) for name, some in more.items()}})


def test_every_level_sums_to_the_whole_and_repeats_are_left_out(profile):
    rows = {tuple(row["path"]): row for row in analyse(profile, "hierarchy").rows}
    assert rows[("layers.0",)]["active_ns"] == 35
    assert rows[("layers.0", "dot.1")]["tensor_ns"] == 30
    assert rows[("layers.0", "dot.1", "I-2", "matmul")]["active_ns"] == 20
    assert rows[("layers.1", "activation")]["scalar_ns"] == 5  # the layer is its own HLO operator
    assert rows[("layers.1", "tensor_tensor")]["vector_ns"] == 60
    assert sum(row["active_ns"] for path, row in rows.items() if len(path) == 1) == 100
    assert rows[("layers.1",)]["share"] == pytest.approx(0.65)
    assert rows[("layers.0",)]["hbm_bytes"] == 3 * 64


def test_throttling_says_how_long_and_how_far(profile):
    (row,) = analyse(profile, "throttling").rows
    assert (row["core"], row["kind"], row["periods"], row["time_ns"]) == (0, "power", 2, 40)
    assert row["limit_share"] == pytest.approx((30 / 2 + 10 / 4) / 40)
    assert "was held back (power)" in analyse(profile, "throttling").facts[0]


def test_without_either_the_reason_is_told(build_tables, rmsnorm):
    plain = Profile("p", build_tables(rmsnorm))
    assert "no instructions" in analyse(plain, "hierarchy").reason
    assert "throttling" in analyse(plain, "throttling").reason.lower()


def test_stack_frames_run_from_the_outermost_in(profile):
    assert stack_frames(profile, "2") == "train.py:3 main; model.py:44 forward"
    assert stack_frames(profile, "[2, 1]") == "train.py:3 main; model.py:44 forward"
    assert stack_frames(profile, None) == stack_frames(profile, "99") == ""
