"""The JVM's classes in a file: who makes it, whom it is trusted from, what a killed one leaves. No
JVM runs here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from omqtools.omqspark.jvm_classes import ARCHIVES_KEPT, PREFIX, ClassArchive, class_archive
from omqtools.omqspark.session import ARROW, CONF, DEFAULTS, NO_CONF, _environment


class Ended:
    """A gateway whose JVM ends so, and writes what it was asked for."""

    def __init__(self, writes: Path | None, code: int = 0) -> None:
        self.writes, self.code, self.shut = writes, code, False
        self.proc = self.stdin = self

    def shutdown(self) -> None:
        self.shut = True

    def close(self) -> None:
        assert self.shut
        if self.writes is not None:
            self.writes.write_bytes(b"classes")

    def wait(self, _limit: float) -> int:
        return self.code


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java, and a folder that is nobody else's."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    return {"JAVA_HOME": str(tmp_path / "java"), "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "HOME": "/nowhere"}


def archive(place: dict[str, str]) -> ClassArchive:
    found = class_archive(place)
    assert found is not None
    return found


def test_one_makes_it_and_the_next_maps_it(place: dict[str, str]) -> None:
    one, other = archive(place), archive(place)
    assert one.java(make=False) == ""
    assert f"-XX:ArchiveClassesAtExit={one.hidden} " in one.java(make=True)
    assert other.java(make=True) == "", "one at a time"
    assert not one.there
    one.end(Ended(one.hidden))
    assert f"-XX:SharedArchiveFile={one.path} " in archive(place).java(make=True)
    other.end(None)  # which had nothing to make
    assert [path.name for path in one.path.parent.glob(".*")] == []


@pytest.mark.parametrize(("written", "code"), [(False, 0), (True, 1)])
def test_a_jvm_that_ended_badly_leaves_none(place: dict[str, str], written: bool, code: int  # noqa: FBT001
                                            ) -> None:
    one = archive(place)
    one.java(make=True)
    one.end(Ended(one.hidden if written else None, code))
    assert not one.there
    (one.path.parent / f".{PREFIX}killed.jsa.new").touch()
    again = archive(place)
    assert again.java(make=True)
    assert list(one.path.parent.glob(".*.new")) == []
    again.end(Ended(again.hidden))
    assert again.there


def test_another_java_has_another_and_old_ones_go(place: dict[str, str]) -> None:
    names = set()
    for number in range(ARCHIVES_KEPT + 2):
        os.utime(Path(place["JAVA_HOME"], "bin", "java"), (number, number))
        one = archive(place)
        one.java(make=True)
        one.end(Ended(one.hidden))
        os.utime(one.path, (number, number))
        names.add(one.path.name)
    assert len(names) == ARCHIVES_KEPT + 2
    assert len(list(one.path.parent.glob("*.jsa"))) == ARCHIVES_KEPT
    assert one.there


def test_none_where_another_could_change_it(place: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o777)
    (tmp_path / "cache").chmod(0o777)
    assert class_archive(place) is None
    (tmp_path / "cache").chmod(0o700)
    assert class_archive(place) is not None
    (tmp_path / "cache" / "omq").chmod(0o1777)
    assert class_archive(place) is None, "another's file could be there already"
    told = {**place, "CACHE_DIRECTORY": str(tmp_path / "unit")}
    assert archive(told).path.parent == tmp_path / "unit"
    (tmp_path / "a file").touch()
    for where in ("relative", str(tmp_path / "a file" / "below"), str(tmp_path / "a space")):
        assert class_archive({**place, "CACHE_DIRECTORY": where}) is None, where
    assert class_archive({**place, "JAVA_HOME": str(tmp_path / "gone")}) is None


@pytest.mark.parametrize(("own", "expected"), [
    ({}, "-Dlog4j2.configurationFile="), ({"SPARK_CONF_DIR": "/etc/spark"}, ""),
    ({"PYSPARK_SUBMIT_ARGS": "--master local pyspark-shell"}, "")])
def test_options_of_ones_own_stay(monkeypatch: pytest.MonkeyPatch, own: dict[str, str],
                                  expected: str) -> None:
    """Spark's folder of settings must not be among the classes of a JVM that keeps them; who has
    one, or options, means it."""
    for name in ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    _environment(dict(DEFAULTS), "-XX:Any")
    said: dict[str, Any] = dict(os.environ)
    assert (expected and f"'{expected}" in said["PYSPARK_SUBMIT_ARGS"]) or not expected
    assert ("-XX:Any" in said["PYSPARK_SUBMIT_ARGS"]) is (not own)
    assert (ARROW in said["PYSPARK_SUBMIT_ARGS"]) is (not own)
    assert said["SPARK_CONF_DIR"] == own.get("SPARK_CONF_DIR", str(
        CONF if own else NO_CONF))
    assert not NO_CONF.exists()
