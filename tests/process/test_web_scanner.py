"""The console before a scanner of web applications: wapiti, which crawls its pages as an admin and
attacks what it finds there (injection into commands, files, SQL, headers and pages, redirects,
cookies, policies)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.process.web_world import WAIT_S, world

pytestmark = pytest.mark.skipif(
    shutil.which("wapiti") is None, reason="wapiti is absent (Debian package wapiti)")
MODULES = ("cookieflags", "crlf", "csp", "csrf", "exec", "file", "http_headers", "permanentxss",
           "redirect", "sql", "xss")
BOUND_S = 300
RIGHT = {
    ("HTTP Secure Headers", "X-XSS-Protection is not set"),  # browsers have dropped it
    ("HTTP Secure Headers", "Strict-Transport-Security is not set"),  # it is of TLS
    ("Secure Flag cookie", "Secure flag is not set in the cookie : omq"),  # likewise
}
"""What it says of every page that is not behind TLS."""


def test_a_scanner_finds_nothing(tmp_path: Path) -> None:
    secret, report = tmp_path / "secret", tmp_path / "report.json"
    secret.write_text("a secret that is long enough\n")
    secret.chmod(0o600)
    # Known by a proxy: it cannot log itself out.
    with world(tmp_path, web_proxy_user_header="Remote-User", web_proxy_secret=secret) as web:
        web.instance.put("A", b"one", b"two")
        ended = subprocess.run(
            ["wapiti", "--url", f"http://{web.host}:{web.port}/", "--scope", "domain",
             "-H", "Remote-User: games", "-H", f"Omq-Proxy-Secret: {secret.read_text().strip()}",
             "--module", ",".join(MODULES), "--depth", "2", "--max-links-per-page", "20",
             "--max-files-per-dir", "5", "--max-scan-time", "60", "--max-attack-time", "20",
             "--timeout", str(int(WAIT_S)), "--store-session", str(tmp_path / "session"),
             "--store-config", str(tmp_path / "config"), "--flush-session", "--no-bugreport",
             "--format", "json", "--output", str(report)],
            check=False, capture_output=True, text=True, timeout=BOUND_S)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        log = web.instance.paths.event_log.read_text()
        assert web.browser("games").get("/").status == 200
    said = json.loads(report.read_text())
    found = {(kind, each["info"]) for part in ("vulnerabilities", "anomalies")
             for kind, several in said[part].items() for each in several}
    assert found == RIGHT, ended.stdout
    assert "a form that is not ours: /queues/A/inhibit" in log, "it came to the forms"
