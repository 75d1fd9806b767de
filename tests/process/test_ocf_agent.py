"""The OCF resource agent for Pacemaker: each action of a promotable clone, in right states and
wrong ones, on two directories that stand for two nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

import omq
from omq.base import clock
from omq.base.config import load_settings
from omq.base.paths import SpoolPaths
from omq.core.standby.promotion import promote
from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import CORE_SERVICES, MANAGER, WRITER
from tests.process.processes import WAIT_S
from tests.process.test_standby import Pair
from tests.waiting import until

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "share/ocf/resource.d/omq/omq"
(SUCCESS, GENERIC, UNIMPLEMENTED, INSTALLED, CONFIGURED, NOT_RUNNING, PROMOTED, FAILED
 ) = 0, 1, 3, 5, 6, 7, 8, 9


class Nodes:
    """Node a has the primary, node b its standby."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.conf = pair, pair.primary.conf
        self.roots = {"a": pair.primary.root, "b": pair.root}
        self.bin = pair.root.with_name("bin")
        self.bin.mkdir()
        for name in ("omq", "omrc", "omstat"):
            path = self.bin / name
            path.write_text("#!/bin/sh\n"
                            f"exec {sys.executable} -P -m omq.cli.launch {name} \"$@\"\n")
            path.chmod(0o755)

    def way(self, node: str) -> str:
        return (f"{self.bin}/omq standby send --spool {self.roots[node]} --conf {self.conf}")

    def act(self, node: str, action: str, **more: str) -> int:
        """Its exit code."""
        self.done = subprocess.run(
            [str(AGENT), action], capture_output=True, text=True, timeout=WAIT_S, check=False,
            env=dict(os.environ) | {
                "OCF_ROOT": str(self.bin), "OCF_RESKEY_spool": str(self.roots[node]),
                "OCF_RESKEY_conf": str(self.conf), "OCF_RESKEY_bindir": str(self.bin),
                "OCF_RESKEY_member": node,
                "OCF_RESKEY_ways": f"a={self.way('a')}; b={self.way('b')}"} | more)
        return self.done.returncode

    def promoted(self, node: str, which: str) -> int:
        """The notification that comes to a node when another was promoted."""
        return self.act(node, "notify", OCF_RESKEY_CRM_meta_notify_type="post",
                        OCF_RESKEY_CRM_meta_notify_operation="promote",
                        OCF_RESKEY_CRM_meta_notify_promote_uname=which,
                        OCF_RESKEY_CRM_meta_on_node=node)

    def role(self, node: str) -> Role:
        return open_spool(self.roots[node]).instance.role

    def pid(self, node: str, what: str) -> int:
        return int((self.roots[node] / f"run/ocf.{what}").read_text().split()[0])

    def says(self) -> str:
        logs = [root / "logs/ocf.log" for root in self.roots.values()]
        return self.done.stderr + "".join(each.read_text()[-3000:] for each in logs
                                          if each.exists())

    def follows(self, node: str) -> bool:
        path = SpoolPaths(self.roots[node]).standby
        return path.exists() and '"following": true' in path.read_text()

    def puts(self, node: str, body: bytes) -> None:
        with omq.connect(self.roots[node], name="client", timeout_s=WAIT_S) as c:
            c.put("A", body)

    def kill(self, node: str) -> None:
        """The whole node, as fencing does."""
        left, found = [self.pid(node, "serve")], []
        while left:
            pid = left.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, task.read_text().split())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                os.kill(pid, number)
        (self.roots[node] / "run/ocf").write_text("another boot\n")  # all else lies there as it was

    def end(self) -> None:
        for node in self.roots:
            self.act(node, "stop")


@pytest.fixture
def nodes(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Nodes]:
    (omq_instance.conf / "services.conf").write_text(CORE_SERVICES.partition("\n[idel]")[0])
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    pair = Pair(omq_instance, tmp_path / "standby")
    pair.make()
    omq_instance.stop()
    made = Nodes(pair)
    try:
        yield made
    finally:
        made.end()
        if made.role("a") is not Role.PRIMARY:  # it ends as the fixture wants it
            info = open_spool(made.roots["a"], writer=True, any_role=True)
            promote(info.paths, info.instance, load_settings(made.conf), clock.wall_ns())


