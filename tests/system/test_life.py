"""Starting, stopping and reloading by systemctl: in order, bounded, nothing lost or doubled."""

from __future__ import annotations

import re

from tests.system.box import PREFIX, Box
from tests.system.conftest import CONF
from tests.system.work import (
    CORE,
    MAIL,
    READER,
    depths,
    install_reader,
    moment,
    pids,
    put,
    seen,
    start,
    states,
)


def test_start_is_in_order_by_readiness(installed: Box) -> None:
    start(installed)
    ready = [moment(installed, unit, "ActiveEnter") for unit in (*CORE, "omq-router", "omq-smtp")]
    assert ready == sorted(ready)
    assert 0 not in ready
    assert states(installed, (*CORE, *MAIL)) == {"active"}
    units = [f"{unit}.service" for unit in (*CORE, *MAIL)]
    assert "" not in installed.show_each(units, "StatusText")
    said = installed.run("omstat", "-a")
    assert said.count("Started") == 8
    assert "NON-STOP" in said


def test_the_request_queue_has_the_size_asked_for(installed: Box) -> None:
    """The sysctl was in force before the first queue was made: request_queue_bytes was granted."""
    said = installed.sh("ipcs -q -i $(ipcs -q | awk '$3 == \"omq\" { print $2; exit }')")
    assert f"qbytes={1024 * 1024}" in said.replace(" ", "")


def test_operators_look_and_others_do_not(installed: Box) -> None:
    installed.sh("useradd -G omq-clients clerk; useradd -G omq-operators watcher;"
                 " useradd stranger")
    assert installed.run("runuser", "-u", "watcher", "--", "omqdump", "-e", "s")
    assert installed.run("runuser", "-u", "watcher", "--", "omstat", "-a").count("Started") == 8
    for user in ("clerk", "stranger"):
        said = installed.run("runuser", "-u", user, "--", "omqdump", "-e", "s", code=77)
        assert said.startswith(f"omqdump: {user} may not use the index of /var/lib/omq"), said
        assert len(said.splitlines()) == 1
    for user in ("watcher", "stranger"):
        said = installed.run("runuser", "-u", user, "--", "sh", "-c", "echo x | omsend ORDERS",
                             code=77)
        assert "member of group omq-clients" in said and len(said.splitlines()) == 1


def test_group_members_do_only_what_they_are_granted(installed: Box) -> None:
    """The daemons know a caller by his own uid: hardening has not made all of them one."""
    as_clerk = ("runuser", "-u", "clerk", "--", "sh", "-c")
    said = installed.run(*as_clerk, "echo x | omsend ORDERS", code=77)
    assert f"uid {installed.run('id', '-u', 'clerk').strip()} has no authority" in said
    assert depths(installed)["ORDERS"] == 0
    installed.write("/etc/omq/authority.conf", "[AUDIT]\nuser:clerk = put\n")
    installed.run("systemctl", "reload", "omq-queue-manager.service")
    installed.wait("the grant", lambda: "authority" not in installed.run(
        *as_clerk, "echo x | omsend AUDIT || true"))
    installed.run(*as_clerk, "echo x | omsend ORDERS", code=77)
    assert depths(installed) == {"ORDERS": 0, "AUDIT": 1, "POISON": 0}
    installed.run("runuser", "-u", "stranger", "--", "sh", "-c", "echo x | omsend AUDIT", code=77)


def test_stop_drains_in_order_and_loses_nothing(installed: Box) -> None:
    install_reader(installed)
    put(installed, 0, 120)
    installed.run("systemctl", "enable", "--now", READER)
    installed.wait("the reader at work", lambda: len(seen(installed)) >= 5)
    installed.run("systemctl", "stop", "omq.target")
    gone = [moment(installed, unit, "InactiveEnter") for unit in
            ("omq-read@ORDERS", "omq-smtp", "omq-router", "omq-idel", "omq-queue-manager",
             "omq-pool-writer")]
    assert gone == sorted(gone)
    installed.run("pgrep", "-u", "omq", code=1)
    assert installed.sh("ipcs -q -m | grep -w omq || true") == ""
    at_stop = seen(installed)
    assert at_stop == list(range(len(at_stop)))
    start(installed)
    installed.wait("all of them", lambda: len(seen(installed)) >= 120)
    assert seen(installed) == list(range(120))
    assert installed.show("omq-drain.service", "Result") == "success"
    said = " ".join(installed.messages("-u", "omq-drain.service"))
    assert "smtp stopped" in said
    assert "pool stopped" in said


