"""Where a connection comes from, as limits count it: an address or, on this host's loopback, the
account that connected. There all have one address, and one account would use up everybody's limit.

The kernel tells the owner of a socket by its two ends: an exact look-up of sock_diag(7), which
costs the same however many sockets there are, as the list in /proc/net/tcp does not. A socket that
is gone, is in another network namespace, or an answer that does not come: the address alone.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from contextlib import suppress
from typing import Any, Final, Protocol

_SOCK_DIAG: Final = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY: Final = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST: Final = 1  # NLM_F_REQUEST, without NLM_F_DUMP: one socket
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ASKED: Final = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
_ID: Final = struct.Struct("!HH16s16s")  # inet_diag_sockid: ports and addresses of both ends
_ANY: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface, INET_DIAG_NOCOOKIE
_TOLD: Final = struct.Struct("=xB2x48x12xI")  # inet_diag_msg: state and uid of it
_OWNED: Final = frozenset({1, 8})
"""TCP_ESTABLISHED and TCP_CLOSE_WAIT: states of a socket that somebody has. Of one that its owner
has closed the kernel says uid 0."""
_ANSWER_S: Final = 0.1
"""The kernel answers before `send` returns; this is for one that does not."""


class SocketNames(Protocol):
    """As much of a socket as is asked; asyncio has one of its own for its transports."""

    def getsockname(self) -> Any: ...

    def getpeername(self) -> Any: ...


def source_of(connection: SocketNames | None) -> str:
    """`192.0.2.7`, `2001:db8::/64` (who has an address of IPv6 has all of its network), `127.0.0.1
    uid 1000`, or `local` for a socket that is not of the internet. Raises nothing: of a connection
    that has ended already, or has no socket, `?`."""
    if connection is None:
        return "?"
    try:
        mine, theirs = connection.getsockname(), connection.getpeername()
    except OSError:
        return "?"
    if not isinstance(theirs, tuple):
        return "local"
    if _plain(theirs[0]).is_loopback or mine[0] == theirs[0]:
        uid = owner(theirs[:2], mine[:2])
        return f"{_plain(theirs[0])}" if uid is None else f"{_plain(theirs[0])} uid {uid}"
    return network_of(theirs[0])


def network_of(address: str) -> str:
    """An address as limits count it: of IPv6 its network. Raises ValueError for what is none."""
    plain = _plain(address)
    if plain.version == 6 and not plain.is_loopback:
        return str(ipaddress.ip_network((plain, 64), strict=False))
    return str(plain)


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def owner(here: tuple[str, int], there: tuple[str, int]) -> int | None:
    """The uid of the socket of this host that is connected from `here` to `there`; None: the kernel
    does not say."""
    family = socket.AF_INET6 if ":" in here[0] else socket.AF_INET
    try:
        ends = _ID.pack(here[1], there[1], *(
            socket.inet_pton(family, each[0].partition("%")[0]).ljust(16, b"\0")
            for each in (here, there)))
        body = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + _ANY
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC,
                           _SOCK_DIAG) as kernel:
            kernel.settimeout(_ANSWER_S)
            kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
            answer = kernel.recv(4096)
    except OSError:
        return None
    with suppress(struct.error):
        if _HEADER.unpack_from(answer)[1] == _BY_FAMILY:
            state, uid = _TOLD.unpack_from(answer, _HEADER.size)
            return int(uid) if state in _OWNED else None
    return None
