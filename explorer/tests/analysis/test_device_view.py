"""From an execution down to its engines, as a profile of its own, and back."""

import pytest
from neuronscope.analysis import card, events
from neuronscope.analysis.device_view import NoDeviceRowsError, open_execution
from neuronscope.analysis.profile import Profile


@pytest.fixture(scope="module")
def execution(golden):
    """A row of the golden session's table Execution that has instructions."""
    return golden.rows(
        "SELECT * FROM Execution WHERE execution_id IN (SELECT execution_id FROM Instruction) ORDER BY start_ts LIMIT 1"
    )[0]


@pytest.fixture(scope="module")
def inside(golden, execution):
    """That execution's own profile."""
    return open_execution(golden, execution["execution_id"])


def test_every_instruction_and_transfer_of_the_execution_is_drawn(golden, execution, inside):
    number = execution["execution_id"]
    wanted = sum(
        golden.rows(f"SELECT count(*) AS n FROM {table} WHERE execution_id = {number}")[0]["n"]
        for table in ("Instruction", "DmaPacketAggregated")
    )
    drawn = inside.rows("SELECT count(*) AS n FROM Slice JOIN Track USING (track_id) WHERE kind = 'engine'")[0]["n"]
    assert drawn == wanted > 0


def test_its_time_is_the_program_part_of_the_execution(execution, inside):
    assert inside.operators(inside.whole_range).total.device_time_ns == execution["program_ns"]
    assert [row.name for row in inside.operators(inside.whole_range).rows] == [execution["op"] or execution["name"]]


def test_arrows_between_its_rows_come_along(golden, execution, inside):
    ids = {
        table: {
            row["id"] for row in golden.rows(f"SELECT id FROM {table} WHERE execution_id = {execution['execution_id']}")
        }
        for table in ("Instruction", "DmaPacketAggregated")
    }
    wanted = [
        row
        for row in golden.rows("SELECT * FROM Flow WHERE in_table <> 'SystemProfileEvents'")
        if row["in_id"] in ids[row["in_table"]] and row["out_id"] in ids[row["out_table"]]
    ]
    drawn = inside.rows("SELECT 1 FROM Flow WHERE in_table = 'SystemProfileEvents'")
    assert len(drawn) == len(wanted)


def test_event_and_card_lead_there_and_back(golden, execution, inside):
    details = events.event_details(golden, execution["event_id"])["execution"]
    assert details["device_profile"] == inside.id
    assert card.profile_card(inside)["outer"] == {"profile": golden.id, "event": str(execution["event_id"])}
    assert card.profile_card(golden)["outer"] is None


def test_it_is_kept_beside_the_profile_and_opened_again(golden, execution, inside):
    again = open_execution(golden, execution["execution_id"])
    assert again.directory == inside.directory != None  # noqa: E711
    assert again.directory.is_relative_to(golden.directory)


def test_an_execution_without_engine_rows_says_so(golden):
    with pytest.raises(NoDeviceRowsError, match="nothing is known about the engines of execution 99999999"):
        open_execution(golden, 99999999)


def test_an_export_without_execution_numbers_goes_by_time(golden, execution, inside):
    tables = {name: golden.table(name) for name in golden.tables}
    for name in ("Instruction", "DmaPacketAggregated", "ExecutionInfo"):
        tables[name] = tables[name].drop_columns(["execution_id"])
    found = open_execution(Profile("export", tables), execution["execution_id"])
    assert found.row_count("Instruction") == inside.row_count("Instruction")
    assert found.row_count("DmaPacketAggregated") == inside.row_count("DmaPacketAggregated")
