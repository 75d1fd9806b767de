"""Two nodes of a real cluster: corosync and Pacemaker, each in namespaces of its own, on a network
that can be cut. A node's root is an overlay, so nothing is installed or changed on this machine;
what is below SHARED is seen by both and by the test. Fencing is real: the cluster calls an agent,
which asks the test to kill the node, and believes it when that is done.

OMQ_PACEMAKER names a folder into which Debian's packages were unpacked, if they are not installed:

    apt-get install --download-only --no-install-recommends pacemaker corosync resource-agents
    for each in *.deb; do dpkg-deb --extract $each tree; done
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.process.net_hosts import Hosts
from tests.process.processes import WAIT_S
from tests.waiting import until

TREE: Final = os.environ.get("OMQ_PACEMAKER", "")
ROOT: Final = Path(__file__).parents[2]
NAMES: Final = ("east", "west")
_FIRST: Final = r"""
set -eu
name=$1 state=$2 shared=$3 tree=$4 agents=$5
mount --make-rprivate /
mkdir -p "$state"
mount -t tmpfs -o mode=755 node "$state"
cd "$state"
mkdir files work root lower
if [ "$tree" ]; then  # its lib and bin are links here
    mkdir lower/usr
    for each in etc usr var; do [ ! -d "$tree/$each" ] || cp -a "$tree/$each" lower/; done
    for each in lib bin sbin; do
        [ -d "$tree/$each" ] || continue
        mkdir -p lower/usr/$each
        cp -a "$tree/$each/." lower/usr/$each/
    done
fi
mount -t overlay -o "lowerdir=$state/lower:/,upperdir=$state/files,workdir=$state/work" node root
cd root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/lock run/crm ".$shared" srv/omq old
mount --rbind "$shared" ".$shared"
mount --bind "$shared/$name" srv/omq  # its disk
cat /proc/sys/kernel/random/uuid >run/boot_id  # a node that starts again has booted
mount --bind run/boot_id proc/sys/kernel/random/boot_id
echo 8388608 >proc/sys/kernel/msgmnb  # of this IPC namespace
hostname "$name"
grep -q ^haclient: etc/group || echo haclient:x:987: >>etc/group
grep -q ^hacluster: etc/passwd ||
    echo hacluster:x:987:987::/var/lib/pacemaker:/bin/false >>etc/passwd
rm -rf var/lib/pacemaker var/lib/corosync
mkdir -p var/lib/corosync var/log/pacemaker etc/corosync usr/lib/ocf/resource.d/omq
for each in cib pengine cores blackbox; do mkdir -p var/lib/pacemaker/$each; done
chown -R 987:987 var/lib/pacemaker run/crm var/log/pacemaker
cp "$shared/corosync.conf" etc/corosync/
cp "$agents/omq" usr/lib/ocf/resource.d/omq/
cp "$shared/fence_test" usr/sbin/
cp "$shared/hosts" etc/
pivot_root . old
umount -l /old
ldconfig
trap : TERM
echo up
while :; do sleep 1000 & wait; done
"""
_FENCE: Final = r"""#!/bin/sh
# A fence agent: it asks the test for a node's death, and waits until it is done.
set -eu
action=reboot port=
while IFS='=' read -r key value; do
    case $key in action) action=$value ;; port | plug | nodename) port=${port:-$value} ;; esac
done
case $action in
metadata) cat <<'XML'
<?xml version="1.0"?>
<resource-agent name="fence_test" shortdesc="kills a node of the test">
<longdesc>Kills a node of the test.</longdesc>
<parameters>
<parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
<parameter name="port" required="1"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/>
<action name="monitor"/><action name="list"/><action name="metadata"/></actions>
</resource-agent>
XML
    ;;
list) printf 'east\nwest\n' ;;
off | reboot)
    echo "$port" >"SHARED/fence/wanted.new"
    mv SHARED/fence/wanted.new "SHARED/fence/$port.wanted"
    while [ ! -e "SHARED/fence/$port.done" ]; do sleep 0.1; done
    rm "SHARED/fence/$port.done"
    ;;
