"""Calls that stand in one module only, or nowhere."""

from __future__ import annotations

import ast
import re

from omq.base import fault
from tests.tidy.tree import ROOT, Source, calls, dotted, imports, nodes, product, suite

DURABLE_CALLS = {
    f"os.{name}"
    for name in (
        *("fsync", "fdatasync", "sync", "rename", "renames", "replace", "link"),
        *("truncate", "ftruncate", "unlink", "remove"),
    )
}
SIDE_FILES = "lib/omq/base/side_files.py"
DURABLE_HOME = ("lib/omq/storage/disk.py", "lib/omq/storage/durable.py", SIDE_FILES)
"""disk.py makes the system calls (tests put another disk in its place), durable.py orders them;
side_files.py makes those of what is not durable, and none of its errors ends a daemon."""

PATH_METHODS = {"unlink", "write_bytes", "write_text", "touch", "symlink_to", "hardlink_to"}
"""The same through pathlib. Its rename and replace are not here: str has replace too."""

PATH_METHOD_USERS = {
    "lib/omq/services/supervise/control_socket.py": "removes its own socket: nothing durable",
    "lib/omq/ipc/server/doorkeeper.py": "removes its own socket, or that of a manager that died",
    "spark/omqspark/jvm_classes.py": "removes files of a cache: who loses one loses time",
}

DURABLE_FREE = ("tests/demo/", "tools/omqtest/", "lib/omq/testing/", "tools/docs/",
                "lib/omq/services/ship/places.py")
"""Scratch files of the demonstration, of the test tool, of test instances and of the site; and a
directory that objects are shipped to, which is no spool."""

NOWHERE_MODULES = {
    "pickle": "bytes from a file or another process must not become code",
    "marshal": "as pickle",
    "shelve": "as pickle",
    "dill": "as pickle",
    "mmap": "an error of a mapped page is a signal, not an error code",
}
NOWHERE_CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "__import__"}


def _walks_path(source: Source) -> list[str]:
    return [
        f"{source.path}:{node.lineno}: {node.func.attr}"
        for node in nodes(source)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in PATH_METHODS
        and not _is_ours(node.func.value)
    ]


def _is_ours(owner: ast.expr) -> bool:
    """durable.unlink and the disk's own methods are the allowed way, as are those of side_files;
    `t` is the index's tables, `c` the fast path's columns; a message's touch is its lease's."""
    return dotted(owner) in {
        *("durable", "disk", "_disk", "calls", "side_files.calls"), *("t", "tables", "c"),
        *("message", "self.native"),
    }