def test_its_description_is_what_pacemaker_reads(nodes: Nodes) -> None:
    assert nodes.act("a", "meta-data") == SUCCESS
    told = ET.fromstring(nodes.done.stdout)
    assert told.get("name") == "omq"
    actions = {each.get("name") for each in told.iter("action")}
    assert actions == {"start", "stop", "promote", "demote", "monitor", "notify", "validate-all",
                       "meta-data"}
    assert {each.get("name") for each in told.iter("parameter")} == {
        "spool", "conf", "bindir", "ways", "member"}


def test_what_is_wrong_has_the_codes_of_ocf(nodes: Nodes) -> None:
    assert nodes.act("a", "validate-all") == SUCCESS
    assert nodes.act("a", "recover") == UNIMPLEMENTED
    assert nodes.act("a", "start", OCF_RESKEY_bindir="/none") == INSTALLED
    assert nodes.act("a", "start", OCF_RESKEY_spool="/none") == INSTALLED
    assert nodes.act("a", "monitor", OCF_RESKEY_spool="/none") == NOT_RUNNING
    empty = nodes.bin.with_name("empty")
    empty.mkdir()
    assert nodes.act("a", "validate-all", OCF_RESKEY_spool=str(empty)) == INSTALLED
    with open(nodes.conf / "omq.conf", "a", encoding="utf-8") as conf:
        conf.write("\n[standby]\nstandby_lease = http://127.0.0.1:2379\n")
    assert nodes.act("a", "validate-all") == CONFIGURED
    assert "standby_lease is set" in nodes.done.stderr
    for lost_s, code in ((None, CONFIGURED), (29, CONFIGURED), (30, SUCCESS)):
        nodes.pair.primary.settings()
        with open(nodes.conf / "omq.conf", "a", encoding="utf-8") as conf:
            conf.write("\n[standby]\nstandby_lost = go_on\n" + (
                f"standby_lost_s = {lost_s}\n" if lost_s else ""))
        assert nodes.act("a", "validate-all") == code, lost_s
        assert ("standby_lost_s of 30" in nodes.done.stderr) == (code == CONFIGURED)
    nodes.pair.primary.settings()


def test_a_node_is_started_promoted_demoted_and_stopped(nodes: Nodes) -> None:
    assert nodes.act("a", "monitor") == NOT_RUNNING
    assert nodes.act("a", "promote") == GENERIC, "nothing was started"
    assert nodes.act("a", "start") == SUCCESS, nodes.says()
    assert nodes.act("a", "start") == SUCCESS, "once more is nothing"
    assert nodes.act("a", "monitor") == SUCCESS
    assert nodes.act("a", "promote") == SUCCESS, nodes.says()
    assert nodes.act("a", "monitor") == PROMOTED
    assert nodes.act("a", "promote") == SUCCESS, "once more is nothing"
    nodes.puts("a", b"1")
    os.kill(nodes.pid("a", "serve"), signal.SIGKILL)
    until(lambda: nodes.act("a", "monitor") == FAILED, nodes.says)
    assert nodes.act("a", "demote") == SUCCESS, nodes.says()
    assert nodes.act("a", "monitor") == SUCCESS
    assert nodes.act("a", "promote") == SUCCESS, nodes.says()
    assert nodes.act("a", "stop") == SUCCESS
    assert nodes.act("a", "monitor") == NOT_RUNNING
    assert nodes.act("a", "stop") == SUCCESS, "once more is nothing"


