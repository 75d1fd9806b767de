"""libFuzzer on every decoder and on whole recovery, where atheris is installed (it is no part of
the environment: pip install atheris).

    python -m tests.crash.daemons.atheris_fuzz [--seconds 600] [--target NAME]

The seconds are shared out over the targets, each in a process of its own. Bytes may be wrong and
still fit: where the first byte of an input is odd every checksum is right, because a CRC is no
signature. A decoder must return a finding or bounded data; recovery must end with an index that
agrees with itself, or with an error of ours. What breaks that is kept in build/crash.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

KEPT: Final = Path("build/crash")
PATCHES: Final = 8
CHECKED: Final = ("format.journal", "format.pool", "format.poolctrl", "format.double_write",
                  "format.store", "format.archive", "storage.archive_file", "core.redo.window",
                  "core.redo.changes")
RECOVERY: Final = "recovery"
Target = Callable[[bytes], Any]


@contextmanager
def _forged() -> Iterator[None]:
    """Every checksum fits."""
    from tests.crash.sim.mutants import any_crc

    with ExitStack() as stack:
        for name in CHECKED:
            stack.enter_context(mock.patch(f"omq.{name}.crc32c", any_crc))
        yield


def _either(target: Target) -> Target:
    """The first byte says whether checksums are judged."""
    def run(data: bytes) -> None:
        if data[:1] and data[0] & 1:
            with _forged():
                target(data[1:])
        else:
            target(data[1:])

    return run


def _decoders() -> dict[str, tuple[Target, bytes]]:
    from omq.format import archive, message, old_queue, property_values
    from omq.format.findings import Finding
    from omq.ipc.wire.outgoing import Outgoing
    from omq.storage.archive import cut, write
    from omq.storage.archive_file import open_archive, rebuild
    from omq.storage.journal_scan import scan_file
    from tests.unit.format import samples
    from tests.unit.format.test_hostile import CASES

    class Source(BytesIO):
        """As storage.archive_file reads."""

        def read(self, length: int | None = -1, offset: int = 0) -> bytes:
            self.seek(offset)
            return super().read(length)

        def size(self) -> int:
            return len(self.getvalue())

    def archived(data: bytes) -> None:
        found = open_archive(Source(data), "fuzz")
        if not isinstance(found, Finding) and found.header.journal_bytes < 1 << 22:
            rebuild(found, None)

    def values(data: bytes) -> None:
        texts = message.decode_properties(data)
        if not isinstance(texts, Finding):
            property_values.values_of(dict(texts))
            property_values.carried(texts)
            for name in texts:
                property_values.asked(texts, name)

    def queue(data: bytes) -> None:
        count = old_queue.decode_header(data)
        for number in range(min(count, 50) if isinstance(count, int) else 0):
            old_queue.decode_record(data, number)

    blocks = samples.journal_file_header().ljust(samples.PAGE, b"\0") + samples.block()
    out: dict[str, tuple[Target, bytes]] = {name: (case[0], case[1])
                                            for name, case in CASES.items()}
    out["properties"] = (message.decode_properties,
                         message.encode_properties({"mail.from": "a@example.org"}))
    typed = Outgoing(properties={"n": 3, "yes": True, "half": 0.5, "raw": b"x"}).properties
    out["property values"] = (values, message.encode_properties(typed))
    out["seek table"] = (lambda data: archive.decode_seek_table(data, len(data)),
                         archive.encode_seek_table([(100, 200), (300, 65536)]))
    with tempfile.TemporaryDirectory(prefix="omq-fuzz-") as folder:
        write(Path(folder), cut(blocks, 42, samples.UUID), level=3, bodies=False)
        (made,) = Path(folder).iterdir()
        out["archive"] = (archived, made.read_bytes())
    out["old queue"] = (queue, old_queue.encode("LOCAL", []))
    out["journal scan"] = (lambda data: list(scan_file(data, 42, samples.UUID)), blocks)
    return out


def _recovery() -> tuple[Target, bytes]:
    from omq.base.errors import OmqError
    from tests.crash.sim.disk import SimDisk
    from tests.crash.sim.explore import index_errors
    from tests.crash.sim.life import SETTINGS, START_NS, Life, fixed, make_spool, recover_into
    from tests.crash.sim.platter import Image, image_of
    from tests.crash.sim.workloads import checkpoints, large, moves, rotation

    with fixed(5):
        disk = SimDisk(record=False)
        make_spool(disk)
        life = Life(disk)
        for workload in (large, checkpoints, moves, rotation):
            workload(life, Random(5))
        begin = image_of(disk)
    used = {node: len(data.rstrip(b"\0")) for node, data in begin.files.items()
            if data.rstrip(b"\0")}
    nodes = sorted(used)

    def recover(data: bytes) -> None:
        """Patches of file, place, length, bytes."""
        files, at = dict(begin.files), 0
        for _ in range(PATCHES):
            if len(data) - at < 5:
                break
            node = nodes[data[at] % len(nodes)]
            place = int.from_bytes(data[at + 1 : at + 4], "little") % used[node]
            piece = data[at + 5 : at + 5 + data[at + 4] % 65]
            at += 5 + len(piece)
            changed = bytearray(files[node])
            changed[place : place + len(piece)] = piece
            files[node] = bytes(changed[: len(files[node])])
        with fixed(5):
            try:
                _, core, _ = recover_into(Image(files, begin.directories, 0).mount(), SETTINGS,
                                          START_NS)
            except OmqError:
                return
            assert not index_errors(core)

    return recover, bytes(range(40))


def _child(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["omq"]):
        target, sample = _recovery() if name == RECOVERY else _decoders()[name]
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="omq-fuzz-") as corpus:
        for first in (b"\0", b"\1"):
            (Path(corpus) / first.hex()).write_bytes(first + sample)
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-print_final_stats=1",
                       "-max_len=8192", f"-artifact_prefix={KEPT}/{name.replace(' ', '-')}-",
                       corpus], _either(target))
        atheris.Fuzz()


def _run(name: str, seconds: int) -> bool:
    """One target in its process; True: nothing was found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.daemons.atheris_fuzz", "--child", "--target", name,
         "--seconds", str(seconds)], capture_output=True, text=True, check=False)
    found = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    print(f"{name}: {found[1] if found else '?'} runs, code {done.returncode}", flush=True)
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-2000:])
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="atheris_fuzz")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--target")
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        _child(options.target, options.seconds)
        return 0
    names = [options.target] if options.target else [*_decoders(), RECOVERY]
    # Recovery is most of the code: it gets half of the time.
    share = {name: options.seconds // 2 // max(1, len(names) - 1) for name in names}
    share[names[-1]] = options.seconds - sum(share[name] for name in names[:-1])
    good = [_run(name, share[name]) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
