"""omq-metrics: the figures of an instance for Prometheus, over HTTP.

It reads the index in shared memory and the files in run/, as omstat does: the queue manager is not
asked, and one that hangs or is dead shows (omq_up, omq_manager_state). So it runs on when the
instance is stopped. The address in use is written to run/metrics.port. SIGTERM ends it.

Exit codes: 0; 69 when the package prometheus_client is missing, or the port is taken.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Final

from omq.base import side_files
from omq.base.config import load_settings
from omq.base.errors import Exit, ExtraMissing, PortInUse
from omq.cli.common import existing, say, tool_parser
from omq.services.daemon.notify import Notifier
from omq.services.daemon.signals import Signals

if TYPE_CHECKING:
    from omq.cli.watch.scrape_server import ScrapeServer
    from omq.services.daemon.options import Location

NAME: Final = "omq-metrics"
PORT_FILE: Final = "metrics.port"
_LOOK_S: Final = 0.5  # how soon a connection is seen to be too slow


def main(argv: list[str] | None = None) -> int:
    """The program; its exit code."""
    location = existing(_parser().parse_args(argv))
    settings = load_settings(location.conf_dir)
    try:
        from omq.cli.watch.metrics import InstanceCollector
        from omq.cli.watch.scrape_server import ScrapeServer
    except ModuleNotFoundError as error:
        raise ExtraMissing(command=NAME, package=error.name, extra="omq-suite[metrics]") from error
    try:
        server = ScrapeServer(settings, InstanceCollector(location))
    except OSError as error:
        raise PortInUse(address=settings.metrics_listen_host, key="metrics_listen_port",
                           port=settings.metrics_listen_port,
                           reason=error.strerror or str(error)) from error
    with server:
        _serve(server, location)
    return Exit.OK


def _serve(server: ScrapeServer, location: Location) -> None:
    signals = Signals()
    signals.install()
    notifier, file = Notifier(), location.paths.run / PORT_FILE
    host, port = server.server_address[:2]
    side_files.replace(file, f"{host!s} {port}\n".encode())
    shown = f"[{host!s}]" if ":" in str(host) else host
    say(NAME, f"http://{shown!s}:{port}/metrics")
    notifier.ready(f"listening on {host!s} port {port}")
    while not signals.stopping:
        signals.wait(_LOOK_S if server.busy else notifier.watchdog_interval_s, server.fileno())
        server.handle_request()
        server.end_slow(time.monotonic())
        notifier.watchdog()
    notifier.stopping()
    side_files.remove(file)


def _parser() -> argparse.ArgumentParser:
    return tool_parser(NAME, "Serve the figures of an instance to Prometheus, over HTTP.", """
        omq-metrics
        omq-metrics --instance test
        curl http://127.0.0.1:9815/metrics
        """)
