"""The way from `omq.connect` to an amqp.server, for who names a URL; the library of AMQP is loaded
then.

Errors: ExtraMissing, BadArgument, RemoteLost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omq.base import names
from omq.base.errors import ExtraMissing
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.remote.connection import RemoteConnection

SCHEMES: Final = ("amqp://", "amqps://")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(where: object) -> bool:
    """Whether this names a server, and not a directory. BadArgument for a server of others."""
    if not isinstance(where, str) or not (found := _SCHEME.match(where)):
        return False
    if found[0] not in SCHEMES:
        raise arguments.wrong("spool", where, "it is a path, or a URL that begins with "
                              + " or ".join(SCHEMES))
    return True


def remote_client(url: str, name: str, timeout_s: float) -> RemoteConnection:
    """It has the methods of a Client; what of them it cannot do is NotRemote."""
    try:
        from omq.ipc.client.remote.connection import RemoteConnection
    except ModuleNotFoundError as error:
        if error.name not in ("proton", "cproton"):
            raise
        raise ExtraMissing(package="python-qpid-proton", command="a connection by AMQP",
                           extra="omq-suite[amqp]") from error
    return RemoteConnection(url, names.check_client_name(arguments.text(name, "name")),
                            arguments.seconds(timeout_s, "timeout_s"))