def test_restart_keeps_what_waits(installed: Box) -> None:
    installed.run("systemctl", "disable", "--now", READER)
    put(installed, 1000, 1010)
    before = pids(installed, CORE)
    installed.run("systemctl", "restart", "omq.target")
    after = pids(installed, CORE)
    assert all(after[unit] not in (0, before[unit]) for unit in CORE)
    assert depths(installed)["ORDERS"] == 10


def test_reload_takes_a_good_file_and_refuses_a_bad_one(installed: Box) -> None:
    before = pids(installed, (*CORE, *MAIL))
    good = installed.run("cat", "/etc/omq/queues.conf")
    installed.write("/etc/omq/queues.conf", good + "[LATER]\n")
    installed.run("systemctl", "reload", "omq-queue-manager.service")
    installed.wait("the new queue", lambda: "LATER" in installed.run("omqdump", "-e", "L"))
    installed.write("/etc/omq/queues.conf", good + "[LATER]\nmax_depth = many\n")
    installed.run("systemctl", "reload", "omq-queue-manager.service", code=1)
    assert any("queues.conf" in text and "many" in text for text in
               installed.messages("-u", "omq-queue-manager.service", "-n", "20"))
    put(installed, 0, 1, "LATER")
    installed.write("/etc/omq/queues.conf", good)
    installed.run("systemctl", "reload", *(f"{unit}.service" for unit in (*CORE, *MAIL)))
    assert pids(installed, (*CORE, *MAIL)) == before
    assert depths(installed)["ORDERS"] == 10


def test_daemons_outlive_a_stop_of_the_manager_alone(installed: Box) -> None:
    others = (*CORE[1:], *MAIL)
    before = pids(installed, others)
    installed.run("systemctl", "stop", "omq-queue-manager.service")
    assert re.search(r"^Queue Manager +Stopped +NON-STOP$", installed.run("omstat", "-a", code=1),
                     re.M)
    installed.run("systemctl", "start", "omq.target")  # what is missing comes back
    assert pids(installed, others) == before
    assert depths(installed)["ORDERS"] == 10
    installed.wait("the readers", lambda: "aborted" not in installed.run(
        "omstat", "-a", code=None))


def test_a_wrong_configuration_does_not_keep_it_from_stopping(installed: Box) -> None:
    start(installed)
    for name in ("omq.conf", "services.conf"):
        installed.write(f"/etc/omq/{name}", "[nonsense]\n")
    said = installed.run("omshut")
    assert "going by the defaults" in said and "stopping the shipped services" in said, said
    installed.run("pgrep", "-u", "omq", code=1)
    drained = " ".join(installed.messages("-u", "omq-drain.service", "-n", "9"))
    order = [drained.index(f"{name} stopped") for name in ("smtp", "errmgr", "idel", "qmgr")]
    assert order == sorted(order) and order[-1] < drained.index("pool stopped"), drained
    assert "nonsense" in installed.run("omrc", code=78)
    installed.write("/etc/omq/omq.conf", CONF)
    installed.run("rm", "/etc/omq/services.conf")
    assert "all 8 services are started" in installed.run("omrc")
    assert depths(installed)["ORDERS"] == 10


def test_omshut_and_omrc(installed: Box) -> None:
    assert "is stopped" in installed.run("omshut")
    installed.run("pgrep", "-u", "omq", code=1)
    assert "nothing runs" in installed.run("omshut", code=1)
    installed.run("omrc", "-n")
    assert states(installed, CORE) == {"active"}
    assert states(installed, MAIL) == {"inactive"}
    assert "all 8 services are started" in installed.run("omrc", "--reason", "new disk")
    said = installed.run("omqlog", "--operator")
    assert "reason: new disk" in said and ": omrc -n" in said
    said = installed.run("runuser", "-u", "clerk", "--", "omrc", code=None)
    assert f"{PREFIX}" not in said
    assert "do it as root" in said
