"""ocf:omq:omq under a real Pacemaker of two nodes, with fencing: the cluster starts both, promotes
the primary, fences a node that is cut off or dies, promotes the standby, and takes the old primary
back as a standby; no acknowledged message is lost."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests import needs
from tests.process.net_hosts import hosts
from tests.system.pacemaker_nodes import NAMES, Cluster, has_pacemaker
from tests.waiting import until

pytestmark = pytest.mark.skipif(not has_pacemaker(), reason=needs.NO_PACEMAKER)
CIB = """
<configuration>
  <crm_config><cluster_property_set id="o">
    <nvpair id="o1" name="stonith-enabled" value="true"/>
    <nvpair id="o2" name="no-quorum-policy" value="ignore"/>
    <nvpair id="o3" name="startup-fencing" value="false"/>
  </cluster_property_set></crm_config>
  <nodes/>
  <resources>
    <primitive id="fencing" class="stonith" type="fence_test">
      <instance_attributes id="f">
        <nvpair id="f1" name="pcmk_host_list" value="east west"/>
      </instance_attributes>
    </primitive>
    <clone id="omq-clone">
      <meta_attributes id="m">
        <nvpair id="m1" name="promotable" value="true"/>
        <nvpair id="m2" name="promoted-max" value="1"/>
        <nvpair id="m3" name="notify" value="true"/>
      </meta_attributes>
      <primitive id="omq" class="ocf" provider="omq" type="omq">
        <instance_attributes id="i">
          <nvpair id="i1" name="spool" value="{spool}"/>
          <nvpair id="i2" name="conf" value="{conf}"/>
          <nvpair id="i3" name="bindir" value="{bin}"/>
          <nvpair id="i4" name="ways" value="east=tls://east:9817;west=tls://west:9817"/>
        </instance_attributes>
        <operations>
          <op id="p1" name="start" interval="0" timeout="120s"/>
          <op id="p2" name="stop" interval="0" timeout="180s"/>
          <op id="p3" name="promote" interval="0" timeout="300s"/>
          <op id="p4" name="demote" interval="0" timeout="180s"/>
          <op id="p5" name="monitor" interval="1s" role="Promoted" timeout="30s"/>
          <op id="p6" name="monitor" interval="2s" role="Unpromoted" timeout="30s"/>
        </operations>
      </primitive>
    </clone>
  </resources>
  <constraints/>
</configuration>
"""
CONF = """
[journal]
journal_file_bytes = 4 MiB
block_bytes_max = 1 MiB
[store]
disk_reserve_bytes = 0
[index]
messages_max = 25000
queue_entries_max = 25000
[ipc]
request_queue_bytes = 1 MiB
[amqp]
amqp_tls_certificate = {folder}/own.pem
amqp_tls_ca_file = {folder}/ca.pem
[channel]
channel_tls_ca_file = {folder}/ca.pem
channel_tls_certificate = {folder}/own.pem
[standby]
standby_listen_host = 0.0.0.0
standby_sync = 1
"""
SERVICES = """
[qmgr]
number = 100
kind = manager
program = queue.manager
nonstop = yes
[pool]
number = 101
kind = pool
program = pool.writer
nonstop = yes
"""
PUT = """
import sys, omq
with omq.connect("/srv/omq/spool", name="client", timeout_s=60) as c:
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        c.put("A", b"%d" % number)
"""
BROWSE = """
import omq
with omq.connect("/srv/omq/spool", name="judge", timeout_s=60) as c:
    print(*(each.body.decode() for each in c.browse("A")))
