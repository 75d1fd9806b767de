"""Are the bodies of the messages there? A journal or store file that is gone or cut, and a
container that is gone or of another length, are reported at the start, not only by the readers of
their messages. What is in them is checked when a body is read.

One look for each file; for each container one short read (the payload names it) and one look, in
the order in which the payloads lie. Messages on no queue are left out of the latter: idel.server
removes a container before its record.

`count` of a finding is the number of messages: whatever holds a body, each message that has lost it
counts one, here as in omqrecover. Nothing is written. Errors: DiskError.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np

from omq.base.errors import BadItemRef, BodyUnavailable
from omq.base.paths import SpoolPaths
from omq.core.engine.state import CONTAINER, IDEL, Core
from omq.core.judge.cases import Case
from omq.core.judge.finding import Found
from omq.storage import durable
from omq.storage.containers import REF_BYTES, relative_path
from omq.storage.payloads import PayloadReader, payload_paths

_EVERY: Final = 1000  # containers between two words of progress
Progress = Callable[[str], None]


def missing_bodies(core: Core, paths: SpoolPaths, progress: Progress = lambda text: None
                   ) -> list[Found]:
    """A finding for each file that is missing or ends before a body in it does, and for each
    directory that lacks containers. The tables hold the messages of the pool, and nothing else
    yet."""
    return [*_files(core, paths), *_containers(core, paths, progress)]


def _files(core: Core, paths: SpoolPaths) -> list[Found]:
    v = core.t.v
    used = np.flatnonzero(v["m_qpool"][: core.t.messages.high])
    words, places = np.unique(v["m_location"][used], return_inverse=True)
    last = v["m_offset"][used].astype(np.int64) + v["m_length"][used]
    ends = np.zeros(len(words), dtype=np.int64)
    np.maximum.at(ends, places, last)
    out = []
    for place, (word, end) in enumerate(zip(words.tolist(), ends.tolist(), strict=True)):
        candidates = payload_paths(paths, word)
        sizes = [found.st_size for path in candidates if (found := durable.status(path))]
        if candidates and (not sizes or max(sizes) < end):
            mine = last[places == place]
            lost = int(np.count_nonzero(mine > max(sizes))) if sizes else len(mine)
            state = f"cut: {max(sizes)} bytes, a body ends at {end}" if sizes else "missing"
            out.append(Found(
                Case.BODY_DAMAGED, f"{candidates[0].parent.name}/{candidates[0].name}",
                f"{state}; {lost} messages have their bodies in it", count=lost))
    return out


def _containers(core: Core, paths: SpoolPaths, progress: Progress) -> list[Found]:
    v, t = core.t.v, core.t
    high = t.messages.high
    named = np.flatnonzero((v["m_qpool"][:high] != 0) & (v["m_flags"][:high] & CONTAINER != 0))
    ordered = named[np.lexsort((v["m_offset"][named], v["m_location"][named]))].tolist()
    lost: dict[str, list[str]] = {}
    reader = PayloadReader(paths)
    try:
        for done, slot in enumerate(ordered):
            if done % _EVERY == 0:
                progress(f"looking for containers: {100 * done // len(ordered)} %")
            if any(t.e_queue[e] != IDEL for e in t.entries_of(slot)):
                _look(core, paths, reader, slot, lost)
    finally:
        reader.close()
    return [Found(Case.CONTAINER_DAMAGED, folder, f"{len(each)} containers are gone or not as long "
                  f"as they were, the first: {each[0]}", count=len(each))
            for folder, each in sorted(lost.items())]


def _look(core: Core, paths: SpoolPaths, reader: PayloadReader, slot: int,
          lost: dict[str, list[str]]) -> None:
    t = core.t
    with suppress(BodyUnavailable, BadItemRef):  # the file is listed; a wrong one, when read
        payload = reader.read(t.m_location[slot], t.m_offset[slot], t.m_length[slot])
        relative = relative_path(payload[-REF_BYTES:].decode("ascii", "replace"))
        found = durable.status(paths.root / relative)
        if found is None or found.st_size != t.m_size[slot]:
            folder, _, name = relative.rpartition("/")
            lost.setdefault(folder, []).append(f"{name} (message {t.m_qpool[slot]})")
