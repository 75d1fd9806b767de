"""Where a connection comes from, as limits count it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from omq.services.network.source import network_of, owner, source_of


@contextmanager
def pair(family: socket.AddressFamily, host: str, *, uid: int = -1) -> Iterator[socket.socket]:
    """The accepting end of a connection on loopback; the other one is of an account's, by default
    of this process'."""
    with closing(socket.create_server((host, 0), family=family)) as listening:
        there = listening.getsockname()
        caller = socket.socket(family)
        if uid >= 0:
            os.fchown(caller.fileno(), uid, -1)  # the kernel tells who owns the socket
        caller.connect(there)
        accepted, _ = listening.accept()
        with caller, accepted:
            yield accepted


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"),
                                              (socket.AF_INET6, "::1")])
def test_on_loopback_accounts_are_told_apart(family: socket.AddressFamily, host: str) -> None:
    try:
        with pair(family, host) as mine:
            assert source_of(mine) == f"{host} uid {os.getuid()}"
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_account_is_that_of_the_socket() -> None:
    with pair(socket.AF_INET, "127.0.0.1", uid=1) as mine:
        assert source_of(mine) == "127.0.0.1 uid 1"


def test_an_address_of_ipv4_that_comes_by_a_socket_of_ipv6_is_one_of_ipv4() -> None:
    try:
        listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError) as error:
        pytest.skip(f"no sockets for both families here: {error}")
    with listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
        accepted, _ = listening.accept()
        with accepted:
            assert source_of(accepted) == f"127.0.0.1 uid {os.getuid()}"


def test_who_has_hung_up_is_nobody_and_never_root() -> None:
    """The kernel says uid 0 of a socket that is only a memory of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        with socket.create_connection(listening.getsockname()) as caller:
            here = caller.getsockname()
            accepted, _ = listening.accept()
        accepted.recv(1)  # it has ended
        with accepted:
            assert owner(here, listening.getsockname()) is None
            assert source_of(accepted) == "127.0.0.1"


class Ends:
    """A connection between two addresses."""

    def __init__(self, mine: str, theirs: str) -> None:
        self._mine, self._theirs = mine, theirs

    def getsockname(self) -> tuple[str, int]:
        return self._mine, 80

    def getpeername(self) -> tuple[str, int]:
        return self._theirs, 40_000


@pytest.mark.parametrize(("theirs", "told"), [
    ("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::/64"),
    ("2001:db8::ffff:1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64"),
    ("::ffff:192.0.2.7", "192.0.2.7")])
def test_an_address_and_a_network_of_ipv6(theirs: str, told: str) -> None:
    assert source_of(Ends("198.51.100.1", theirs)) == told
    assert network_of(theirs) == told


def test_a_socket_that_is_gone_or_is_no_internet() -> None:
    left, right = socket.socketpair()
    with right:
        assert source_of(left) == "local"
        left.close()
        assert source_of(left) == source_of(None) == "?"


@pytest.mark.parametrize("answer", [b"", b"\x01", b"\0" * 20, b"\xff" * 400])
def test_a_kernel_that_answers_nonsense_or_not_at_all(
        answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def speaks() -> None:
        kernel.recv(4096)
        if answer:
            kernel.send(answer)

    thread = threading.Thread(target=speaks)
    thread.start()
    monkeypatch.setattr("omq.services.network.source.socket.socket", lambda *_: mine)
    with kernel:
        assert owner(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
        thread.join()


def test_a_kernel_that_gives_no_such_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> socket.socket:
        raise PermissionError(1, "AF_NETLINK is not allowed")

    monkeypatch.setattr("omq.services.network.source.socket.socket", refused)
    assert owner(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
