"""What takes the most device time."""

import pyarrow as pa
import pytest
from neuronscope.analysis.profile import Profile
from neuronscope.analysis.top import ATTRIBUTES, top


@pytest.fixture
def profile(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    rows = tables["Execution"].to_pylist()
    rows[0] |= {"module_path": "norm", "source": "model.py:3", "name": "mul_kernel"}
    tables["Execution"] = pa.Table.from_pylist(rows, schema=tables["Execution"].schema)
    return Profile("naive", tables)


@pytest.mark.parametrize("by", ATTRIBUTES)
def test_rows_sum_to_the_device_time_of_the_range(profile, by):
    found = top(profile, by)
    assert sum(row["device_time_ns"] for row in found.rows) == found.device_time_ns == 2_328_000
    assert sum(row["share"] for row in found.rows) == pytest.approx(1)
    assert found.rows == tuple(sorted(found.rows, key=lambda row: -row["device_time_ns"]))


def test_each_attribute_names_its_rows(profile):
    assert top(profile, "operator").rows[0]["name"] == "aten::mul"
    assert "mul_kernel" in [row["name"] for row in top(profile, "kernel").rows]
    assert [row["name"] for row in top(profile, "module").rows] == ["(unlinked)", "norm"]
    assert [row["name"] for row in top(profile, "source").rows] == ["naive.py:17", "model.py:3"]


def test_a_limit_leaves_the_shares(profile):
    found = top(profile, "operator", limit=1)
    assert found.total_rows == 4 and len(found.rows) == 1 and found.rows[0]["share"] == pytest.approx(0.5)


def test_an_unknown_attribute_is_refused(profile):
    with pytest.raises(ValueError, match="one of operator, kernel, module, region, source"):
        top(profile, "colour")


def test_work_of_a_job_is_told_by_rank_step_and_category(job):
    def names(by):
        return {row["name"] for row in top(job, by, selected=job.whole_range).rows}

    assert names("rank") == {"rank 0", "rank 1", "rank 2"} and names("category") == {"compute", "communication"}
    assert names("step") == {"step 1", "step 2", "step 3"} and "rank 1 device 0" in names("device")
