"""A name server on loopback, UDP and TCP on one port, that says what a test wants; two threads."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress
from typing import Final, Self

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

WAIT_S: Final = 30
_UDP_BYTES_MAX: Final = 1232
RCODES: Final = ("SERVFAIL", "REFUSED")
NAMES_MAX: Final = 50


class NameServer:
    """A context manager. `records`: "name type" -> its data, a line each; names of RCODES,
    "silence", "garbage" and "another" (question) in place of data are what they say. A CNAME is
    followed for NAMES_MAX steps. Names that no record has do not exist. `signed`: names whose
    answers, and that there is none, are said to be verified (AD) to who asks for that; "*": all."""

    def __init__(self, records: dict[str, list[str]], ttl_s: int = 300,
                 signed: frozenset[str] = frozenset()) -> None:
        self.signed = signed
        self.records = {f"{key.split()[0]}. {key.split()[1]}": data
                        for key, data in records.items()}
        self.asked: Counter[str] = Counter()
        self._ttl_s = ttl_s
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        while True:
            self._udp.bind(("127.0.0.1", 0))
            self.port = self._udp.getsockname()[1]
            try:
                self._tcp = socket.create_server(("127.0.0.1", self.port))
                break
            except OSError:  # another program has the TCP port of this number
                self._udp.close()
                self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._threads = [threading.Thread(target=each) for each in (self._datagrams, self._streams)]
        for each in self._threads:
            each.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as poke:
            poke.sendto(b"", ("127.0.0.1", self.port))
        with suppress(OSError):
            self._tcp.shutdown(socket.SHUT_RDWR)
        self._tcp.close()
        for each in self._threads:
            each.join(WAIT_S)
            assert not each.is_alive()
        self._udp.close()

    _ended = False

    def _datagrams(self) -> None:
        while not self._ended:
            data, client = self._udp.recvfrom(65536)
            answer = self._answer(data) if data else b""
            if len(answer) > _UDP_BYTES_MAX:
                short = dns.message.make_response(dns.message.from_wire(data))
                short.flags |= dns.flags.TC
                answer = short.to_wire()
            if answer:
                self._udp.sendto(answer, client)

    def _streams(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._tcp.accept()
                with line:
                    line.settimeout(WAIT_S)
                    size = int.from_bytes(line.recv(2), "big")
                    answer = self._answer(line.recv(size))
                    line.sendall(len(answer).to_bytes(2, "big") + answer)

    def _answer(self, data: bytes) -> bytes:
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = question.name.to_text().lower(), question.rdtype.name
        self.asked[f"{name} {kind}"] += 1
        response = dns.message.make_response(query)
        wants = query.flags & dns.flags.AD or query.ednsflags & dns.flags.DO
        if wants and ("*" in self.signed or name.rstrip(".") in self.signed):
            response.flags |= dns.flags.AD
        for _ in range(NAMES_MAX):
            alias = self.records.get(f"{name} CNAME")
            if alias is None:
                break
            response.answer.append(
                dns.rrset.from_text_list(name, self._ttl_s, "IN", "CNAME", alias))
            name = alias[0].lower()
        found = self.records.get(f"{name} {kind}", [])
        if found == ["silence"]:
            return b""
        if found == ["garbage"]:
            return data[:2] + b"\x80\x00\xff" * 9
        if found == ["another"]:
            return dns.message.make_response(dns.message.make_query("x.invalid.", kind)).to_wire()
        if found and found[0] in RCODES:
            response.set_rcode(dns.rcode.from_text(found[0]))
        elif found:
            response.answer.append(dns.rrset.from_text_list(name, self._ttl_s, "IN", kind, found))
        elif not any(each.startswith(f"{name} ") for each in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire(max_size=65535)
