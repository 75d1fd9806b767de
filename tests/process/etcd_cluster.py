"""Three real members of etcd, started and stopped by their pids; each may be killed, stopped, and
begun again with its data or without."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from base64 import b64decode, b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from tests.process.processes import WAIT_S
from tests.waiting import until

PROGRAM = "etcd"
CALL_S = 2


class Cluster:
    """See the module. `host`: where they are reached; `tls`: a folder with own.pem (certificate and
    key of members and of whoever asks) and ca.pem: clients and members show a certificate."""

    def __init__(self, folder: Path, members: int = 3, host: str = "127.0.0.1",
                 tls: Path | None = None) -> None:
        self.folder, self.host, self.tls = folder, host, tls
        self.scheme = "https" if tls else "http"
        folder.mkdir()
        ports = _free_ports(2 * members)
        self.clients, self._peers = ports[:members], ports[members:]
        self._made = "new"
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * members

    @property
    def urls(self) -> str:
        """As `standby_lease` has it."""
        return ", ".join(f"{self.scheme}://{self.host}:{port}" for port in self.clients)

    def start(self, *which: int) -> None:
        """Those; all of them, if none is named, and until they have a leader."""
        for i in which or range(len(self.clients)):
            peer = f"{self.scheme}://{self.host}:{self._peers[i]}"
            here = f"{self.scheme}://{self.host}:{self.clients[i]}"
            all_of = ",".join(f"m{n}={self.scheme}://{self.host}:{port}"
                              for n, port in enumerate(self._peers))
            with open(self.folder / f"m{i}.log", "ab") as log:
                self.processes[i] = subprocess.Popen(
                    [PROGRAM, "--name", f"m{i}", "--data-dir",
                     str(self.folder / f"m{i}"), "--listen-peer-urls", peer,
                     "--initial-advertise-peer-urls", peer, "--listen-client-urls", here,
                     "--advertise-client-urls", here, "--initial-cluster", all_of,
                     "--initial-cluster-state", self._made, "--heartbeat-interval", "100",
                     "--election-timeout", "1000", *self._certificates()], stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL)
        if not which:
            until(self.serves, self.said)

    def _certificates(self) -> list[str]:
        if self.tls is None:
            return []
        own, ca = self.tls / "own.pem", self.tls / "ca.pem"
        return [word for side in ("", "peer-") for word in (
            f"--{side}cert-file={own}", f"--{side}key-file={own}", f"--{side}client-cert-auth",
            f"--{side}trusted-ca-file={ca}")]

    def kill(self, *which: int) -> None:
        for i in which or range(len(self.clients)):
            process, self.processes[i] = self.processes[i], None
            if process is not None:
                process.kill()
                process.wait(WAIT_S)

    def stop(self, which: int) -> None:
        """SIGSTOP: it says nothing any more."""
        process = self.processes[which]
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)

    def forget(self) -> None:
        """All of it is begun again without its data."""
        self.kill()
        for i in range(len(self.clients)):
            shutil.rmtree(self.folder / f"m{i}")
        self.start()

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("m*.log"))

    def post(self, i: int, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        line = self._line(i)
        try:
            line.request("POST", path, json.dumps(body), {"Authorization": token} if token else {})
            found: dict[str, Any] = json.loads(line.getresponse().read())
            return found
        finally:
            line.close()

    def _line(self, i: int) -> HTTPConnection:
        if self.tls is None:
            return HTTPConnection(self.host, self.clients[i], timeout=CALL_S)
        context = ssl.create_default_context(cafile=str(self.tls / "ca.pem"))
        context.load_cert_chain(str(self.tls / "own.pem"))
        return HTTPSConnection(self.host, self.clients[i], timeout=CALL_S, context=context)

    def serves(self) -> bool:
        """Has it a leader, and does each member that runs answer?"""
        try:
            for i, process in enumerate(self.processes):
                if process is not None and "kvs" not in self.post(i, "/v3/kv/range", {
                        "key": _b("x")}) and "header" not in self.post(
                            i, "/v3/kv/range", {"key": _b("x")}):
                    return False
        except (OSError, ValueError, HTTPException):
            return False
        return True

    def leader(self) -> int:
        """Which of the members leads."""
        for i, process in enumerate(self.processes):
            if process is None:
                continue
            found = self.post(i, "/v3/maintenance/status", {})
            if found.get("leader") and found["leader"] == found["header"]["member_id"]:
                return i
        raise AssertionError("nobody leads")

    def key(self, instance: bytes, name: str, token: str = "") -> dict[str, Any] | None:
        """What the key of this instance says; None: it is not there."""
        found = self.post(0 if self.processes[0] else 1, "/v3/kv/range", {
            "key": _b(f"omq/{instance.hex()}/{name}")}, token).get("kvs")
        return json.loads(b64decode(found[0]["value"])) if found else None

    def put(self, instance: bytes, name: str, value: dict[str, Any]) -> None:
        """Somebody writes that key."""
        self.post(0, "/v3/kv/put", {"key": _b(f"omq/{instance.hex()}/{name}"),
                                    "value": _b(json.dumps(value))})

    def remove(self, instance: bytes, name: str) -> None:
        """Somebody removes it."""
        self.post(0, "/v3/kv/deleterange", {"key": _b(f"omq/{instance.hex()}/{name}")})

    def end(self) -> None:
        self.kill()


def _free_ports(count: int) -> list[int]:
    lines = [socket.create_server(("", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in lines]
    finally:
        for each in lines:
            each.close()


def _b(text: str) -> str:
    return b64encode(text.encode()).decode()