def test_durable_calls_stand_in_one_place() -> None:
    wrong = [
        f"{source.path}:{line}: {name}"
        for source in product()
        if source.path not in DURABLE_HOME and not source.path.startswith(DURABLE_FREE)
        for line, name, _ in calls(source)
        if name in DURABLE_CALLS
    ]
    wrong += [
        f"{source.path}:{line}: from {name}"
        for source in product()
        for line, name in imports(source)
        if name in DURABLE_CALLS
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_not_made_or_removed_past_it() -> None:
    wrong = [
        place
        for source in product()
        if source.path not in {*DURABLE_HOME, *PATH_METHOD_USERS}
        and not source.path.startswith(DURABLE_FREE)
        for place in _walks_path(source)
    ]
    assert not wrong, "\n".join(wrong)


WRITES = {f"os.{name}" for name in (
    *("write", "writev", "pwrite", "pwritev", "mkdir", "makedirs", "symlink", "mknod", "mkfifo"),
    "sendfile")}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND"}
WRITERS = {
    SIDE_FILES: "all that a daemon writes for people and tools",
    "lib/omq/storage/disk.py": "spool data",
    "lib/omq/storage/files.py": "flags for the disk's open",
    "lib/omq/storage/containers.py": "flags for the disk's open",
    "lib/omq/storage/recycled_containers.py": "the same, and a folder by the disk's mkdir",
    "lib/omq/services/mail/maildir.py": "flags for the disk's open: mail is data",
    "lib/omq/services/mail/local_delivery.py": "the folder of all Maildirs: mail is data",
    "lib/omq/services/daemon/last_words.py": "flags for the open of side_files: it stays open",
    "lib/omq/services/daemon/pid_file.py": "flags for the open of side_files, for the descriptor",
    "lib/omq/services/manager/tombstone.py": "flags for that of side_files: no link is followed",
    "lib/omq/base/log_file.py": "flags for the open of side_files: it keeps the log open",
    "lib/omq/services/delivery/peer_states.py": "flags for a lock that is opened by side_files",
    "lib/omq/services/mail/mailbox_quota.py": "flags for a lock that is opened by side_files",
    "lib/omq/services/readers/process.py": "a pipe",
    "lib/omq/services/supervise/fork_client.py": "a pipe",
    "lib/omq/cli/fork_server.py": "a pipe",
    "lib/omq/base/fault.py": "what a crash test fired",
    "lib/omq/ipc/wire/sealed_body.py": "a memory file",
    "lib/omq/cli/queue/read_loop.py": "a memory file",
    "lib/omq/cli/launch.py": "/dev/null",
    "lib/omq/cli/standard_streams.py": "/dev/null",
    "lib/omq/cli/queue/omread.py": "/dev/null",
    "lib/omq/cli/operate/order_command.py": "the plan, where the user wants it",
    "lib/omq/services/standby/line.py": "the line to the other side, a pipe",
    "lib/omq/cli/setup/setup_files.py": "units, as root",
    "lib/omq/cli/setup/omq_init.py": "a project, where the user wants it",
    "lib/omq/cli/manual.py": "manual pages, of a developer",
}
"""Who may write, and what. Whatever a daemon writes that is no spool data goes through side_files:
a full disk must not end a daemon for the sake of a line that only a person would read."""


def _writes(source: Source) -> list[str]:
    found = []
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and node.attr in WRITING_FLAGS:
            found.append(f"{source.path}:{node.lineno}: {node.attr}")
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name
        modes = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "mode")]
        mode = any(isinstance(each, ast.Constant) and isinstance(each.value, str)
                   and re.fullmatch(r"[rwxab+t]*[wxa+][rwxab+t]*", each.value) for each in modes)
        if name in WRITES or (method == "open" and mode) or (
                method == "mkdir" and not _is_ours(getattr(node.func, "value", node.func))):
            found.append(f"{source.path}:{node.lineno}: {name or method}")
        if name in {"sys.stderr.write", "traceback.print_exc"} and not source.path.startswith(
                "lib/omq/cli/"):
            found.append(f"{source.path}:{node.lineno}: {name}")
    return found


def test_writes_stand_in_known_places() -> None:
    suite_code = [source for source in product() if source.path.startswith("lib/omq/")
                  and not source.path.startswith(DURABLE_FREE)]
    wrong = [place for source in suite_code if source.path not in WRITERS
             for place in _writes(source)]
    assert not wrong, "\n".join(wrong)
    idle = [path for path in WRITERS if not any(
        _writes(source) for source in suite_code if source.path == path)]
    assert not idle, f"{idle} no longer need their exception"


def test_a_write_is_found() -> None:
    code = ("import os, sys\nos.open(p, os.O_CREAT)\nos.write(f, b'')\np.open('w')\nopen(p, 'ab')\n"
            "p.mkdir()\nsys.stderr.write('x')\nos.makedirs(p)\n")
    found = _writes(Source("lib/omq/services/x.py", code, ast.parse(code)))
    assert sorted(line.split(":")[1] for line in found) == ["2", "3", "4", "5", "6", "7", "8"]
    code = "os.open(p, os.O_RDONLY)\np.open('rb')\ndurable.mkdir(p)\nsocket.open('abc')\n"
    assert not _writes(Source("lib/omq/services/x.py", code, ast.parse(code)))


def test_exceptions_are_still_needed() -> None:
    for path in PATH_METHOD_USERS:
        source = next((item for item in product() if item.path == path), None)
        assert source is not None, f"{path} is gone"
        assert _walks_path(source), f"{path} no longer needs its exception"


def test_banned_everywhere() -> None:
    wrong = []
    for source in (*product(), *suite()):
        for line, name in imports(source):
            if name.split(".")[0] in NOWHERE_MODULES:
                wrong.append(f"{source.path}:{line}: {name}")
        wrong += [
            f"{source.path}:{line}: {name}"
            for line, name, _ in calls(source)
            if name in NOWHERE_CALLS
        ]
    assert not wrong, "\n".join(wrong)


