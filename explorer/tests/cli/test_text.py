"""Names and layout of what the terminal shows."""

from pathlib import Path

import pytest
from neuronscope.analysis.units import format_ratio
from neuronscope.cli.opening import PathError, default_name, split_names
from neuronscope.cli.text import clip, free_table, table, wrap
from neuronscope.server.run import tunnel_command


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("demo/naive", "naive"),
        ("demo/naive/i-emulated0_pid_4121/2026_11_29_101112_000", "naive"),
        ("demo/naive/i-emulated0_pid_4121", "naive"),
        ("demo/naive/i-0abc_pid_12/1759000000000", "naive"),
        ("demo/naive/i-0abc_pid_12/20261129_101112_000/trace.json", "naive"),
        ("runs/h100_bert.json.gz", "h100_bert"),
        ("runs/worker0.pt.trace.json", "worker0"),
    ],
)
def test_a_profile_is_named_after_its_own_folder_or_file(tmp_path, path, name):
    target = tmp_path / "top" / path
    if ".json" in path:
        target.parent.mkdir(parents=True)
        target.write_text("{}")
    else:
        target.mkdir(parents=True)
    assert default_name(target) == name


def test_an_existing_path_wins_over_name_and_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b").mkdir()
    Path("b").mkdir()
    assert split_names(["a=b", "c=b", "c=a=b"]) == [(None, Path("a=b")), ("c", Path("b")), ("c", Path("a=b"))]
    with pytest.raises(PathError):
        split_names(["=b"])


def test_tables_shorten_the_first_column_only():
    text = table(["name", "time"], [["void at::native::very_long_kernel_name<float>(" * 4, "1.00 ms"], ["x", "2 ns"]])
    assert max(map(len, text.splitlines())) <= 80
    assert "…" in text and text.splitlines()[1].endswith("1.00 ms")


def test_numbers_are_never_shortened():
    text = free_table(["identifier", "text"], [[1_759_000_000_000_000_000, "x" * 99], [None, None]], 40)
    assert "1759000000000000000" in text and "NULL" in text and "…" in text
    assert max(map(len, text.splitlines())) <= 40


def test_clip_keeps_both_ends():
    assert clip("abcdefghij", 5) == "ab…ij" and clip("abc", 3) == "abc"


def test_wrap_keeps_a_number_with_its_unit():
    for width in range(20, 79):
        lines = wrap("x" * width + " 309 us of 100 %, 6 × 385 us").splitlines()
        assert not any(line.endswith(("309", "100", "6 ×", "6", "385")) for line in lines)


def test_tunnel_command_only_over_ssh():
    assert tunnel_command(3001, {}) is None
    assert (
        tunnel_command(3001, {"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22", "USER": "u"})
        == "ssh -N -L 3001:127.0.0.1:3001 u@6.7.8.9"
    )


@pytest.mark.parametrize(
    ("ratio", "text"), [(6.0123, "6.01×"), (0.789, "0.79×"), (0.00328, "0.00328×"), (305.4, "305×"), (0, "0.00×")]
)
def test_a_ratio_is_never_zero_for_something(ratio, text):
    assert format_ratio(ratio) == text
