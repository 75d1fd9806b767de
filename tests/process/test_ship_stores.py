"""The journal in real servers of object stores: SeaweedFS (S3) and Azurite (Azure blobs). What a
place needs of a store, everything back from there, rights that are revoked, a bucket that is away.
tests/process/test_ship.py has moto, and all the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omq.base.errors import Exit
from tests import needs
from tests.process.processes import WAIT_S
from tests.process.stores import Weed, azurite, seaweed
from tests.process.test_ship import Ship, everything_comes_back, made, put
from tests.waiting import until

__all__ = ["made"]

WHAT_IT_NEEDS = """
import json, sys
from omq.services.ship.places import place
at = place(sys.argv[1])
told = [at.create("a/1", b"one"), at.create("a/1", b"two"), at.create("a/3", b"x" * 3_000_000)]
told += [at.read("a/1").decode(), at.read("a/1", 2).decode(), at.read("a/2"), len(at.read("a/3"))]
told += [at.create(f"a/2{number}", b"") for number in range(3)]
told += [at.names("a/"), at.names("a/", "a/1", "a/3"), at.names("a/", before="a/20"), at.names("b")]
told.append(at.names("", "a/0"))
at.delete("a/1")
at.delete("a/1")
told.append(at.names(""))
print(json.dumps(told))
"""
ALL = ["a/1", "a/20", "a/21", "a/22", "a/3"]


def what_it_needs(url: str) -> None:
    """In a process of its own: obstore leaves threads and descriptors."""
    done = subprocess.run([sys.executable, "-c", WHAT_IT_NEEDS, f"{url}/needs"], text=True,
                          capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, False, True, "one", "on", None, 3_000_000, True, True,
                                       True, ALL, ALL[1:-1], ALL[:1], [], ALL,
                                       ALL[1:]]


@pytest.fixture
def weed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weed]:
    with seaweed(tmp_path / "weed") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with azurite(tmp_path / "azurite") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield


def stopped(ship: Ship) -> None:
    child = ship.children.pop()
    child.terminate()
    assert child.wait(WAIT_S) == 0, ship.log.read_text()


def once(ship: Ship, url: str) -> str:
    """What is said of a place that refuses."""
    done = ship.tool(*ship.at("omq", "ship", "run", "--once", "--to", url))
    assert done.returncode == Exit.NO_PERMISSION, done.stderr
    return done.stderr


@needs.weed
def test_s3(made: Callable[..., Ship], weed: Weed, tmp_path: Path) -> None:
    """Rights are revoked while it ships, and come back."""
    what_it_needs("s3://archive")
    ship = made("s3://archive/omq")
    assert "AccessDenied" in once(ship, "s3://elsewhere/omq"), "it tells nobody what it has"
    ship.run()
    put(ship, b"before")
    ship.shipped()
    weed.revoke()
    put(ship, b"meanwhile")
    until(lambda: "InvalidAccessKeyId" in ship.status()["error"], ship.log.read_text)
    assert "refuses: 403 Forbidden, InvalidAccessKeyId" in ship.status()["error"]
    refused = ship.restore(tmp_path / "then")
    assert refused.returncode == Exit.NO_PERMISSION and "InvalidAccessKeyId" in refused.stderr
    weed.grant()
    ship.shipped()
    said = ship.log.read_text()
    assert said.count("InvalidAccessKeyId") == 1 and "check the credentials" in said, said
    stopped(ship)
    weed.revoke()
    assert "InvalidAccessKeyId" in once(ship, ship.url)
    assert "refuses" in ship.status()["error"]
    weed.grant()
    everything_comes_back(ship, tmp_path / "restored", [b"before", b"meanwhile"])


@needs.azurite
def test_azure(made: Callable[..., Ship], blobs: None, tmp_path: Path,
               monkeypatch: pytest.MonkeyPatch) -> None:
    what_it_needs("az://archive")
    ship = made("az://archive/omq")
    put(ship, b"one")
    with monkeypatch.context() as wrong:
        wrong.setenv("AZURE_STORAGE_ACCOUNT_KEY", "QUJD")
        assert "refuses: 403 Forbidden, AuthorizationFailure" in once(ship, ship.url)
    ship.url = "az://elsewhere/omq"
    ship.run()
    until(lambda: "ContainerNotFound" in ship.status()["error"], ship.log.read_text)
    stopped(ship)
    ship.url = "az://archive/omq"
    ship.run()
    ship.shipped()
    stopped(ship)
    everything_comes_back(ship, tmp_path / "restored", [b"one"])
