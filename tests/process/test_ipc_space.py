"""A test that shares its System V namespace counts its own objects, and all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sysv_ipc

from omq.base.paths import SpoolPaths
from omq.ipc.server.objects import ObjectList
from tests.process import ipc_space

OWN, COMMON = "own", "common"


@pytest.mark.parametrize("which", [OWN, COMMON])
def test_what_others_make_meanwhile_does_not_count(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    own = which == OWN
    if not own:
        monkeypatch.setattr(ipc_space, "CLONE_NEWIPC", -1)  # the kernel refuses
    with ipc_space.ipc_space() as space:
        if own and not space.own:
            pytest.skip("an IPC namespace of its own needs root")
        assert space.own is own
        another = 2**31 - 1 - os.getpid() % 97
        foreign = None if own else sysv_ipc.Semaphore(another, sysv_ipc.IPC_CREX)
        paths = SpoolPaths(tmp_path)
        paths.run.mkdir(parents=True)
        mine = ObjectList(paths).make("sem", lambda key: sysv_ipc.Semaphore(key, sysv_ipc.IPC_CREX))
        try:
            assert space.objects() == {("sem", mine.id)}
        finally:
            mine.remove()
            if foreign is not None:
                foreign.remove()
        assert space.objects() == set()
