"""The keys of sections [tls], [submission] and [dns] of omq.conf; see omq.base.settings, whose base
this is: how mail is encrypted on its way in and out, who has to say who he is, and where it goes.
"""

from __future__ import annotations

from typing import Final

from omq.base.limits import GIB, MIB
from omq.base.settings_key import choice, flag, number, part, text
from omq.base.settings_web import WebSettings

_PATH: Final = r"(/[^\s]*)?"
_PATH_RULE: Final = "an absolute path without spaces, or nothing"
_OPTIONAL_HOST: Final = r"([A-Za-z0-9.:_-]{1,255})?"


@part
class TransportSettings(WebSettings):
    """One field per key."""

    # fmt: off
    smtp_tls_certificate: str = text("tls", "", _PATH, _PATH_RULE,
        "PEM file with this host's certificate and those between it and its authority; read again "
        "at a reload; empty: smtp.server has no TLS")
    smtp_tls_key: str = text("tls", "", _PATH, _PATH_RULE,
        "PEM file with the certificate's key, which others must not read; empty: it is in the "
        "file of the certificate")
    smtp_starttls: str = choice("tls", "offer", ("offer", "require"),
        "at smtp_listen_port, with a certificate: mail is taken without TLS too, or only with it "
        "(a host that the whole Internet writes to must offer alone: RFC 3207 section 4)")
    tls_version_min: str = choice("tls", "1.2", ("1.2", "1.3"),
        "oldest version of TLS in and out; older ones are broken (RFC 8996)")
    tls_handshake_timeout_s: int = number("tls", 30, 1, 600,
        "time for all of a handshake, in and out, however it is cut into pieces")
    unix_tls: str = choice("tls", "may", ("none", "may", "encrypt", "verify", "secure", "dane",
                                                "dane-only"),
        "TLS to peers without a line in [tls] of routes.conf: never; where it is offered and works,"
        " whatever the certificate; always; always, and with a certificate for the peer's name; "
        "for the recipients' domain; as its TLSA records say (DANE), else as may; by them alone")
    unix_tls_ca_file: str = text("tls", "", _PATH, _PATH_RULE,
        "PEM file with the authorities that a peer's certificate is verified by; empty: the "
        "system's")
    unix_mta_sts: bool = flag("tls",
        "a domain's policy of MTA-STS (RFC 8461) is fetched, kept in unix.sts/ of the spool, and "
        "binds where [tls] says nothing of the domain; needs unix_mx",
        default=False)
    unix_mta_sts_timeout_s: int = number("tls", 10, 1, 60,
        "time for fetching a policy; a server that has not answered is left alone for 5 minutes")
    unix_tls_reports: bool = flag("tls",
        "`omq tls --mail`, which omq-tls.timer runs each hour, mails reports of the last two days "
        "(RFC 8460) to the domains that ask for them in the DNS; needs unix_mx",
        default=False)
    unix_tls_sessions_bytes_max: int = number("tls", 8 * MIB, 0, 1 * GIB,
        "size at which logs/unix.tls.jsonl, from which `omq tls` and `omq peers --tls` tell "
        "what became of TLS with peers, is renamed to .1; 0: nothing is noted")

    submission_listen_host: str = text("submission", "", _OPTIONAL_HOST,
        "a host name or address, or nothing",
        "address that the two ports below listen on; empty: smtp_listen_host")
    submission_port: int = number("submission", -1, -1, 65535,
        "port for mail programs, 587 by RFC 6409: STARTTLS, then AUTH, before any mail; -1: none, "
        "0: any free one (in run/, for tests)")
    submissions_port: int = number("submission", -1, -1, 65535,
        "the same with TLS from the first byte, 465 by RFC 8314")
    submission_sessions_max: int = number("submission", 100, 1, 10_000,
        "sessions at once at each of these two ports; those of smtp_listen_port take none of them")
    submission_users: str = text("submission", "", _PATH, _PATH_RULE,
        "file of those who may send there, a line 'name:hash' each (argon2; see MAIL.md), which "
        "others must not read; needed for the two ports above; needs the extra omq[mail]")
    submission_workers: int = number("submission", 2, 1, 100,
        "passwords that are checked at once; each takes as much memory as its hash says, mostly "
        "64 MiB")
    smtp_client_logins_max: int = number("submission", 10, 1, 1_000_000,
        "wrong passwords of one client in smtp_client_period_s; beyond it none is checked (454)")
    smtp_login_messages_max: int = number("submission", 0, 0, 1_000_000,
        "messages of one user who has logged in, in smtp_client_period_s, wherever he comes from; "
        "0: no limit")
    smtp_login_recipients_max: int = number("submission", 0, 0, 10_000_000,
        "recipients of one such user in that time, also refused ones; 0: no limit")
    smtp_sender_domain_messages_max: int = number("submission", 0, 0, 1_000_000,
        "messages in that time whose sender is of one domain, of all users and clients of "
        "smtp_relay_networks together; those of strangers, who could name any sender, are not "
        "counted; 0: no limit")
    unix_auth_file: str = text("submission", "", _PATH, _PATH_RULE,
        "file of names and passwords for peers, a line 'host[:port] name:password' each, which "
        "others must not read; such a peer is used with TLS only")

    smtp_milters: str = text("milter", "", r"((inet:\S+:[0-9]{1,5}|unix:/\S+)( +|$))*",
        "inet:host:port and unix:/path, separated by spaces, or nothing",
        "filters that are asked about each mail of smtp.server by the milter protocol, in this "
        "order, before smtp_filter; empty: none")
    smtp_milter_default: str = choice("milter", "tempfail", ("tempfail", "accept", "reject"),
        "what happens to a mail if a filter gives no valid answer: it is "
        "refused for now (451), accepted, or refused permanently")
    smtp_milter_timeout_s: int = number("milter", 60, 1, 600,
        "time to reach a filter, and for its answer at each stage")

    smtp_policy_services: str = text("milter", "", r"((inet:\S+:[0-9]{1,5}|unix:/\S+)( +|$))*",
        "inet:host:port and unix:/path, separated by spaces, or nothing",
        "services that are asked about each recipient by Postfix's policy protocol (postgrey, "
        "policyd-spf), in this order, before the milters; empty: none")
    smtp_policy_for: str = choice("milter", "strangers", ("strangers", "all"),
        "about whose recipients: of clients that may not send to everybody, or all")
    smtp_policy_default: str = choice("milter", "tempfail", ("tempfail", "accept"),
        "what happens to a recipient if a service gives no valid answer: it is "
        "refused for now (451), or that service is passed over")
    smtp_policy_timeout_s: int = number("milter", 30, 1, 600,
        "time to reach a policy service and for its answer")

    smtp_verify: bool = flag("mail",
        "recipients of strangers whose mail goes to a host of [peers] or unix_smarthost are "
        "verified there (RCPT without a text); one that it does not know is refused, one that "
        "cannot be verified in time is refused for now",
        default=False)
    smtp_verify_timeout_s: int = number("mail", 10, 1, 120,
        "time that a session waits for it, then 450; the answer is remembered all the same")
    smtp_verify_minute_max: int = number("mail", 120, 1, 100_000,
        "probes begun in a minute; beyond it 450, for what is not remembered")
    smtp_verify_probes_max: int = number("mail", 20, 1, 500,
        "probes at once, each a thread and a connection")
    smtp_verify_domain_max: int = number("mail", 4, 1, 500,
        "of these for one domain: a slow host leaves room for the others")
    smtp_verify_positive_s: int = number("mail", 86_400, 1, 2_678_400,
        "how long it is remembered that there is a recipient")
    smtp_verify_negative_s: int = number("mail", 3600, 1, 604_800,
        "how long that there is none")

    soft_bounce: bool = flag("mail",
        "nothing is refused or given up permanently: clients get 4yz instead of 5yz, and mail "
        "that would be returned stays where it is and is tried again; for the days of a change",
        default=False)
    delay_warning_s: int = number("mail", 4 * 3600, 0, 30 * 86400,
        "a sender gets one report when mail for another host has waited this long; 0: never")
    pipe_timeout_s: int = number("mail", 300, 1, 86400,
        "time that a command of [pipes] in routes.conf has for a mail; then it is killed")
    xport_command: str = text("mail", "/usr/sbin/sendmail -i -f {sender} -- {recipients}",
        r"/\S+( +\S+)*( +\{recipients\})( +\S+)*",
        "/path/of/a/command and its words, {recipients} one of them",
        "command that xport.out gives each mail to, on its standard input; no shell reads it. "
        "{sender} in a word stands for the sender, the word {recipients} for all recipients")
    xport_wait: bool = flag("mail",
        "a reader of xport.out waits for each command before it starts the next, so that there are "
        "no more of them than readers; no: one for each message of its batch (services.conf)",
        default=True)
    xport_timeout_s: int = number("mail", 300, 1, 86400,
        "time that this command has for a mail; then it is killed, and the mail is tried again")
    unix_mx: bool = flag("dns",
        "look up the hosts that take mail for a domain (MX, A, AAAA), where routes.conf names no "
        "peer for it and there is no unix_smarthost; needs the extra omq[mail]",
        default=False)
    dns_servers: str = text("dns", "", r"([0-9a-fA-F.:\[\]]+( +[0-9a-fA-F.:\[\]]+)*)?",
        "addresses like 192.0.2.53, 127.0.0.1:5353 or [2001:db8::53]:53, or nothing",
        "name servers that are asked; empty: those of /etc/resolv.conf")
    dns_validates: bool = flag("dns",
        "the name servers verify DNSSEC, and the way to them is safe (a resolver on this host): "
        "what they say is signed counts as signed; DANE needs it",
        default=False)
    dns_timeout_s: int = number("dns", 10, 1, 300,
        "time for all questions about a domain; without an answer its mail waits")
    dns_ttl_max_s: int = number("dns", 3600, 30, 604_800,
        "longest time for which an answer is believed, whatever it says itself")
    unix_ip: str = choice("dns", "any", ("any", "ipv4", "ipv6"),
        "addresses of exchangers that are used: on a host without IPv6 each try of it costs time")
    # fmt: on