"""
SPOOL = "/srv/omq/spool"


class Pair:
    """An instance of two members, in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.folder = cluster, cluster.shared
        self.conf, self.bin = self.folder / "conf", self.folder / "bin"
        self._configure()

    def _configure(self) -> None:
        self.conf.mkdir()
        (self.conf / "omq.conf").write_text(CONF.format(folder=self.folder))
        (self.conf / "queues.conf").write_text("[*]\n[A]\n")
        (self.conf / "services.conf").write_text(SERVICES)
        (self.conf / "authority.conf").write_text("[standby]\nuser:daemon = follow\n")
        made = trustme.CA()
        made.cert_pem.write_to_path(self.folder / "ca.pem")
        issued = made.issue_cert(*NAMES, common_name="daemon")
        own = self.folder / "own.pem"
        own.write_bytes(issued.private_key_pem.bytes() + issued.cert_chain_pems[0].bytes())
        own.chmod(0o600)
        self.bin.mkdir()
        for name in ("omq", "omrc", "omstat", "omshut", "omqspool"):
            path = self.bin / name
            path.write_text("#!/bin/sh\n"
                            f"exec {sys.executable} -P -m omq.cli.launch {name} \"$@\"\n")
            path.chmod(0o755)

    def at(self) -> list[str]:
        return ["--spool", SPOOL, "--conf", str(self.conf)]

    def omq(self, node: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.nodes[node].run(self.bin / "omq", *words)

    def python(self, node: str, script: str, *words: object) -> subprocess.CompletedProcess[str]:
        return self.cluster.nodes[node].run(sys.executable, "-P", "-c", script, *map(str, words))

    def put(self, node: str, first: int, last: int) -> None:
        done = self.python(node, PUT, first, last)
        assert done.returncode == 0, done.stderr + self.said()

    def bodies(self, node: str) -> list[int]:
        done = self.python(node, BROWSE)
        assert done.returncode == 0, done.stderr + self.said()
        return list(map(int, done.stdout.split()))

    def said(self) -> str:
        logs = [self.folder / name / "spool/logs/ocf.log" for name in NAMES]
        return "".join([each.said() for each in self.cluster.nodes.values()] + [
            each.read_text()[-3000:] for each in logs if each.exists()])

    def make(self) -> None:
        """The first member on east, and its copy on west."""
        east, west = (self.cluster.nodes[name] for name in NAMES)
        for node in (east, west):
            node.boot()
        (self.folder / "east/spool").mkdir()
        east.begin(self.bin / "omrc", "--embedded", *self.at())
        until(lambda: east.run(self.bin / "omstat", *self.at()).returncode == 0, self.said)
        self.listen("east")
        (self.folder / "west/spool").mkdir()
        until(lambda: west.run(self.bin / "omq", "standby", "init", "--member", "west", *self.at(),
                               "--", "tls://east:9817").returncode == 0, self.said)
        assert east.run(self.bin / "omshut", *self.at()).returncode == 0, self.said()
        self.listen("west")
        for node in (east, west):
            node.start()
        until(lambda: east.run("cibadmin", "--replace", "--scope", "configuration", "--xml-pipe",
                               given=CIB.format(spool=SPOOL, conf=self.conf, bin=self.bin)
                               ).returncode == 0, self.said)

    def role(self, node: str, of: str) -> str:
        """What the cluster says, asked at `node`."""
        shown = self.cluster.nodes[node].run("crm_mon", "-1nr", "--output-as=xml").stdout
        if not shown:
            return ""
        for each in ET.fromstring(shown).iter("resource"):
            if each.get("id") == "omq" and each.find(f"node[@name='{of}']") is not None:
                return str(each.get("role"))
        return ""

    def has_score(self, node: str) -> bool:
        """It follows, and the cluster knows it."""
        path = self.folder / node / "spool/run/standby.json"
        if not path.exists() or '"following": true' not in path.read_text():
            return False
        shown = self.cluster.nodes[node].run("crm_mon", "-1nrA", "--output-as=xml").stdout
        return any(each.get("value") == "100" for each in ET.fromstring(shown).iterfind(
            f".//node_attributes/node[@name='{node}']/attribute[@name='master-omq']"))

    def listen(self, node: str) -> None:
        self.cluster.nodes[node].begin(self.bin / "omq", "standby", "listen", *self.at())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with hosts() as network:
        (shared := tmp_path / "shared").mkdir()
        cluster = Cluster(network, shared)
        try:
            yield Pair(cluster)
        finally:
            cluster.end()


def test_a_dead_node_and_one_that_is_cut_off(pair: Pair) -> None:
    pair.make()
    cluster = pair.cluster
    until(lambda: pair.role("west", "east") == "Promoted" and pair.has_score("west"), pair.said)
    pair.put("east", 0, 20)
    cluster.nodes["east"].kill()
    until(lambda: cluster.fence() or pair.role("west", "west") == "Promoted", pair.said)
    assert cluster.fenced == ["east"], "nobody is promoted before"
    until(lambda: pair.role("west", "west") == "Promoted", pair.said)
    assert pair.bodies("west") == list(range(20))

    cluster.nodes["east"].boot()
    pair.listen("east")
    cluster.nodes["east"].start()
    until(lambda: pair.role("west", "east") == "Unpromoted" and pair.has_score("east"), pair.said)
    assert pair.role("west", "west") == "Promoted", "the old primary does not take its place back"
    pair.put("west", 20, 30)

    cluster.network.cut("west")  # each of the two wants the other's death; one has it first
    until(cluster.fence, pair.said)
    (lost,) = cluster.fenced[1:]
    cluster.network.join("west")
    (left,) = {*NAMES} - {lost}
    until(lambda: pair.role(left, left) == "Promoted", pair.said)
    assert pair.bodies(left) == list(range(30))
    assert cluster.fenced == ["east", lost]
