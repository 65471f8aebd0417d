"""A client that talks to the application in process."""

import asyncio

import httpx
import pytest


class Client:
    """Blocking `get` over the ASGI interface (starlette's own TestClient wants a second HTTP library)."""

    def __init__(self, app):
        self.app = app

    def get(self, path, headers=None):
        async def ask():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture(scope="session")
def client_of():
    """Makes a client for an application."""
    return Client
