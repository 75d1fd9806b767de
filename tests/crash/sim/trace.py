"""L0: what strace saw a program do to the files of a spool, in the words of traced.LoggingDisk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CALLS: Final = (
    "write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,sync_file_range,syncfs,sync,msync,"
    "ftruncate,truncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,"
    "link,linkat,symlink,symlinkat,open,openat,openat2,creat,copy_file_range,sendfile,splice,mmap")
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
_UNFINISHED = re.compile(r"^(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")
_FD = re.compile(r"^\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_AT = re.compile(r"^(?:AT_FDCWD|\d+)<([^>]*)>")

Changes = Counter[tuple[str, ...]]


def whole_lines(text: str) -> Iterator[str]:
    """The lines of strace -f, calls that another thread interrupted put together."""
    begun: dict[str, str] = {}
    for line in text.splitlines():
        if found := _UNFINISHED.match(line):
            begun[found[1]] = f"{found[1]} {found[2]}"
        elif found := _RESUMED.match(line):
            yield begun.pop(found[1]) + found[2]
        else:
            yield line


def _path(arguments: str, text: str) -> str:
    """A path argument, from its directory if it is relative."""
    if text.startswith("/"):
        return text
    found = _AT.match(arguments)
    return f"{found[1]}/{text}" if found else text


def _change(call: str, arguments: str, result: int) -> tuple[str, ...] | None:
    fd = _FD.match(arguments)
    texts = [found[1] for found in _TEXT.finditer(arguments)]
    if call in ("fsync", "fdatasync"):
        return (call, fd[1] if fd else "?")
    if call in ("pwritev", "pwrite64", "pwritev2"):
        offset = arguments.rsplit(", ", 2)[-2 if call == "pwritev2" else -1]  # it ends in flags
        return ("write", fd[1] if fd else "?", offset, str(result))
    if call in ("write", "writev"):  # at the offset of the descriptor: never through the seam
        return ("write", fd[1] if fd else "?", "?", str(result))
    if call == "ftruncate":
        return ("truncate", fd[1] if fd else "?", arguments.rsplit(", ", 1)[1])
    if call in ("open", "openat", "openat2"):
        return ("create", _path(arguments, texts[0])) if "O_CREAT" in arguments else None
    if call in ("rename", "renameat", "renameat2"):
        return ("rename", *(_path(arguments, text) for text in texts))
    if call in ("unlink", "unlinkat"):
        name = "rmdir" if "AT_REMOVEDIR" in arguments else "unlink"
        return (name, _path(arguments, texts[0]))
    if call in ("mkdir", "mkdirat", "rmdir"):
        return (call.removesuffix("at"), _path(arguments, texts[0]))
    if call == "mmap":
        written = fd is None and "MAP_SHARED" in arguments and "PROT_WRITE" in arguments
        inside = _FD.search(arguments.rsplit(", ", 2)[1]) if written else None
        return ("mmap", inside[1]) if inside else None
    return (call, fd[1] if fd else " ".join(texts))


def traced(output: str, root: Path, *, without: tuple[str, ...]) -> Changes:
    """Every change below `root` that succeeded, and how often."""
    out: Changes = Counter()
    for line in whole_lines(output):
        found = _LINE.match(line)
        if found is None or found[4].startswith("-"):
            continue
        change = _change(found[2], found[3], int(found[4], 0))
        if change is not None and _inside(change, root, without):
            out[change] += 1
    return out


def logged(text: str, root: Path, *, without: tuple[str, ...]) -> Changes:
    """The same from the log of the seam."""
    lines = (tuple(line.split("|")) for line in text.splitlines()[1:])
    return Counter(line for line in lines if _inside(line, root, without))


def _inside(change: tuple[str, ...], root: Path, without: tuple[str, ...]) -> bool:
    paths = [word for word in change[1:] if word.startswith(f"{root}/") or word == str(root)]
    return any(not path.startswith(tuple(f"{root}/{name}" for name in without)) for path in paths)
