"""unix.out at a peer with PIPELINING: one piece up to DATA, and no text where nobody gets it."""

from __future__ import annotations

import socket
import threading

import pytest

from omq.services.mail.routes import Peer
from omq.services.mail.smtp_client import ClientLimits, Mail, SmtpConnection, wire_text
from omq.services.mail.smtp_reply import Verdict

BODY = b"Subject: x\r\n\r\n.hello\r\n"


class ScriptedPeer(threading.Thread):
    """A host with PIPELINING that answers nothing before it has all commands up to DATA."""

    def __init__(self, replies: str) -> None:
        super().__init__()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(120)
        self.replies = replies.encode()
        self.commands = self.text = b""

    def run(self) -> None:
        peer, _ = self.server.accept()
        with peer, self.server:
            peer.settimeout(120)
            peer.sendall(b"220 far\r\n")
            peer.recv(1000)
            peer.sendall(b"250-far\r\n250 PIPELINING\r\n")
            while not self.commands.endswith(b"DATA\r\n"):
                self.commands += peer.recv(1000)
            peer.sendall(self.replies)
            while not self.text.endswith(b"\r\n.\r\n") and (more := peer.recv(1000)):
                self.text += more
            if self.text:
                peer.sendall(b"250 got it\r\n")


def _sent_to(peer: ScriptedPeer) -> list[Verdict]:
    peer.start()
    port = peer.server.getsockname()[1]
    connection = SmtpConnection(Peer("127.0.0.1", port), "mx.test", ClientLimits(9, 9, 9, 10))
    results = connection.send(Mail("a@b", ["c@d", "e@f"], BODY))
    connection.abandon()
    peer.join()
    return [each.verdict for each in results]


def test_commands_up_to_data_go_out_in_one_piece() -> None:
    peer = ScriptedPeer("250 ok\r\n550 no\r\n250 ok\r\n354 go\r\n")
    assert _sent_to(peer) == [Verdict.PERMANENT, Verdict.DELIVERED]
    assert peer.commands == b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\n"
    assert peer.text == wire_text(BODY) + b".\r\n"


@pytest.mark.parametrize("replies", [
    "250 ok\r\n550 no\r\n550 no\r\n354 go\r\n", "550 no\r\n503 no\r\n503 no\r\n354 go\r\n"])
def test_no_text_goes_to_a_host_that_took_no_recipient_but_waits_for_one(replies: str) -> None:
    peer = ScriptedPeer(replies)
    assert _sent_to(peer) == [Verdict.PERMANENT, Verdict.PERMANENT]
    assert peer.text == b"", "an end of data would be an empty message"
