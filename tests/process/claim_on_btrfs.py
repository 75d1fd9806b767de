"""A file becomes a body on a file system that can share blocks: what tests/process/test_put_file.py
runs in a mount namespace of its own, so that no mount is left whatever happens.

    python -m tests.process.claim_on_btrfs IMAGE FOLDER

IMAGE: a Btrfs, packed by xz; FOLDER: where it is put and mounted.
"""

from __future__ import annotations

import array
import fcntl
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Final

import omq
from omq.testing.instance import LiveInstance

_FIEMAP: Final = 0xC020660B
_SYNC, _SHARED, _LAST = 1, 0x2000, 1
PIECE: Final = b"0123456789abcdef" * 65536


def extents(path: Path) -> list[tuple[int, int]]:
    """(physical place, flags) of each extent of a file, by fiemap."""
    area = array.array("B", bytes(32 + 100 * 56))
    area[8:16] = array.array("B", b"\xff" * 8)
    area[16:20] = array.array("B", _SYNC.to_bytes(4, "little"))
    area[24:28] = array.array("B", (100).to_bytes(4, "little"))
    with path.open("rb") as file:
        fcntl.ioctl(file, _FIEMAP, area, True)  # noqa: FBT003
    raw = area.tobytes()
    return [(int.from_bytes(raw[at + 8 : at + 16], "little"),
             int.from_bytes(raw[at + 40 : at + 44], "little"))
            for at in range(32, 32 + int.from_bytes(raw[20:24], "little") * 56, 56)]


def work(folder: Path) -> None:
    """The file and the container have the same blocks; what is written later is the file's alone;
    nobody is asked for a copy."""
    film = folder / "film"
    film.write_bytes(PIECE * 4)
    (folder / "instance").mkdir()
    with LiveInstance(folder / "instance") as live, live.connect("claims", 30) as c:
        c.queues.define("A")
        put = c.put_file("A", film, omq.Outgoing(priority=7), copy=False)
        assert (put.size, put.shared) == (len(PIECE) * 4, True), put
        (container,) = [path for path in live.spool.glob("data/*/*") if path.stat().st_size]
        ours, theirs = extents(container), extents(film)
        assert [place for place, _ in ours] == [place for place, _ in theirs]
        assert all(flags & _SHARED for _, flags in ours), ours
        with film.open("r+b") as file:
            file.write(b"another beginning")
        film.unlink()
        with c.reader("A") as reader:
            (message,) = reader.next(1, 30)
            assert (message.message_id, message.priority) == (put.message_id, 7)
            assert message.body == PIECE * 4
            message.done()
        holes = folder / "holes"
        with holes.open("wb") as file:
            file.truncate(50 << 20)
            file.write(b"head")
        assert c.put_file("A", holes, copy=False).shared
        with c.reader("A") as reader:
            (message,) = reader.next(1, 30)
            assert message.body == b"head" + bytes((50 << 20) - 4)
            message.done()
    print("shared")


def main(image: str, folder: str) -> int:
    """Mount, work."""
    disk, there = Path(folder) / "disk", Path(folder) / "there"
    disk.write_bytes(lzma.decompress(Path(image).read_bytes()))
    there.mkdir()
    subprocess.run(["mount", "-o", "loop", disk, there], check=True)
    try:
        work(there)
    finally:
        subprocess.run(["umount", there], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