esac
"""
_COROSYNC: Final = """
totem {
    version: 2
    cluster_name: omq
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    token: 2000
}
system {
    sched_rr: no
    move_to_root_cgroup: no
    allow_knet_handle_fallback: yes
}
nodelist {
    node {
        ring0_addr: EAST
        name: east
        nodeid: 1
    }
    node {
        ring0_addr: WEST
        name: west
        nodeid: 2
    }
}
quorum {
    provider: corosync_votequorum
    two_node: 1
    wait_for_all: 0
}
logging {
    to_stderr: yes
    to_syslog: no
    timestamp: hires
}
"""


class Node:
    """See the module."""

    def __init__(self, name: str, hosts: Hosts, shared: Path) -> None:
        self.name, self._hosts, self._shared = name, hosts, shared
        self.address = hosts.add(name)
        self.log = shared / f"{name}.log"
        (shared / name).mkdir()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._first: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """The namespaces; no daemon yet."""
        script = self._shared / "first.sh"
        script.write_text(_FIRST)
        with self.log.open("ab") as log:
            self._first = subprocess.Popen(
                [*self._hosts.on(self.name), "unshare", "--pid", "--mount", "--uts", "--ipc",
                 "--fork", "--kill-child", "bash", script, self.name,
                 self._shared.with_name(f"node-{self.name}"), self._shared, TREE,
                 ROOT / "share/ocf/resource.d/omq"], stdout=subprocess.PIPE, stderr=log)
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == b"up\n", self.log.read_text()

    def _pid(self) -> int:
        assert self._first is not None
        pid = self._first.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def on(self) -> list[str]:
        """Before the words of a program that runs there."""
        return [*self._hosts.on(self.name), "nsenter", "-t", str(self._pid()), "-m", "-p", "-i",
                "-u", "-r", "-w", "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]

    def run(self, *words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.on(), *map(str, words)], input=given, capture_output=True,
                              text=True, timeout=WAIT_S, check=False)

    def begin(self, *words: str | Path) -> None:
        with self.log.open("ab") as log:
            self._daemons.append(subprocess.Popen([*self.on(), *map(str, words)], stdout=log,
                                                  stderr=log, stdin=subprocess.DEVNULL))

    def start(self) -> None:
        """The cluster's daemons."""
        self.begin("corosync", "-f")
        until(lambda: self.run("corosync-cfgtool", "-s").returncode == 0
              or self._daemons[-1].poll() is not None, self.said)
        assert self._daemons[-1].poll() is None, self.said()
        self.begin("pacemakerd", "-f")

    def said(self) -> str:
        shown = self.run("crm_mon", "-1nrA") if self.runs else None
        return self.log.read_text()[-6000:] + (shown.stdout + shown.stderr if shown else "")

    @property
    def runs(self) -> bool:
        return self._first is not None and self._first.poll() is None

    def kill(self) -> None:
        """As if its power had gone."""
        if self._first is None:
            return
        self._first.kill()  # the first process of its namespaces goes with it, and all others
        self._first.wait()
        for each in self._daemons:
            each.wait()
        self._daemons.clear()
        assert self._first.stdout is not None
        self._first.stdout.close()
        self._first = None


class Cluster:
    """See the module."""

    def __init__(self, hosts: Hosts, shared: Path) -> None:
        self.network, self.shared = hosts, shared
        (shared / "fence").mkdir()
        (shared / "fence_test").write_text(_FENCE.replace("SHARED", str(shared)))
        (shared / "fence_test").chmod(0o755)
        self.nodes = {name: Node(name, hosts, shared) for name in NAMES}
        east, west = (self.nodes[name].address for name in NAMES)
        (shared / "corosync.conf").write_text(
            _COROSYNC.replace("EAST", east).replace("WEST", west))
        (shared / "hosts").write_text(f"127.0.0.1 localhost\n{east} east\n{west} west\n")
        self.fenced: list[str] = []

    def fence(self) -> bool:
        """Do what the cluster has asked for first, if anything: what the dead node asked for is
        nobody's wish any more. Was there anything?"""
        asked = sorted((self.shared / "fence").glob("*.wanted"),
                       key=lambda each: each.stat().st_mtime)
        if not asked:
            return False
        name = asked[0].name.removesuffix(".wanted")
        self.nodes[name].kill()
        self.fenced.append(name)
        for each in asked:
            each.unlink()
        asked[0].with_suffix(".done").touch()
        return True

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()


def has_pacemaker() -> bool:
    return bool(TREE or shutil.which("pacemakerd"))
