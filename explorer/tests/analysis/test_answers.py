"""Answers about everything are worked out once and kept; questions that nobody waits for any more are stopped."""

import threading
import time

import pytest
from neuronscope.analysis import arrays, diff, top
from neuronscope.analysis.catalog import ANALYSES, analyse
from neuronscope.analysis.profile import Profile
from neuronscope.analysis.stop import Stop, StoppedError, stoppable


@pytest.fixture
def folder(build_tables, rmsnorm, write_tables, tmp_path, monkeypatch):
    """A profile as the library keeps it, small as it is."""
    monkeypatch.setattr(arrays, "_LEAST_BYTES", 1)
    path = write_tables(build_tables(rmsnorm), tmp_path / "naive")
    (path / "manifest.json").write_text("{}")
    return path


def everything(profile):
    """What is kept, as every surface gets it."""
    whole = profile.whole_range
    return (
        [analyse(profile, name, whole).to_dict() for name in ANALYSES],
        [top.top(profile, by, 20, whole).to_dict() for by in top.ATTRIBUTES],
        profile.summary(whole).to_dict(),
        diff.diff(profile, profile).to_dict(),
    )


def test_kept_answers_equal_those_that_were_worked_out(folder, monkeypatch):
    made = everything(Profile("naive", folder))
    again = Profile("naive", folder)
    asked = []
    plain = Profile.rows
    monkeypatch.setattr(Profile, "rows", lambda self, text, *rest: asked.append(text) or plain(self, text, *rest))
    assert everything(again) == made
    assert not [text for text in asked if "FROM step_split" in text or "FROM op_paths" in text or "work_by(" in text]


def test_an_answer_goes_with_the_table_it_was_made_from(folder, write_tables, build_tables, rmsnorm):
    before = Profile("naive", folder).operators(Profile("naive", folder).whole_range)
    write_tables(build_tables(rmsnorm[:1]), folder)
    after = Profile("naive", folder)
    assert after.operators(after.whole_range).total.executions < before.total.executions


def test_sql_that_runs_is_stopped_from_another_thread(folder):
    profile, stop, ended = Profile("naive", folder), Stop(), threading.Event()
    problems = []

    def work():
        with stoppable(stop):
            try:
                profile.rows("SELECT count(*) FROM range(1000000) a, range(1000000) b")
            except StoppedError as error:
                problems.append(error)
        ended.set()

    threading.Thread(target=work, daemon=True).start()
    deadline = time.monotonic() + 30
    while not ended.wait(0.02) and time.monotonic() < deadline:
        stop.stop()
    assert problems


def test_what_was_stopped_begins_nothing_more(folder):
    profile, stop = Profile("naive", folder), Stop()
    stop.stop()
    with stoppable(stop), pytest.raises(StoppedError):
        profile.rows("SELECT 1")
    assert profile.rows("SELECT 1 AS one") == [{"one": 1}]
