"""The little language of `diff --fail-on`."""

import pytest
from neuronscope.analysis.condition import ConditionError, parse


def only(text):
    ((test,),) = parse(text).alternatives
    return test


def test_a_share_is_of_the_value_before():
    test = only("device_time > 5%")
    assert not test.holds(1000, 1050)
    assert test.holds(1000, 1051)
    assert not test.holds(1000, 900)


def test_units_are_absolute_changes():
    assert only("gaps > 200us").holds(0, 200_001)
    assert not only("gaps > 200us").holds(0, 200_000)
    assert only("bytes >= 2 KiB").holds(100, 2148)
    assert only("executions > 0").holds(6, 7)
    assert only("launch < -1ms").holds(2_000_001, 1_000_000)


def test_and_binds_tighter_than_or():
    condition = parse("span > 1% and gaps > 1us or executions > 3")
    assert [[test.metric for test in tests] for tests in condition.alternatives] == [["span", "gaps"], ["executions"]]
    assert condition.metrics == ("span", "gaps", "executions")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("device_time", "expected one of > >= < <= at column 12, found the end"),
        ("speed > 5%", "expected a metric (device_time, span"),
        ("device_time > fast", "expected a number at column 15, found `fast`"),
        ("device_time > 5", "expected % or a unit of time"),
        ("executions > 5ms", "expected % or nothing"),
        ("bytes > 5ms", "expected % or B, KiB, MiB, GiB"),
        ("device_time > 5% 3", "expected `and`, `or` or the end at column 18, found `3`"),
        ("device_time > 5% or", "expected a metric"),
        ("__import__('os')", "expected a metric"),
        ("device_time == 5%", "column 13, found `=`"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text, says):
    with pytest.raises(ConditionError) as error:
        parse(text)
    assert says in str(error.value) and "\n" not in str(error.value)