SLOW: dict[str, str] = {"tests/demo/sink.py": "a server that is slow, and nobody waits by it"}


def test_tests_do_not_sleep() -> None:
    wrong = [
        f"{source.path}:{line}"
        for source in suite()
        if source.path not in SLOW
        for line, name in (
            *imports(source),
            *((line, name) for line, name, _ in calls(source)),
        )
        if name in {"time.sleep", "asyncio.sleep"} or name.endswith(".sleep")
    ]
    assert not wrong, f"sleep in {wrong}"


def test_no_bare_except_and_no_silent_one() -> None:
    wrong = []
    for source in product():
        for node in nodes(source):
            if not isinstance(node, ast.ExceptHandler):
                continue
            if node.type is None:
                wrong.append(f"{source.path}:{node.lineno}: bare except")
            broad = isinstance(node.type, ast.Name) and node.type.id in {
                "Exception", "BaseException", "OmqError",
            }
            if broad and all(isinstance(statement, ast.Pass) for statement in node.body):
                wrong.append(f"{source.path}:{node.lineno}: swallowed error")
    assert not wrong, "\n".join(wrong)


def test_no_star_imports() -> None:
    wrong = [
        f"{source.path}:{line}"
        for source in (*product(), *suite())
        for line, name in imports(source)
        if name.endswith(".*")
    ]
    assert not wrong, wrong


COMPUTED_POINTS = {
    "lib/omq/storage/files.py": {"_before_write", "_after_write", "_before_sync", "_after_sync"},
    "lib/omq/storage/durable.py": {"name"},
}
"""Who makes the name of a point from that of a file's area: there by these names."""


def test_crash_points_are_registered() -> None:
    named = set()
    for source in product():
        for line, name, node in calls(source):
            if name not in ("fault.point", "point", "durable.step"):
                continue
            where = f"{source.path}:{line}"
            argument = node.args[0]
            literal = argument.value if isinstance(argument, ast.Constant) else None
            if literal is None:
                made = dotted(argument).rpartition(".")[2]
                assert made in COMPUTED_POINTS.get(source.path, ()), f"{where}: not a literal"
                continue
            assert isinstance(literal, str), f"{where}: not a name"
            assert literal in fault.POINTS, f"{where}: {literal} is unregistered"
            named.add(literal)
    assert len(named) > 38, "the points are called by other names now"


def _is_passed(point: str, text: str) -> bool:
    """Named in the code, or one of the four that storage.files makes for each area of files."""
    area, _, moment = point.partition(".")
    made = moment in {"before_write", "after_write", "before_sync", "after_sync"}
    return f'"{point}"' in text or (made and f'"{area}"' in text)


def test_registered_crash_points_exist() -> None:
    """A crash test that waits for a point which nothing passes would prove nothing."""
    text = "\n".join(item.text for item in product() if item.path != "lib/omq/base/fault.py")
    missing = sorted(point for point in fault.POINTS if not _is_passed(point, text))
    assert not missing, f"no code has the points {', '.join(missing)}"


def test_nothing_names_a_machine() -> None:
    """No path of somebody's machine; the words are put together so as not to find this line."""
    words = ["/work" + "/main", "/work" + "/shared", "/tmp" + "/v0", "/root" + "/"]
    folders = ("lib", "tools", "recovery", "conf", "bin", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [ROOT / name for name in ("Makefile", "pyproject.toml", "setup.cfg", "setup.py")]
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files
        if "__pycache__" not in path.parts and ".egg-info" not in str(path)
        and "compiled" not in path.parts
        for word in words
        if word in path.read_text(encoding="utf-8", errors="replace")  # pictures too
    ]
    assert not wrong, "\n".join(wrong)


def test_no_member_of_an_enum_is_an_empty_tuple() -> None:
    """Up to Python 3.11.2 its value is a bare object()."""
    wrong = [
        f"{source.path}:{line.lineno}"
        for source in (*product(), *suite())
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases)
        for line in node.body
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Tuple)
        and not line.value.elts
    ]
    assert not wrong
