"""The operator's commands say the same words whether systemd or omrc --embedded runs the instance.

One list of commands, the same configuration, two instances on one machine. What must differ (pids,
times, ids, the place of the spool) is taken out of the answers; the rest is compared whole.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from tests.system.box import PREFIX, Box

EMBEDDED = "/var/tmp/embedded"
MANAGED = "/var/lib/omq"
END = "-- end --"
ONE_LEFT = re.compile("auxiliary processes: [0-9N]+ 0 0")
"""Readers that stop are listed until they have ended."""
COMMANDS = (
    "omstat -a", "omsetsvc -r qmgr", "omoff router local", "omstat -a", "omstat -s -p",
    "omsetsvc -r router", "omoff router", "omsetsvc -x router 3", "omon router local",
    "omon router", "omstat -s", "omstat -p", "omsetsvc -x router 1",
)  # fmt: skip
THEN = (
    "omsetsvc -r router", "omoff qmgr", "omon nobody", "omsetsvc -x router 21",
    "omsetsvc -x qmgr 1",
)  # fmt: skip
DEAD = (
    (slice(1, 2), "Started", "partially aborted"),
    (slice(0, 1), "partially aborted", "Started"),
    (slice(0, None), "aborted", "aborted"),
)
"""Readers that are killed (the main one first), state of the service and of its auxiliaries."""


@dataclass(frozen=True)
class Instance:
    """One way to run it, as seen by a test."""

    box: Box
    spool: str
    conf: str

    def ask(self, *commands: str) -> dict[str, str]:
        """Exit code and answer of each, without what cannot be the same."""
        script = [f"{command} && echo code 0 || echo code $?; echo '{END}'" for command in commands]
        said = self.box.sh(f"export {self.environment}\n" + "\n".join(script))
        said = said.replace(self.spool, "SPOOL").replace(self.conf, "CONF")
        said = re.sub(r"\d\d:\d\d:\d\d", "TIME", said)
        said = re.sub(r"(?<=^Context dependent information: )\d+ \d+", "N N", said, flags=re.M)
        said = re.sub(r"\b\d{3,}\b", "N", said)
        said = re.sub(r"(?<=, in )[\d.N]+ (?:ms|s|min)\b", "TIME", said)
        said = re.sub(r"(?<=^Nice Level  ).*", "NICE", said, flags=re.M)  # an unit's, or its user's
        # What a daemon that has ended said last hangs on when it was asked.
        said = re.sub(r"(?<=\(service pool\) is Stopped): .*", "", said)
        # Readers of one stage end in any order.
        said = re.sub(r": \w+ is down; waiting for: .*", ": one is down", said)
        return dict(zip(commands, said.split(f"{END}\n"), strict=False))

    @property
    def environment(self) -> str:
        return f"OMQ_SPOOL={self.spool} OMQ_CONF={self.conf}"

    def readers(self, service: str) -> list[int]:
        """Pids of the main reader and its auxiliaries."""
        found = json.loads(self.box.run("cat", f"{self.spool}/run/{service}.json"))
        return [each["pid"] for each in (found["main"], *found["auxiliary"])]


@pytest.fixture(scope="module")
def both(installed: Box) -> tuple[Instance, Instance]:
    box = installed
    box.sh(f"cp {PREFIX}/lib/python3*/site-packages/omq/conf/services.conf /etc/omq/;"
           " cp -a /etc/omq /etc/embedded;"
           " printf '[mail]\\nsmtp_listen_port = 2599\\n' >> /etc/embedded/omq.conf;"
           f" install -d -o omq -g omq -m 750 {EMBEDDED}")
    box.run("systemd-run", "--quiet", "--unit=embedded", "--uid=omq", "--gid=omq",
            f"--setenv=OMQ_SPOOL={EMBEDDED}", "--setenv=OMQ_CONF=/etc/embedded",
            f"{PREFIX}/bin/omrc", "--embedded")
    box.run("omrc")
    managed, embedded = Instance(box, MANAGED, "/etc/omq"), Instance(box, EMBEDDED, "/etc/embedded")
    box.wait("both to be up", lambda: " ".join(embedded.ask("omstat -a").values()).count(
        " Started ") == 8)
    return managed, embedded


def _ask(instance: Instance, commands: tuple[str, ...]) -> dict[str, str]:
    return instance.ask(*commands)


def _same(both: tuple[Instance, Instance], *commands: str) -> dict[str, str]:
    with ThreadPoolExecutor(2) as pool:
        managed, embedded = pool.map(partial(_ask, commands=commands), both)
    for command in commands:
        assert managed[command].splitlines() == embedded[command].splitlines(), command
    return managed


def test_every_command_says_the_same(both: tuple[Instance, Instance]) -> None:
    told = _same(both, *COMMANDS)
    assert told["omstat -a"].endswith("code 0\n")
    assert "Service Router: Started" in told["omon router local"]
    assert "Service Router: Stopped" in told["omoff router local"]
    assert "1 of 1 auxiliary readers run" in told["omsetsvc -x router 1"]
    for each in both:
        each.box.wait("the others' end", partial(_one_is_left, each))
    told = _same(both, *THEN)
    assert "NON-STOP" in told["omoff qmgr"]


def _one_is_left(instance: Instance) -> bool:
    return ONE_LEFT.search(instance.ask("omsetsvc -r router")["omsetsvc -r router"]) is not None


def test_dead_readers_have_the_same_states(both: tuple[Instance, Instance]) -> None:
    """They stay dead: the pause before they are started again is long here."""
    for each in both:
        each.box.sh(f"sed -i '/^.daemons.$/a restart_backoff_min_s = 60' {each.conf}/omq.conf")
    for which, *states in DEAD:
        _same(both, "omoff router", "omon router", "omsetsvc -x router 2")
        for each in both:
            each.box.run("kill", "-KILL", *each.readers("router")[which])
        for each in both:
            each.box.wait("the states", lambda each=each, states=states: states == [  # type: ignore[misc]
                _router(said) for said in each.ask("omstat -s", "omstat -p").values()])
        _same(both, "omstat -s", "omstat -p", "omsetsvc -r router")


def _router(listing: str) -> str:
    """The state in its line."""
    found = re.search(r"^Service Router +(.*?) +TIME", listing, re.MULTILINE)
    assert found, listing
    return found[1]


def test_the_end_is_the_same(both: tuple[Instance, Instance]) -> None:
    told = _same(both, "omshut", "omstat -a", "omshut ")
    assert told["omshut"].count("one is down") == 8
    assert "nothing runs in SPOOL" in told["omshut "]
