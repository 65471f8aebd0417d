"""A client that hangs up leaves no work behind; other clients are answered meanwhile."""

import asyncio
import threading

import pytest
from neuronscope.analysis import Profile, catalog
from neuronscope.server.app import create_app

ENDLESS = "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b"


@pytest.fixture
def slow(build_tables, rmsnorm, monkeypatch):
    """An application one of whose analyses takes hours, and an event that is set when it has ended."""
    begun, ended = threading.Event(), threading.Event()

    def endless(profile, name, selected=None):
        begun.set()
        try:
            return profile.rows(ENDLESS)
        finally:
            ended.set()

    monkeypatch.setattr(catalog, "analyse", endless)
    return create_app([Profile("naive", build_tables(rmsnorm))]), begun, ended


def test_hanging_up_ends_the_sql(slow, wait_for):
    application, begun, ended = slow

    async def ask():
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        path = "/api/profiles/naive/analyses/insights"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
                 "headers": [], "http_version": "1.1", "root_path": "", "scheme": "http"}  # fmt: skip
        asking = asyncio.ensure_future(application(scope, receive, send))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        assert not ended.is_set()
        gone.set()
        await asyncio.wait({asking}, timeout=30)
        assert asking.done()

    wait_for(ask())
    assert ended.is_set()
