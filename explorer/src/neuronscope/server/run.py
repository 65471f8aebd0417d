"""Bind a port, say where, serve until interrupted."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence

import uvicorn

from neuronscope.analysis.profile import Profile
from neuronscope.formats.errors import NeuronscopeError
from neuronscope.server.app import create_app
from neuronscope.server.guard import LOOPBACK, Guard
from neuronscope.server.sources import Sources
from neuronscope.server.uploads import DEFAULT_LIMIT_BYTES
from neuronscope.store import Store

__all__ = ["ServeError", "bind", "is_loopback", "serve", "tunnel_command", "url"]

_TRIES = 50


class ServeError(NeuronscopeError, OSError):
    """No port could be bound."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket on `port` or the next free one above it; 0 takes any.

    Raises:
        ServeError: the host is unknown, or none of the ports is free.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ServeError(f"--host {host}: {error.strerror or error}") from None
    last = port if port == 0 else min(port + _TRIES, 65_535)
    for candidate in range(port, last + 1):
        server = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address[0], candidate, *address[2:]))
            server.listen(128)
        except OSError as error:
            server.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                continue
            raise ServeError(f"--host {host} --port {candidate}: {error.strerror}") from None
        return server
    raise ServeError(f"ports {port} to {last} on {host} are all taken or not allowed. Give another one with --port")


def url(server: socket.socket) -> str:
    """The address a browser on this machine opens."""
    host, port = server.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def tunnel_command(port: int, environment: dict[str, str] | None = None) -> str | None:
    """The command to run on the user's own machine when this is an SSH session, else None."""
    values = os.environ if environment is None else environment
    connection = values.get("SSH_CONNECTION", "").split()
    if not connection:
        return None
    host = connection[2] if len(connection) == 4 else "THIS_HOST"
    user = values.get("USER") or values.get("LOGNAME") or "USER"
    return f"ssh -N -L {port}:127.0.0.1:{port} {user}@{host}"


def is_loopback(server: socket.socket) -> bool:
    """Only this machine reaches the address the socket is bound to."""
    return ipaddress.ip_address(str(server.getsockname()[0]).partition("%")[0]).is_loopback


def serve(
    profiles: Sequence[Profile],
    server: socket.socket,
    on_ready: Callable[[], None] | None = None,
    token: str | None = None,
    store: Store | None = None,
    upload_limit_bytes: int = DEFAULT_LIMIT_BYTES,
    sources: Sources | None = None,
) -> None:
    """Serve until interrupted (Ctrl-C, SIGTERM); on loopback only to requests that name this machine (`Guard`).

    Args:
        profiles: what to serve.
        server: from `bind`.
        on_ready: called before the first request is taken.
        token: what clients must know; None: nothing.
        store: the library that takes uploads; None: none are taken.
        upload_limit_bytes: of one upload.
        sources: where source code is that may be shown.
    """
    hosts = LOOPBACK | {str(server.getsockname()[0])} if is_loopback(server) else None
    application = create_app(profiles, store, upload_limit_bytes, sources)
    config = uvicorn.Config(
        Guard(application, hosts, token),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    if on_ready is not None:
        on_ready()
    try:
        uvicorn.Server(config).run(sockets=[server])
    finally:
        if application.state.uploads is not None:
            application.state.uploads.close()
