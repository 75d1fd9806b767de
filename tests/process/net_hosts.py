"""Hosts on a network of their own, which can be cut: network namespaces that end with the test.

The test itself is in the middle, at MIDDLE, with a bridge; each host is a process that sleeps in a
namespace, and a cable between the two. Programs are started on a host by `on`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests import needs

CLONE_NEWNET = 0x40000000
MIDDLE = "10.213.0.1"
_LIBC = ctypes.CDLL(None, use_errno=True)


class Hosts:
    """See the module."""

    def __init__(self) -> None:
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "middle", "type", "bridge")
        _ip("address", "add", f"{MIDDLE}/24", "dev", "middle")
        _ip("link", "set", "middle", "up")

    def add(self, name: str) -> str:
        """Its address."""
        host = self._hosts[name] = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        assert host.stdout is not None
        host.stdout.readline()
        address = f"10.213.0.{1 + len(self._hosts)}"
        cable = f"to-{name}"
        _ip("link", "add", "name", cable, "type", "veth", "peer", "name", "eth0", "netns",
            str(host.pid))
        _ip("link", "set", "dev", cable, "master", "middle", "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{address}/24", "dev",
                                                    "eth0"), ("link", "set", "eth0", "up")):
            subprocess.run([*self.on(name), "ip", *words], check=True)
        return address

    def on(self, name: str) -> list[str]:
        """Before the words of a program that runs there."""
        return ["nsenter", f"--net=/proc/{self._hosts[name].pid}/ns/net"]

    @staticmethod
    def cut(name: str) -> None:
        """Nothing gets there or comes from there, and nobody is told."""
        _ip("link", "set", "dev", f"to-{name}", "nomaster")

    @staticmethod
    def join(name: str) -> None:
        """It is whole again."""
        _ip("link", "set", "dev", f"to-{name}", "master", "middle")

    def end(self) -> None:
        for host in self._hosts.values():
            host.kill()
            host.wait()
            assert host.stdout is not None
            host.stdout.close()


@contextmanager
def hosts() -> Iterator[Hosts]:
    """For this thread, and what it starts; skips where there are no namespaces."""
    needs.need_hosts()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.unshare(CLONE_NEWNET):
            import pytest

            pytest.skip(needs.NO_HOSTS)
        made = None
        try:
            made = Hosts()
            yield made
        finally:
            if made is not None:
                made.end()
            if _LIBC.setns(home, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
