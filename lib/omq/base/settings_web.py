"""The keys of section [web] of omq.conf: the console; see omq.base.settings, whose base this is."""

from __future__ import annotations

from typing import Final

from omq.base.limits import GIB, KIB, MIB
from omq.base.settings_amqp import AmqpSettings
from omq.base.settings_key import choice, number, part, text

_PATH: Final = r"(/[^\s]*)?"
_PATH_RULE: Final = "an absolute path without spaces, or nothing"
_HOST: Final = r"[A-Za-z0-9.:_-]{1,255}"
_HOSTS: Final = r"([A-Za-z0-9.:_\[\]-]+( |\Z))*"
_BELOW: Final = r"((/[A-Za-z0-9._~-]{1,64}){1,8})?"
_HEADER: Final = r"([A-Za-z0-9-]{1,64})?"
_LINK: Final = r"(https?://[!-~]{1,500}|/[!-~]{0,500})?"


@part
class WebSettings(AmqpSettings):
    """One field per key."""

    # fmt: off
    web_listen_host: str = text("web", "127.0.0.1", _HOST, "a host name or address",
        "address that omq-web listens on; loopback: browsers of this host only. Its socket unit "
        "has an address of its own")
    web_listen_port: int = number("web", 9816, 0, 65535,
        "its port; 0: any free one (in run/, for tests)")
    web_socket: str = choice("web", "on", ("on", "off"),
        "whether omq-web listens at run/web.sock, too, for the REST interface: the kernel says who "
        "asks, authority.conf what he may. Under systemd its socket unit says it")
    web_plain: str = choice("web", "loopback", ("loopback", "everywhere"),
        "where it may listen without TLS: passwords and messages cross the line unencrypted")
    web_tls_certificate: str = text("web", "", _PATH, _PATH_RULE,
        "PEM file with this host's certificate; it is read again at a reload; empty: no TLS")
    web_tls_key: str = text("web", "", _PATH, _PATH_RULE,
        "PEM file with the certificate's key, which others must not read; empty: it is in the "
        "file of the certificate")
    web_hosts: str = text("web", "", _HOSTS, "names of hosts, a blank between, or nothing",
        "names that a browser may call it by, besides localhost, this host's own name and plain "
        "addresses; another name is refused, since it may be another site's")
    web_path: str = text("web", "", _BELOW, "a path such as /omq, or nothing",
        "path below which a reverse proxy shows the console: every link begins with it; the proxy "
        "takes it away from what it passes on")
    web_users: str = text("web", "", _PATH, _PATH_RULE,
        "file of those who have a password, a line 'name:hash' each (omq-web --password), which "
        "others must not read; a name is an account of this host; empty: no login is possible")
    web_tokens: str = text("web", "", _PATH, _PATH_RULE,
        "file of tokens for programs, a line each as omq-web --token prints it, which others must "
        "not read; empty: there are none")
    web_proxy_user_header: str = text("web", "", _HEADER, "the name of a header, or nothing",
        "header in which a reverse proxy says who has logged in there, an account of this host; "
        "believed only with web_proxy_secret; empty: never")
    web_proxy_secret: str = text("web", "", _PATH, _PATH_RULE,
        "file with the secret that the proxy sends as Omq-Proxy-Secret, which others must not "
        "read; with it X-Forwarded-For is believed too")
    web_report_link: str = text("web", "", _LINK, "an address with http or from / on, or nothing",
        "where the report of the analytics is to be found, linked in the console")
    web_connections_max: int = number("web", 200, 1, 10_000,
        "connections at once; one more ends one without a logged-in request so far, or is "
        "closed before a byte is read")
    web_strangers_max: int = number("web", 100, 1, 10_000,
        "of those, connections without a logged-in request so far; the other places are "
        "kept for those with one. One more ends the oldest of the client that has most of them")
    web_client_connections_max: int = number("web", 50, 1, 10_000,
        "of those, connections of one address, on loopback of one account of this host; for a "
        "reverse proxy that is all of them. One more ends the oldest without a login")
    web_socket_connections_max: int = number("web", 5000, 1, 100_000,
        "connections at run/web.sock at once")
    web_user_socket_connections_max: int = number("web", 2500, 1, 100_000,
        "of those, connections of one account of this host")
    web_idle_timeout_s: int = number("web", 15, 1, 3600,
        "time in which a request must have come with all its headers, also the next one")
    web_request_timeout_s: int = number("web", 60, 1, 3600,
        "time from there until its answer has been taken; then the connection is cut")
    web_request_bytes_max: int = number("web", 8 * MIB, 64 * KIB, 256 * MIB,
        "largest request; it bounds the body of a message that is put over it")
    web_follow_max: int = number("web", 100, 1, 10_000,
        "pages that follow figures or events at once; one more gets an error and may retry")
    web_user_follow_max: int = number("web", 50, 1, 10_000,
        "of those, pages of one user")
    web_follow_s: int = number("web", 3600, 1, 86400,
        "a page that follows reconnects after it: its user may have lost the right")
    web_period_ms: int = number("web", 1000, 100, 60_000,
        "how often figures are looked at while a page follows; all pages share one look")
    web_ring_period_s: int = number("web", 10, 1, 300,
        "distance of two points of the sparklines, of which an hour is kept in memory")
    web_session_idle_s: int = number("web", 1800, 60, 86400,
        "a session that was not used this long ends")
    web_session_s: int = number("web", 36_000, 60, 30 * 86400,
        "a session is over after it, used or not")
    web_sessions_max: int = number("web", 1000, 1, 100_000,
        "sessions at once; one more ends the one that was used the longest ago")
    web_user_sessions_max: int = number("web", 20, 1, 1000,
        "sessions of one user at once, likewise")
    web_logins_max: int = number("web", 10, 1, 1_000_000,
        "wrong passwords for one name from one address (on loopback: from one account of this "
        "host) in web_logins_period_s, ten times that from there for all names, and for one name "
        "from everywhere; beyond it none is checked")
    web_logins_period_s: int = number("web", 300, 1, 86400,
        "how long wrong passwords are remembered")
    web_plan_messages_max: int = number("web", 100_000, 1, 10_000_000,
        "messages that one action may change: the plan is held in memory until it is confirmed")
    web_plan_s: int = number("web", 600, 10, 86400,
        "how long a plan may wait for its confirmation")
    web_page_messages: int = number("web", 100, 1, 1000,
        "messages on a page")
    web_preview_bytes: int = number("web", 64 * KIB, 1 * KIB, 4 * MIB,
        "bytes of a body that a page shows")
    web_memory_bytes_max: int = number("web", 256 * MIB, 1 * MIB, 16 * GIB,
        "bodies of requests and answers in memory at once; a request that has no room gets 503, "
        "and a body that a get would return is replaced by its link")
    web_user_memory_bytes_max: int = number("web", 128 * MIB, 1 * MIB, 16 * GIB,
        "of those, bodies of one user")
    web_hold_s: int = number("web", 60, 1, 86400,
        "how long a program may hold a message that it got over the API, from the get or its last "
        "touch on; then that was a failed attempt")
    web_holders_max: int = number("web", 50, 1, 1000,
        "queues that are read for gets of the API at once; each takes a place of clients_max and a "
        "thread")
    web_user_holders_max: int = number("web", 30, 1, 1000,
        "of those, queues that are read for one user and all his tokens")
    web_polls_max: int = number("web", 5000, 1, 100_000,
        "gets of the API that wait for a message at once; one more gets an error and may retry")
    web_user_polls_max: int = number("web", 2500, 1, 100_000,
        "of those, gets of one user")
    web_deliveries_max: int = number("web", 20_000, 1, 1_000_000,
        "messages that programs got over the API and have not settled")
    web_user_deliveries_max: int = number("web", 10_000, 1, 1_000_000,
        "of those, messages of one user")
    web_workers: int = number("web", 4, 1, 64,
        "threads that look and act for pages; more wait")
    web_user_workers: int = number("web", 2, 1, 64,
        "of those, threads that work for one user; less than web_workers, so that no user's long "
        "readings keep the others out")
    web_user_waiting_max: int = number("web", 50, 1, 10_000,
        "requests of one user that wait for those; one more gets an error and may retry")
    # fmt: on
