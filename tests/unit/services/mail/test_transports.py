"""Mail handed over by LMTP and to commands; relayed domains; names with a delimiter."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omq.base.errors import ConfigError
from omq.services.mail.pipe_channel import arguments, outcome, run
from omq.services.mail.routes import Routes
from omq.services.mail.routes_file import load_routes
from omq.services.mail.smtp_reply import Verdict
from omq.services.mail.unix_out import UnixOutService
from omq.services.readers.service import Defer, Done
from tests.unit.services.mail.conftest import sent_by
from tests.unit.services.mail.stage_peer import StagePeer

BODY = b"Subject: x\r\n\r\n.hello\r\n"


@pytest.fixture
def unix(service: Callable[..., Any], message: Callable[..., Any]) -> Callable[..., Any]:
    def make(routes: str, **settings: Any) -> Any:
        made = service(UnixOutService, "unix", routes, **settings)

        def handle(*recipients: str, sender: str = "s@here.test") -> Any:
            found = message(BODY, {"mail.from": sender, "mail.to.UNIX": "\n".join(recipients)},
                            queue="UNIX")
            return sent_by(made, found)

        return handle

    return make


# LMTP


def test_lmtp_over_a_unix_socket(unix: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "lmtp")
    with StagePeer(lmtp=True, path=path) as peer:
        assert unix(f"[peers]\n* = lmtp:{path}\n")("a@far.test", "b@far.test") == Done()
    assert peer.commands[0] == "lhlo mx.test"
    assert peer.received == [("s@here.test", ["a@far.test", "b@far.test"],
                              b"Subject: x\r\n\r\n..hello\r\n")]


def test_over_lmtp_each_recipient_has_a_reply(unix: Any) -> None:
    class Choosy(StagePeer):
        def _right(self, line: Any, stage: str, reply: str) -> bool:
            if stage == "." and "b@far.test" in reply:
                reply = "552 5.2.2 over quota\r\n"
            elif stage == "." and "c@far.test" in reply:
                reply = "450 4.2.0 not now\r\n"
            return super()._right(line, stage, reply)

    with Choosy(lmtp=True) as peer:
        answer = unix(f"[peers]\n* = lmtp:127.0.0.1:{peer.port}\n")(
            "a@far.test", "b@far.test", "c@far.test")
    failed, later = answer.new
    assert failed.properties["error.to"] == "b@far.test"
    assert failed.properties["error.status"] == "5.2.2"
    assert later.properties["mail.to.UNIX"] == "c@far.test"


def test_a_socket_that_is_not_there_is_for_now(unix: Any, tmp_path: Path) -> None:
    assert isinstance(unix(f"[peers]\n* = lmtp:{tmp_path}/none\n")("a@far.test"), Defer)


# commands


@pytest.fixture
def pipe(unix: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """pipe(command): a gateway that hands everything to it, as this user."""
    def make(command: str, **settings: Any) -> Any:
        user = getpass.getuser() if os.geteuid() else "nobody"
        return unix(f"[pipes]\ncmd = {user} {command}\n[peers]\n* = pipe:cmd\n", **settings)

    return make


def test_a_command_has_the_mail_and_the_addresses(pipe: Any, tmp_path: Path) -> None:
    code = 'import os,sys; d=sys.stdin.buffer.read(); print(sys.argv[1:], len(d), os.getcwd())'
    handle = pipe(f"/usr/bin/python3 -c '{code}' {{sender}} to={{recipient}}")
    assert handle("a$HOME`x`@far.test") == Done()
    log = (tmp_path / "spool/logs/mail.log").read_text()
    assert f"(['s@here.test', 'to=a$HOME`x`@far.test'] {len(BODY)} /)" in log


@pytest.mark.parametrize(("code", "kind"), [
    (0, "done"), (75, "later"), (71, "later"), (67, "5.1.1"), (77, "5.7.0"), (1, "5.3.0")])
def test_exit_codes(pipe: Any, code: int, kind: str) -> None:
    answer = pipe(f"/bin/sh -c 'exit {code}'")("a@far.test")
    if kind == "done":
        assert answer == Done()
    elif kind == "later":
        assert isinstance(answer, Defer)
    else:
        assert answer.new[0].properties["error.status"] == kind


def test_what_it_says_is_told(pipe: Any) -> None:
    answer = pipe("/bin/sh -c 'echo no such list; exit 67'")("a@far.test")
    assert answer.new[0].properties["error.reason"] == "no such list"


def test_a_command_that_is_not_there_is_for_now(pipe: Any) -> None:
    assert isinstance(pipe("/no/such/command")("a@far.test"), Defer)


def test_an_address_is_never_an_option(pipe: Any) -> None:
    answer = pipe("/bin/true {recipient}")("-x@far.test")
    assert answer.new[0].properties["error.status"] == "5.1.3"
    assert pipe("/bin/true --to={recipient}")("-x@far.test") == Done()
    assert arguments(("c", "{sender}{recipient}"), "", "-x@far.test") is None, "the null sender"


def test_words_are_not_split_and_names_not_replaced_twice() -> None:
    assert arguments(("c", "{sender}", "x{recipient}y{recipient}"), "{recipient}", "a b") == [
        "c", "{recipient}", "xa bya b"]


def test_a_command_without_end_is_killed_with_its_children() -> None:
    with pytest.raises(TimeoutError):
        run(["/bin/sh", "-c", "sleep 1000 & sleep 1000"], "", b"", 0.2)


def test_a_child_that_keeps_the_line_open_holds_up_nobody() -> None:
    """The command has ended; what it left in the background has its output still."""
    assert run(["/bin/sh", "-c", "sleep 1000 & echo done; exit 0"], "", b"", 60) == (0, "done")


def test_output_without_end_is_bounded() -> None:
    code, said = run(["/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; exit 3"], "", b"",
                     30)
    assert code == 3
    assert len(said) <= 500


def test_it_reads_nothing_of_a_large_text() -> None:
    assert run(["/bin/true"], "", b"x" * 3_000_000, 30)[0] == 0


def test_a_signal_is_for_now() -> None:
    assert outcome("a", -9, "").verdict is Verdict.TEMPORARY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_a_user_who_has_gone_meanwhile_is_for_now() -> None:
    with pytest.raises(OSError, match="no user nobody-of-this-name"):
        run(["/bin/true"], "nobody-of-this-name", b"", 30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights")
def test_rights_are_given_up() -> None:
    assert run(["/usr/bin/id", "-u"], "nobody", b"", 30)[1] == "65534"
    assert run(["/usr/bin/id", "-G"], "nobody", b"", 30)[1] == "65534"


# the file


@pytest.mark.parametrize("text", [
    "[pipes]\nx = root /bin/true\n", "[pipes]\nx = nobody\n", "[pipes]\nx = nobody true\n",
    "[pipes]\nx = no-such-user /bin/true\n", "[peers]\n* = pipe:x\n", "[peers]\n* = lmtp:host\n",
    "[pipes]\nx = nobody '/bin/true\n", "[local]\ndelimiter = ++\n", "[tls]\na.test = maybe\n",
    "[tls]\na.test = may b.test\n"])
def test_what_is_refused(text: str, conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text(text)
    with pytest.raises(ConfigError):
        load_routes(conf_dir)


def test_relayed_domains_are_taken_from_anybody(conf_dir: Path) -> None:
    (conf_dir / "routes.conf").write_text("[local]\nrelayed = a.test, .b.test\n")
    routes = load_routes(conf_dir)
    assert [routes.accepts(f"x@{each}") for each in (
        "a.test", "A.test", "y.a.test", "b.test", "y.b.test", "z.y.b.test", "other.test")] == [
            True, True, False, False, True, True, False]
    (found,), _ = routes.resolve("x@a.test")
    assert found.queue == "UNIX"


def test_a_delimiter_leads_to_the_user(conf_dir: Path) -> None:
    routes = Routes(users=("bob", "al+ice"), delimiter="+", aliases={"staff": ("bob",),
                                                                     "x+y": ("al+ice",)})
    def to(local: str) -> list[str]:
        return [each.address for each in routes.resolve(f"{local}@localhost")[0]]

    assert to("bob+lists") == ["bob"]
    assert to("bob+a+b") == ["bob"]
    assert to("al+ice") == ["al+ice"]
    assert to("staff+x") == ["bob"]
    assert to("x+y") == ["al+ice"]
    assert to("+bob") == []
    assert to("carol+x") == []
    (found,), _ = routes.resolve("bob+lists@localhost")
    assert found.original == "bob+lists@localhost"
    assert not Routes(users=("bob",)).resolve("bob+x@localhost")[0]
