"""Asynchronous code from ordinary tests, and a client that talks to the application in process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest


def wait_for(coroutine):
    """The coroutine's result, from a thread of its own: the browser tests leave an event loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session", name="wait_for")
def wait_for_fixture():
    """Runs a coroutine to its end; tests call no asyncio.run of their own."""
    return wait_for


class Client:
    """Blocking requests over the ASGI interface (starlette's own TestClient wants a second HTTP library)."""

    def __init__(self, app):
        self.app = app

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, **given):
        return self.request("POST", path, **given)

    def request(self, method, path, **given):
        async def ask():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **given)

        return wait_for(ask())


@pytest.fixture(scope="session")
def client_of():
    """Makes a client for an application."""
    return Client
