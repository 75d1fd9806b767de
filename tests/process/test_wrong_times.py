"""Every command at the wrong time: without rights, without a spool, beside a manager that a signal
has stopped or that was killed. An exit code, a line that says what to do, never a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from shutil import rmtree

import pytest

import omq
from omq.base import modes
from omq.base.errors import ConnectionForked, Exit, ManagerHung, SpoolMissing
from omq.cli import launch
from tests.process.loaded import load_all
from tests.process.operator_world import Instance, Said

NOBODY = 65534
COMMANDS: dict[str, tuple[str, ...]] = {
    "omsend": ("A", "--timeout", "1.5"), "omread": ("A", "--count", "1", "--timeout", "0"),
    "omstat": ("-s",), "omqdump s": ("-e", "s"), "omqdump L": ("-e", "L"),
    "omqdump t": ("-e", "t m -"),
    "omqdump D": ("--yes", "-e", "D A 1"), "omtop": ("--once", "--interval", "0.2"),
    "omqlog": ("--operator",), "omqwhy": ("6",), "omqshape": (), "omqadvise": (), "omqcheck": (),
    "omscan": (), "omshowlog": (), "omfreeq": ("-p", "1", "A"), "omhold": ("6",),
    "omrelease": ("--where", "queue=A"), "omrequeue": ("--queue", "A", "--to", "B", "6"),
    "omshut": ("--timeout", "1"), "omon": ("local",), "omoff": ("local",),
    "omsetsvc": ("-r", "local"), "omq-archive": (), "omqrecover": ("scan", "@"),
    "omrc": ("--embedded",), "omqconv": ("--queues", "/nowhere"),
}
CHANGES = ("omsend", "omread", "omqdump D", "omhold", "omrequeue")
"""They need a manager that answers."""
OPEN = {"omstat": Exit.OK, "omshut": Exit.NO, "omon": Exit.UNAVAILABLE, "omoff": Exit.UNAVAILABLE,
        "omsetsvc": Exit.OK, "omqconv": Exit.NO_INPUT}
"""What whoever may pass the spool is told: from run/*.json, from conf/; there is no supervisor."""
LOOKS = ("omstat", "omqdump s", "omqdump L", "omqdump t", "omtop", "omqwhy", "omqshape",
         "omqadvise", "omqcheck", "omscan", "omshowlog")


def run(instance: Instance, command: str, root: Path | None = None) -> Said:
    """In this process; the manager is waited for as short as can be."""
    name, words = command.split(" ", 1)[0], COMMANDS[command]
    where = str(root or instance.root)
    data, err, stdin = io.BytesIO(), io.StringIO(), sys.stdin
    out = io.TextIOWrapper(data, write_through=True)  # omread writes bytes
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"x"))
    try:
        arguments = ["--spool", where, "--conf", str(instance.conf), *words]
        if name == "omqrecover":
            arguments = [where if word == "@" else word for word in words]
        with redirect_stdout(out), redirect_stderr(err):
            code = launch.run(name, arguments)
    finally:
        sys.stdin = stdin
    said = Said(code, data.getvalue().decode(), err.getvalue())
    assert "Traceback" not in said.err, said
    return said


@pytest.fixture(scope="module")
def world() -> Iterator[Instance]:
    """Six messages on A; below a folder that anybody may enter."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    made = Instance(top / "spool")
    conf = made.conf / "omq.conf"
    conf.write_text(conf.read_text().replace("[ipc]\n", "[ipc]\nreconnect_grace_s = 1\n"))
    made.start()
    made.put("A", *(b"%d" % number for number in range(6)))
    yield made
    made.end()
    rmtree(top)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.parametrize("mode", [0o750, modes.PASSAGE])
def test_without_rights_it_is_77_and_who_may(world: Instance, mode: int) -> None:
    # The user may not read the code either.
    load_all()
    world.root.chmod(mode)
    try:
        wrong = {}
        for command in COMMANDS:
            said = _as_nobody(world, command)
            if mode == modes.PASSAGE and command in OPEN:
                if said.code != OPEN[command]:
                    wrong[command] = said
            elif (said.code != Exit.NO_PERMISSION or "do it as root" not in said.err
                    or "start it with omrc" in said.err or said.err.count("\n") != 1):
                wrong[command] = said
        assert not wrong, wrong
    finally:
        world.root.chmod(0o750)


def _as_nobody(world: Instance, command: str) -> Said:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            said = run(world, command)
            os.write(send, json.dumps([said.code, said.out, said.err]).encode())
        except BaseException as error:
            os.write(send, json.dumps([99, "", repr(error)]).encode())
        finally:
            os._exit(0)
    os.close(send)
    with open(receive, "rb") as stream:
        found = json.loads(stream.read())
    os.waitpid(pid, 0)
    return Said(*found)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("omrc", "omqconv")])
def test_without_a_spool_it_is_66(world: Instance, tmp_path: Path, command: str) -> None:
    said = run(world, command, tmp_path / "none")
    assert said.code == Exit.NO_INPUT, said
    assert f"there is no spool at {tmp_path / 'none'}" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES])
def test_beside_a_manager_stopped_by_a_signal(world: Instance, command: str) -> None:
    assert world.manager is not None
    with world.stopped():
        said = run(world, command)
    assert "start it with omrc" not in said.err + said.out, said
    if command in LOOKS:
        assert said.code == Exit.OK, said
    else:
        assert said.code == Exit.UNAVAILABLE, said
        assert f"(process {world.manager.pid}) is stopped by a signal" in said.err
        assert f"'kill -CONT {world.manager.pid}' lets it go on" in said.err


def test_omstat_says_that_it_is_stopped_by_a_signal(world: Instance) -> None:
    assert world.manager is not None
    with world.stopped():
        said = world.run("omstat")
    assert said.code == Exit.NO
    assert said.out.splitlines()[0].split("  ")[0] == "Queue Manager"
    assert "stopped by signal" in said.out.splitlines()[0]
    assert f"kill -CONT {world.manager.pid} lets it go on" in said.out
    assert "stopped by signal" not in world.run("omstat").out


def test_the_api_fails_at_once_or_says_what_hangs(world: Instance, tmp_path: Path) -> None:
    with pytest.raises(SpoolMissing):
        omq.connect(spool=tmp_path / "nonexistent", timeout_s=3600)
    told: list[str] = []
    with world.stopped(), pytest.raises(ManagerHung, match="is stopped by a signal"):
        omq.connect(spool=world.root, timeout_s=1.5, waiting=told.append)
    assert len(told) == 1 and told[0].startswith("waiting for the queue manager of ")


def test_a_connection_is_not_for_a_child(world: Instance) -> None:
    with world.connect() as connection:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for act in (lambda: connection.put("A", b"x"), lambda: connection.control({})):
                    try:
                        act()
                    except ConnectionForked:
                        code += 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        assert connection.put("A", b"the parent goes on")


def test_a_configuration_that_is_not_reloaded_is_no_business_of_clients(world: Instance) -> None:
    queues, conf = world.conf / "queues.conf", world.conf / "omq.conf"
    before = queues.read_text(), conf.read_text()
    try:
        queues.write_text("[A]\nmax_length = 64 bananas\n")
        conf.write_text("[store]\nbody_bytes_max = 1\nnonsense\n")
        for command in ("omsend", "omread", "omqdump D", "omrelease"):
            assert run(world, command).code in (Exit.OK, Exit.NO), command
    finally:
        queues.write_text(before[0])
        conf.write_text(before[1])


@pytest.mark.parametrize("readers", ["1", "2"])
def test_interrupts_of_omread(world: Instance, readers: str) -> None:
    """^C: finishes and says so; the second one ends the command. 130 each time."""
    parent = "$PPID" if readers == "1" else "$(cut -d' ' -f4 /proc/$PPID/stat)"
    (qpool,) = world.put("B", b"body")
    for script, left in ((f"while :; do kill -INT {parent} || exit; done", True),
                         (f"kill -INT {parent}; cat > /dev/null", False)):
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "omq.cli.launch", "omread", *world.arguments, "B",
             "--readers", readers, "--", "sh", "-c", script], capture_output=True, check=False,
            text=True, timeout=300)
        assert ended.returncode == 130, ended
        # Of many at once the second may come before the first could be told.
        assert left or "^C again" in ended.stderr, ended
        assert world.on("B") == ([qpool] if left else []), ended


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES])
def test_behind_a_manager_that_was_killed(world: Instance, command: str) -> None:
    assert world.manager is not None
    if world.manager.poll() is None:
        world.kill()
    said = run(world, command)
    if command in LOOKS:
        assert said.code == Exit.OK, said
    else:
        assert said.code == Exit.UNAVAILABLE, said
        assert "start it with omrc" in said.err
    if command in ("omsend", "omread"):
        assert f"{command}: waiting for the queue manager of {world.root} (" in said.err or (
            command == "omread"), said


@pytest.mark.parametrize(("name", "words", "package", "extra"), [
    ("omtop", ["--spool", "@"], "textual", "omq-suite[top]"),
    ("omq-spark", ["audit", "--archive", "x", "--out", "y"], "pyspark", "omq-suite[spark]"),
    ("omstat", ["-a", "--spool", "@"], "numpy", "omq-suite")])
def test_a_missing_extra_is_named(world: Instance, name: str, words: list[str], package: str,
                                  extra: str) -> None:
    code = ("import sys\n"
            f"for name in ({package!r}, 'pyarrow', 'pandas'): sys.modules[name] = None\n"
            "from omq.cli.launch import run\n"
            f"sys.exit(run({name!r}, sys.argv[1:]))")
    given = [str(world.root) if word == "@" else word for word in words]
    ended = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, check=False,
                           text=True)
    assert ended.returncode == Exit.UNAVAILABLE, ended
    assert f"pip install '{extra}'" in ended.stderr
    assert "Traceback" not in ended.stderr
