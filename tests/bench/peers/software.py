"""The peers' programs: Debian's own packages, extracted into a folder of the repository.

`python -m tests.bench.peers.software` (make setup-peers) asks apt for what is missing on this
machine, with lists and a cache of its own under build/peers, and unpacks it there. Nothing is
installed, no maintainer script runs, no service is started or stopped, and root is not needed.

    build/peers/apt/    apt's lists and the packages      build/peers/root/    what was in them
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.instance import BenchError

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "build" / "peers"
TREE = HOME / "root"
PACKAGES = ("redis-server", "postgresql-15", "rabbitmq-server", "beanstalkd", "postfix",
            "swaks", "dnsmasq-base", "slapd")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
              "lib/aarch64-linux-gnu", "usr/lib/postfix")


def program(path: str) -> Path:
    """A program by its place in Debian's tree; `*` stands for a version. BenchError without it."""
    for tree in (TREE, Path("/")):
        found = sorted(glob.glob(str(tree / path)))
        if found:
            return Path(found[-1])
    raise BenchError(f"{path} is missing: run 'make setup-peers'")


def environment(**more: str) -> dict[str, str]:
    """What a program of the extracted tree needs to find its own libraries."""
    libraries = [str(TREE / folder) for folder in _LIBRARIES if (TREE / folder).is_dir()]
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return clean | {"LD_LIBRARY_PATH": ":".join(libraries), "LC_ALL": "C.UTF-8"} | more


def version(command: list[str | Path]) -> str:
    """The first line that a program says when it is asked for its version."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().partition("\n")[0]


def fetch() -> list[Path]:
    """Download what this machine lacks; the packages. BenchError when apt cannot."""
    apt = HOME / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    options = [
        *("-o", f"Dir::State::lists={apt}/lists", "-o", f"Dir::Cache={apt}/cache"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="),
    ]
    for command in (
        ["apt-get", *options, "--quiet", "update"],
        # reinstall: also what happens to be installed here, so that all comes from one place
        ["apt-get", *options, "--quiet", "--yes", "--download-only", "--reinstall",
         "--no-install-recommends", "install", *PACKAGES],
    ):  # fmt: skip
        done = subprocess.run(command, check=False, text=True, capture_output=True)
        if done.returncode:
            raise BenchError(f"{' '.join(command)}: code {done.returncode}\n{done.stderr}")
    return sorted((apt / "cache/archives").glob("*.deb"))


def main() -> int:
    """Fetch and unpack; 0, or 1 with the reason."""
    try:
        packages = fetch()
        fresh = TREE.with_name("root.new")  # the old one stays whole until this one is
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, fresh], check=True)
        shutil.rmtree(TREE, ignore_errors=True)
        fresh.rename(TREE)
    except (BenchError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"setup-peers: {error}\n")
        return 1
    sys.stdout.write(f"{len(packages)} packages are unpacked in {TREE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
