"""Neuron Explorer's options of `view`: taken with their meaning, or refused with a reason."""

from pathlib import Path

import pyarrow as pa
import pytest
from neuronscope.analysis.filter import filtered
from neuronscope.analysis.library import open_profile
from neuronscope.analysis.profile import Profile
from neuronscope.cli.app import run

SESSION = Path(__file__).parents[1] / "golden" / "session"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--force"], "read anew by itself"),
        (["--enable-memory-tracker"], "neuronscope memory"),
        (["--show-perfetto-flows"], "always holds the arrows"),
        (["--terminology", "neuron"], "one set of words"),
        (["--api-port", "3002"], "share one port"),
        (["-F", "something=1"], "the only feature is ignore-nc-buf-usage"),
        (["--framework-source-root", "/nowhere/at/all"], "--framework-source-root /nowhere/at/all: no such folder"),
    ],
)
def test_options_without_meaning_here_are_refused_with_the_reason(options, says, capsys):
    assert run(["view", str(SESSION), "--no-serve", *options]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.count("\n") == 1


def test_buffer_usage_can_be_left_out(tmp_path):
    session = open_profile(SESSION, data_path=tmp_path)
    tables = {name: session.table(name) for name in session.tables}
    usage = pa.table({"timestamp": [1], "avg_util_percent": [0.5]})
    without = filtered(Profile("golden", {**tables, "SbufUsage": usage, "PsumUsage": usage}), buffers=False)
    assert without.row_count("SbufUsage") == without.row_count("PsumUsage") == 0
    assert without.row_count("Instruction") == session.row_count("Instruction") > 0
