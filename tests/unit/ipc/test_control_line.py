"""A client's connection to its manager: bells that nobody waits for are read away."""

from __future__ import annotations

import select
import socket
from pathlib import Path

from omq.format.wire import bell_line
from omq.ipc.client.control_line import ControlLine
from omq.ipc.client.parking_link import ParkingLink


def test_the_first_bells_are_read_too(tmp_path: Path) -> None:
    """Before any bell was looked for: else an event loop would be called for them for ever."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "socket"))
        door.listen()
        line = ControlLine(tmp_path / "socket", 5.0)
        link = ParkingLink.__new__(ParkingLink)
        link._line = line
        with door.accept()[0] as manager:
            for sequence in (1, 2):
                manager.sendall(bell_line(sequence))
                assert select.select([line.descriptor], [], [], 5.0)[0]
                link.hear()
                assert not select.select([line.descriptor], [], [], 0)[0]
                assert line.rang(sequence)
        line.close()