def test_a_follower_that_has_died_is_told(nodes: Nodes) -> None:
    assert nodes.act("a", "start") == SUCCESS
    assert nodes.act("a", "promote") == SUCCESS, nodes.says()
    assert nodes.act("b", "start") == SUCCESS, nodes.says()
    until(lambda: nodes.follows("b"), nodes.says)
    assert nodes.act("b", "monitor") == SUCCESS
    os.kill(nodes.pid("b", "follow"), signal.SIGKILL)
    until(lambda: nodes.act("b", "monitor") == GENERIC, nodes.says)
    assert nodes.act("b", "stop") == SUCCESS
    assert nodes.act("b", "start") == SUCCESS, nodes.says()
    assert nodes.act("b", "promote") == GENERIC, "the primary answers"
    assert "two primaries would diverge" in nodes.says()
    assert nodes.role("b") is Role.STANDBY
    assert nodes.act("b", "monitor") == SUCCESS, "it follows again"


def test_a_standby_keeps_its_score_when_its_primary_is_dead(nodes: Nodes) -> None:
    """What the cluster says, and what it is told, are files here."""
    says, scores, cluster = (nodes.bin / name for name in ("says", "scores", "cluster"))
    cluster.mkdir()
    for name, script in (("crm_resource", f"grep running {says}"),
                         ("crm_node", f"tail -n 1 {says}"),
                         ("crm_master", f'echo "$@" >>{scores}')):
        (cluster / name).write_text(f"#!/bin/sh\n{script}\n")
        (cluster / name).chmod(0o755)
    more = {"PATH": f"{cluster}:{os.environ['PATH']}", "OCF_RESOURCE_INSTANCE": "omq:0"}
    apart = nodes.roots["b"] / "run/ocf.apart"

    def scored(promoted: str, partition: str) -> str:
        """What the next look makes of it."""
        says.write_text(f"resource omq is running on: a {promoted}\nresource omq is running on: b\n"
                        f"{partition}\n")
        scores.write_text("")
        assert nodes.act("b", "monitor", **more) == SUCCESS, nodes.says()
        return scores.read_text().strip()

    assert nodes.act("b", "start", **more) == SUCCESS, nodes.says()
    assert not nodes.follows("b"), "there is nobody"
    assert scored("Promoted", "a b") == "" and apart.exists(), "not at once"
    apart.write_text("0\n")  # of the host's uptime
    assert scored("Promoted", "b") == "" and not apart.exists(), "its node has left"
    assert scored("", "a b") == "" and not apart.exists(), "it is not promoted any more"
    assert scored("Promoted", "a b") == ""
    apart.write_text("0\n")
    assert scored("Promoted", "a b") == "-l reboot -D", "it lives, and goes on alone"


def test_a_failover_and_the_way_back(nodes: Nodes) -> None:
    for node in ("a", "b"):
        assert nodes.act(node, "start") == SUCCESS, nodes.says()
    assert nodes.act("a", "promote") == SUCCESS, nodes.says()
    assert nodes.promoted("b", "a") == SUCCESS
    until(lambda: nodes.follows("b"), nodes.says)
    nodes.puts("a", b"1")
    nodes.pair.caught_up()
    nodes.kill("a")
    gone = nodes.roots["a"].with_name("gone")
    nodes.roots["a"].rename(gone)  # nobody answers there
    assert nodes.act("b", "promote") == SUCCESS, nodes.says()
    assert nodes.act("b", "monitor") == PROMOTED
    assert nodes.promoted("b", "b") == SUCCESS, "it is told of itself, too"
    gone.rename(nodes.roots["a"])
    assert nodes.act("a", "monitor") == NOT_RUNNING
    # Pacemaker tells nobody of a promotion that is long done, and lists itself, if it has failed.
    assert nodes.act("a", "start", OCF_RESKEY_CRM_meta_notify_promoted_uname="a b",
                     OCF_RESKEY_CRM_meta_on_node="a") == SUCCESS, nodes.says()
    assert nodes.role("a") is Role.STANDBY, nodes.says()
    until(lambda: nodes.follows("a"), nodes.says)
    assert nodes.promoted("a", "b") == SUCCESS
    until(lambda: nodes.follows("a"), nodes.says)
    assert nodes.act("a", "monitor") == SUCCESS
    with (omq.connect(nodes.roots["b"], name="judge", timeout_s=WAIT_S) as c,
          c.reader("A") as reader):
        (message,) = reader.next(timeout_s=WAIT_S)
        assert message.body == b"1"
        message.done()
