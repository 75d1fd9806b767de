"""A port of an asyncio server: taken, and told in run/ ("host port", one line), for the case that
it was chosen by the system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from omq.base import side_files
from omq.base.errors import PortInUse


async def listen(protocol: Callable[[], asyncio.Protocol], host: str, port: int, *, key: str,
                 backlog: int) -> asyncio.Server:
    """PortInUse with the `key` of omq.conf that says the port."""
    try:
        return await asyncio.get_running_loop().create_server(protocol, host, port,
                                                              backlog=backlog)
    except OSError as error:
        raise PortInUse(address=host, port=port, reason=error.strerror or str(error),
                        key=key) from error


def announce(file: Path, server: asyncio.Server | None) -> tuple[str, int] | None:
    """Address and port in use, written to the file; without a server that of an earlier
    configuration goes."""
    if server is None:
        side_files.remove(file)
        return None
    host, port = server.sockets[0].getsockname()[:2]
    side_files.replace(file, f"{host} {port}\n".encode())
    return str(host), int(port)
