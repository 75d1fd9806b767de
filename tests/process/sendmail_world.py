"""An instance that is the mail system of programs which know no other way than sendmail."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default
from pathlib import Path
from typing import Final

import pytest

from tests.process.test_service_commands import CONF, WAIT_S, Instance, running

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = "here.test"
DROP: Final = "[drop]\nenabled = yes\n"
"""services.conf with mail.drop on."""
ROUTES: Final = f"[local]\ndomains = {HERE}, localhost\nusers = *\n"


class MailHost:
    """`sendmail` is the path of the program, as others start it: it knows its spool."""

    def __init__(self, made: Instance) -> None:
        self.instance, self.spool = made, made.spool
        self.sendmail = made.spool.parent / "sendmail"
        self.sendmail.write_text(
            f"#!/bin/sh\nOMQ_SPOOL={made.spool}\nexport OMQ_SPOOL\nunset OMQ_CONF\n"
            f'exec {ROOT}/bin/omq-sendmail "$@"\n')
        self.sendmail.chmod(0o755)

    def give(self, *words: str, text: str | bytes = b"Subject: x\n\nhello\n", code: int = 0,
             environment: dict[str, str] | None = None) -> str:
        """What the program says on both streams."""
        done = subprocess.run(
            [self.sendmail, *words], input=text.encode() if isinstance(text, str) else text,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_S, check=False,
            env={**os.environ, **(environment or {})})
        assert done.returncode == code, done.stdout
        return done.stdout.decode()

    def files(self, user: str) -> list[Path]:
        inbox = self.spool / "mail" / user / "new"
        return sorted(inbox.iterdir()) if inbox.is_dir() else []

    def mails(self, user: str, number: int = 1) -> list[EmailMessage]:
        """So many that the user has, in the order of their files."""
        self.instance.wait(f"{number} mails of {user}", lambda: len(self.files(user)) >= number)
        found = self.files(user)
        assert len(found) == number
        return [_parsed(each.read_bytes()) for each in found]

    def mail(self, user: str) -> EmailMessage:
        """The only one."""
        return self.mails(user)[0]


def content(mail: EmailMessage) -> str:
    """Its text, lines ended by LF, without empty lines at the end."""
    return str(mail.get_content()).replace("\r\n", "\n").rstrip("\n") + "\n"


def _parsed(raw: bytes) -> EmailMessage:
    found: Message = message_from_bytes(raw, policy=default)
    assert isinstance(found, EmailMessage)
    return found


@contextmanager
def mail_host(place: Path, *, more: str = "", services: str = DROP) -> Iterator[MailHost]:
    """The instance runs, mail.drop with it."""
    spool = place / "spool"
    with running(spool, conf=CONF + f"hostname = mx.{HERE}\n" + more, services=9 if services else 8,
                 files={"services.conf": services, "routes.conf": ROUTES}) as live:
        yield MailHost(live)


def need(program: str, package: str) -> str:
    """The path of a program of another package, or a skip."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"no {program}: apt-get install {package}")
    return found
