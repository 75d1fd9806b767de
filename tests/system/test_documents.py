"""The README's production section word by word on a fresh machine; the Debian package."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.system.box import PREFIX, Box
from tests.system.work import CORE, MAIL
from tests.tidy.tree import ROOT

PIP_CONF = "[global]\nno-index = true\nfind-links = /srv/omq/dist\n"
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"),
                    re.MULTILINE | re.DOTALL)


def test_production_section(wheels: Path, tmp_path: Path) -> None:
    install, own, daily = BLOCKS
    box = Box(tmp_path / "state", {wheels: "/srv/omq/dist"})
    try:
        box.sh("rm -rf /root/.config/pip /root/.pip")  # what the host's owner set
        box.write("/etc/pip.conf", PIP_CONF)  # in place of the network
        said = box.sh(f"cd /srv/omq\n{install}")
        assert "all 8 services are started" in said
        assert all(box.active(f"{unit}.service") == "active" for unit in (*CORE, *MAIL))
        box.sh(own)
        box.wait("the order", lambda: "order 1" in box.sh("cat /var/lib/orders/done || true"))
        said = box.sh(daily)
        assert "Local Delivery: Started" in said
        assert "2 of 2 auxiliary readers run" in said
        box.run("systemctl", "stop", "omq.target")
        assert box.show("orders.service", "Result") == "success"
        box.run("pgrep", "-u", "omq", code=1)
        box.run("systemctl", "start", "omq.target")
        box.wait("the reader", lambda: box.active("orders.service") == "active")
    finally:
        box.stop()


def test_debian_package(wheels: Path, tmp_path: Path) -> None:
    """Built from the same wheels; installs, runs, and takes itself away but for the spool."""
    (wheel,) = wheels.glob("omq-*.whl")
    subprocess.run([ROOT / "tools/debian/build", wheel, ROOT / "constraints.txt", tmp_path / "out"],
                   env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)},
                   check=True, capture_output=True)
    (package,) = (tmp_path / "out").glob("omq_*.deb")
    box = Box(tmp_path / "state", {tmp_path / "out": "/srv/omq"})
    try:
        said = box.run("dpkg", "--install", f"/srv/omq/{package.name}", code=None)
        assert "systemctl start omq.target" in said, said
        box.run("omrc")
        assert box.run("omstat", "-a").count("Started") == 8
        box.run("dpkg", "--remove", "omq")
        box.run("pgrep", "-u", "omq", code=1)
        box.sh(f"test -s /var/lib/omq/instance.json; test ! -e {PREFIX}")
        assert box.sh("ls /etc/systemd/system | grep -c omq || true").strip() == "0"
    finally:
        box.stop()
