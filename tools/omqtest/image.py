"""Trees of tree.py to and from a real directory.

Sockets and the like are left out: a reboot makes them anew. Errors: OSError.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from omqtools.omqtest import tree


def store(root: tree.Node, target: Path) -> None:
    """Make `target` hold exactly this tree; not synced, as it is only looked at afterwards."""
    if target.exists():
        shutil.rmtree(target)
    _store(root, target)


def _store(node: tree.Node, path: Path) -> None:
    if node.is_dir:
        path.mkdir(mode=0o700)
        for name, child in node.entries.items():
            _store(child, path / name)
    elif stat.S_ISREG(node.mode):
        with path.open("xb") as file:
            file.write(node.data)
    else:
        return
    path.chmod(stat.S_IMODE(node.mode))
    if os.geteuid() == 0:
        os.chown(path, node.uid, node.gid)


def load(source: Path) -> tree.Node:
    """The tree of a directory, all of it durable."""
    found = source.lstat()
    node = tree.Node(found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns)
    if node.is_dir:
        for path in sorted(source.iterdir()):
            if path.is_dir() or path.is_file():
                node.entries[path.name] = load(path)
        node.kept_entries = dict(node.entries)
    else:
        node.data = bytearray(source.read_bytes())
        node.kept = bytearray(node.data)
    return node
