"""Servers of object stores that others keep, on loopback, with what tests do to them: SeaweedFS
(S3; keys are made and revoked) and Azurite (Azure blobs). Each begins with a bucket `archive`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.process.processes import WAIT_S
from tests.waiting import until

ACCOUNT = "devstoreaccount1"  # Azurite's own, in its documentation
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
RIGHTS = "Read,Write,List"


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                for _ in range(count)]


@contextmanager
def _running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        child = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


class Weed:
    """A whole SeaweedFS: master, volume server, filer, S3."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._ports, self.log = ports, folder / "weed.log"
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
                 "filer.port.grpc", "s3.port", "s3.port.grpc")
        self.words = ["weed", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}",
                      "-filer", "-s3", "-s3.port.iceberg=0", "-s3.autoCreateBucket=false",
                      "-volume.max=8", "-master.volumeSizeLimitMB=64", "-metricsPort=0",
                      *(f"-{name}={port}" for name, port in zip(names, ports, strict=True))]

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "SHIP", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
                "AWS_ENDPOINT": f"http://127.0.0.1:{self._ports[6]}"}

    def shell(self, *lines: str) -> str:
        done = subprocess.run(
            ["weed", "shell", "-master", f"127.0.0.1:{self._ports[0]}.{self._ports[1]}"],
            input="\n".join(lines) + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=WAIT_S, check=False)
        return done.stdout

    def serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.environment['AWS_ENDPOINT']}/status",
                                        timeout=WAIT_S):
                return True
        except OSError:
            return False

    def grant(self, rights: str = RIGHTS) -> None:
        said = self.shell(f"s3.configure -user ship -access_key SHIP -secret_key secret "
                          f"-buckets archive -actions {rights} -apply")
        assert '"accessKey":  "SHIP"' in said, said

    def revoke(self) -> None:
        self.shell("s3.configure -user ship -delete -apply")


@contextmanager
def seaweed(folder: Path) -> Iterator[Weed]:
    """At s3://archive/..."""
    folder.mkdir()
    made = Weed(folder, free_ports(8))
    with _running(made.words, made.log):
        until(made.serves, made.log.read_text)
        until(lambda: "archive" in made.shell("s3.bucket.create -name archive", "s3.bucket.list"),
              made.log.read_text)
        made.grant()
        yield made


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """At az://archive/...; the environment for it."""
    folder.mkdir()
    (port,) = free_ports(1)
    log = folder / "azurite.log"
    words = ["azurite-blob", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location",
             str(folder), "--skipApiVersionCheck", "--disableTelemetry"]
    with _running(words, log):
        until(lambda: "successfully listens" in log.read_text(), log.read_text)
        _container(port)
        yield {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
               "AZURE_ALLOW_HTTP": "true", "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}"}


def _container(port: int) -> None:
    """Make one: obstore does not."""
    now, version = formatdate(usegmt=True), "2021-08-06"
    signed = "\n".join(["PUT", *[""] * 11, f"x-ms-date:{now}", f"x-ms-version:{version}",
                        f"/{ACCOUNT}/{ACCOUNT}/archive", "restype:container"]).encode()
    digest = hmac.new(base64.b64decode(KEY), signed, hashlib.sha256).digest()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/{ACCOUNT}/archive?restype=container", method="PUT",
        headers={"x-ms-date": now, "x-ms-version": version,
                 "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"})
    with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
        assert answer.status == 201

