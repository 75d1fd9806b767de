"""The way from `omq.connect` to an amqp.server, for who names a URL; the library of AMQP is loaded
then.

Errors: ExtraMissing, BadArgument, RemoteLost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from omq.base import names
from omq.base.errors import ExtraMissing
from omq.ipc import arguments

if TYPE_CHECKING:
    from omq.ipc.client import Client

SCHEMES: Final = ("amqp://", "amqps://")


def is_url(where: object) -> bool:
    """Whether this names a server, and not a directory."""
    return isinstance(where, str) and where.startswith(SCHEMES)


def remote_client(url: str, name: str, timeout_s: float) -> Client:
    """To its callers it is a Client; what of one it has not is NotRemote."""
    try:
        from omq.ipc.remote.connection import RemoteConnection
    except ModuleNotFoundError as error:
        if error.name not in ("proton", "cproton"):
            raise
        raise ExtraMissing(package="python-qpid-proton", command="a connection by AMQP",
                           extra="omq-suite[amqp]") from error
    made = RemoteConnection(url, names.check_client_name(arguments.text(name, "name")),
                            arguments.seconds(timeout_s, "timeout_s"))
    return cast("Client", made)
