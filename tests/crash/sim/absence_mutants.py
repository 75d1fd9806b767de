"""Bugs that the absence layer must find: each takes away one check that a start makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from omq.core.judge import judge, presence
from omq.format.pool_contents import Content
from omq.storage.pool import PoolFiles

Patch = Callable[[], list[Any]]


@dataclass(frozen=True, slots=True)
class AbsenceMutant:
    """`part`: of the path of a fault that must become silent."""

    bug: str
    patches: Patch
    part: str
    life: str = "checkpoints"
    stopped: bool = True
    kind: str = ""  # of that fault, its beginning

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


def _nothing(*_: Any, **__: Any) -> list[Any]:
    return []


def _two_nothings(*_: Any, **__: Any) -> tuple[list[Any], list[Any]]:
    return [], []


def _without_sum(self: Content, other: Content) -> bool:
    return (self.slots, self.used) == (other.slots, other.used)


def _only_files(self: Content, other: Content) -> bool:
    return bool(self.used) == bool(other.used)


_possible = presence.pool_findings


def _but_one(control: Any, pool: PoolFiles, possible: list[Any]) -> list[Any]:
    return _possible(control, pool, possible)[1:]


MUTANTS: Final[dict[str, AbsenceMutant]] = {
    "no-contents": AbsenceMutant(
        "pool files are taken as they are", lambda: [
            mock.patch.object(judge, "pool_findings", _nothing)], "QP", kind="absent"),
    "no-record-counts": AbsenceMutant(
        "a pool file is there: that is enough", lambda: [
            mock.patch.object(Content, "like", _only_files)], "QP", kind="record"),
    "no-sum": AbsenceMutant(
        "a pool file has as many records as it should", lambda: [
            mock.patch.object(Content, "like", _without_sum)], "QP", kind="as at checkpoint",
        life="plain"),
    "not-every-file": AbsenceMutant(
        "one of the pool files is not compared", lambda: [
            mock.patch.object(judge, "pool_findings", _but_one)], "QP", kind="absent"),
    "no-newest": AbsenceMutant(
        "nobody asks whether the newest journal file is there", lambda: [
            mock.patch.object(presence, "_newest", _nothing)], ".jnl", stopped=False,
        life="groups", kind="absent"),
    "no-length": AbsenceMutant(
        "the last journal file may have any length", lambda: [
            mock.patch.object(presence, "_cut", _nothing)], ".jnl", stopped=False,
        life="groups", kind="cut"),
    "no-place": AbsenceMutant(
        "the journal may end before the checkpoint", lambda: [
            mock.patch.object(presence, "_before_checkpoint", _two_nothings)],
        ".jnl", stopped=False,
        life="rotation", kind="as at checkpoint"),
    "no-beginning": AbsenceMutant(
        "before the first checkpoint the journal may begin anywhere", lambda: [
            mock.patch.object(judge, "_beginning", _nothing)], ".jnl", stopped=False,
        life="groups", kind="absent"),
}
