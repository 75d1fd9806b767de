"""Rules of mail that nobody sees while they work: how a line is secured, who is verified, what is
rewritten, what checks look at. Each is seen, and is not seen any more once it is taken out of the
source (a mutant, as in delivery/test_slow_peers): so a rule that stopped working would not pass."""

from __future__ import annotations

import importlib
import inspect
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from omq.base.settings import Settings
from omq.services.mail.dane import NotMatchedError
from omq.services.mail.exchanger import Exchanger
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.peer_line import Security
from omq.services.mail.routes import Peer, Routes, TlsRule
from omq.services.mail.sts_policy import StsPolicy
from omq.services.mail.watched_file import Watched

Names = Mapping[str, Any]
Sees = Callable[[Names], bool]
Mutant = tuple[str, str]
RECORD = (3, 1, 1, "00" * 32)
MX = "mx.a.test"


def names_of(module: str, mutant: Mutant | None) -> Names:
    """Of a module of omq.services.mail, of which the mutant's text is another."""
    found = importlib.import_module(f"omq.services.mail.{module}")
    if mutant is None:
        return vars(found)
    text = inspect.getsource(found)
    assert text.count(mutant[0]) == 1, "what is taken out is there, once"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(text.replace(*mutant))
        spec = spec_from_file_location(found.__name__, file)
        assert spec is not None
        assert spec.loader is not None
        made = module_from_spec(spec)
        spec.loader.exec_module(made)
    return vars(made)


def refuses(call: Callable[[], object], *errors: type[Exception]) -> bool:
    try:
        call()
    except errors:
        return True
    return False


# how a line is secured (tls_policy, peer_certificate, dane, sts_policy)


def policy(names: Names, level: str, site: str = "may", host: str = MX, dane: str = "",
           sts: StsPolicy | None = None, **rule: Any) -> Any:
    made = TlsRule(level, tuple(rule.pop("hosts", ()))) if level else None
    exchanger = Exchanger(0, host, (), dane, (RECORD,) if dane == "usable" else ())
    return names["DomainPolicy"]("a.test", made, site, sts, **rule).of(exchanger)


def sts(mode: str = "enforce", *mx: str) -> StsPolicy:
    return StsPolicy("1", mode, mx or (MX,), 1000)


def dane_by_records(names: Names) -> bool:
    found = policy(names, "dane", dane="usable")
    return (found.level, found.tlsa, found.kind) == ("dane", (RECORD,), "tlsa")


def dane_without_an_answer(names: Names) -> bool:
    return all(policy(names, level, dane="no answer", sts=sts()).__class__.__name__ == "Refused"
               for level in ("dane", "dane-only"))


def dane_unusable_wants_tls(names: Names) -> bool:
    return bool(policy(names, "dane", dane="unusable").level == "encrypt"
                and policy(names, "dane-only", dane="unusable").result == "dane-required"
                and policy(names, "dane-only").result == "dane-required")


def dane_before_sts(names: Names) -> bool:
    return bool(policy(names, "", "dane", dane="usable", sts=sts("enforce", "x.test")).level
                == "dane")


def sts_where_dane_is_silent(names: Names) -> bool:
    return [policy(names, level, "dane", sts=sts()).level for level in ("", "dane")] == [
        "verify", "verify"]


def a_line_before_sts(names: Names) -> bool:
    found = [policy(names, level, sts=sts("enforce", "x.test")) for level in
             ("none", "encrypt", "verify")]
    return [getattr(each, "level", "refused") for each in found] == ["none", "encrypt", "verify"]


def sts_enforced(names: Names) -> bool:
    return bool(policy(names, "", sts=sts()).level == "verify" and policy(
        names, "", sts=sts("enforce", "x.test")).result == "validation-failure")


def sts_tested(names: Names) -> bool:
    right, wrong = policy(names, "", sts=sts("testing")), policy(
        names, "", sts=sts("testing", "x.test"))
    return (right.level, wrong.level, bool(wrong.noted)) == ("testing", "may", True)


def a_verified_name_is_known(names: Names) -> bool:
    """One that the DNS alone names is none."""
    return bool(policy(names, "verify", host="mx.evil.test").result == "validation-failure"
                and policy(names, "verify", host="mx.evil.test", named=True).level == "verify"
                and policy(names, "verify", host="x.b.test", hosts=["*.b.test"]).level == "verify")


def optional_where_the_domain_asks(names: Names) -> bool:
    """What this host's administrator asks for stays."""
    free = [policy(names, "", "dane", dane="no answer", optional=True),
            policy(names, "", sts=sts("enforce", "x.test"), optional=True)]
    return [getattr(each, "kind", "refused") for each in free] == ["", ""] and (
        policy(names, "dane-only", optional=True).result == "dane-required"
        and policy(names, "", "encrypt", sts=sts(), optional=True).level == ""
        and policy(names, "").kind != "")


def optional_by_one_field(names: Names) -> bool:
    said = names["tls_is_optional"]
    return [said(text, 1000) for text in (
        b"TLS-Required: No\r\n\r\n", b"TLS-Required: No\r\nTLS-Required: Yes\r\n\r\n",
        b"X: No\r\n\r\nTLS-Required: No\r\n")] == [True, False, False]


def who_wants_reports(names: Names) -> bool:
    one, two = b"v=TLSRPTv1; rua=mailto:a@b.test,mailto:a b@c.test", b"v=TLSRPTv1; rua=mailto:c@d.e"
    asked = names["addresses"]
    return [asked([one]), asked([one, two])] == [(["a@b.test"], 1), ([], 0)]


def secure_is_for_the_domain(names: Names) -> bool:
    return bool(policy(names, "secure", host="mx.evil.test").level == "secure=a.test,*.a.test"
                and policy(names, "secure", hosts=["b.test"]).level == "secure=b.test"
                and policy(names, "secure", host="h.test", named=True).level == "secure=h.test")


def names_of_certificates(names: Names) -> bool:
    def right(name: str, *patterns: str) -> bool:
        return not refuses(lambda: names["_check_names"](
            {"subjectAltName": [("DNS", name)]}, patterns), NotMatchedError)

    return (right("a.test", "a.test") and right("mx.a.test", "*.a.test")
            and right("*.a.test", "mx.a.test") and not right("*.a.test", "a.b.a.test")
            and not right("evil.test", "a.test", "*.a.test")
            and not right("*.test", "*.a.test") and not right("*.a.test", "x*.a.test")
            and not right("xya.test", "mx.a.test"))


def failures_have_their_word(names: Names) -> bool:
    def of(code: int) -> str:
        error = ssl.SSLCertVerificationError("x")
        error.verify_code = code
        return str(names["result_of"](error))

    return [of(10), of(62), of(64), of(20)] == [
        "certificate-expired", "certificate-host-mismatch", "certificate-host-mismatch",
        "certificate-not-trusted"]


def records_that_count(names: Names) -> bool:
    digest, long = b"x" * 32, b"y" * 64
    return bool(names["usable"]([
        (0, 1, 1, digest), (1, 1, 1, digest), (3, 2, 1, digest), (2, 1, 1, b"short"),
        (3, 1, 3, digest), (3, 1, 0, b""), (2, 0, 1, digest), (3, 1, 1, digest),
        (3, 1, 2, long)]) == ((2, 0, 1, digest.hex()), (3, 1, 2, long.hex())))


def a_star_is_one_label(names: Names) -> bool:
    made = names["StsPolicy"]("1", "enforce", ("*.a.test", "b.test"), 1)
    return [made.allows(each) for each in (
        "mx.a.test", "MX.a.test.", "a.test", "x.mx.a.test", "b.test", "x.b.test")] == [
        True, True, False, False, True, False]


def a_policy_says_all(names: Names) -> bool:
    def wrong(text: str) -> bool:
        return refuses(lambda: names["policy_of"](text.encode(), "1"), names["NotAPolicyError"])

    head = "version: STSv1\nmode: enforce\nmx: a.test\n"
    made = names["policy_of"](f"{head}max_age: 999999999\nmode: none\n".encode(), "1")
    return (made.mode == "enforce" and made.max_age_s == 31_557_600
            and wrong(head) and wrong(head.replace("STSv1", "STSv2") + "max_age: 1")
            and wrong("version: STSv1\nmode: enforce\nmax_age: 1\n")
            and wrong(head.replace("enforce", "some") + "max_age: 1\n")
            and wrong(head + "mx: a b\nmax_age: 1\n"))


def one_record_of_a_policy(names: Names) -> bool:
    found = names["identity_of"]
    return [found(each) for each in (
        [b"v=STSv1; id=1"], [b"v=STSv1; id=1", b"v=spf1"], [b"v=STSv1; id=1", b"v=STSv1; id=2"],
        [b"v=STSv10; id=1"], [b"v=STSv1; id=a b"])] == ["1", "1", "", "", ""]


# verify (recipient_probes)


def what_is_about_an_address(names: Names) -> bool:
    no_such = names["_no_such"]
    return [no_such(*each) for each in (
        (550, "5.1.1 x"), (550, "5.2.1 x"), (550, "5.7.1 x"), (550, "x"), (551, "x"), (553, "x"),
        (552, "x"), (554, "x"), (554, "5.1.1 x"), (450, "5.1.1 x"), (450, "x"))] == [
        True, True, False, True, True, True, False, False, True, False, False]


def probes(names: Names, **settings: Any) -> Any:
    return names["Probes"](Settings(**settings), Routes(), Security(), now=lambda: 0.0)


def probes_at_once(names: Names) -> bool:
    """No thread begins: what is asked about is there already."""
    made = probes(names, smtp_verify_probes_max=2)
    made._asked = {"a@x.test": Future(), "b@x.test": Future()}
    peer = Peer("127.0.0.1", 1)
    return isinstance(made._begin("c@y.test", peer), str) and not isinstance(
        made._begin("a@x.test", peer), str)


def probes_at_a_domain(names: Names) -> bool:
    made = probes(names, smtp_verify_domain_max=1)
    made._at_domains["x.test"] = 1
    return isinstance(made._begin("c@x.test", Peer("127.0.0.1", 1)), str)


def probes_in_a_minute(names: Names) -> bool:
    made = probes(names, smtp_verify_minute_max=2)
    made._begun.extend((-1.0, -2.0, 0.0)[:2])
    return isinstance(made._begin("c@x.test", Peer("127.0.0.1", 1)), str)


def what_is_remembered_has_its_time(names: Names) -> bool:
    """A thread that is never begun tells whether it would be asked again."""
    made = probes(names, smtp_verify_probes_max=1)
    made._asked["z@z.test"] = Future()  # so that a new question is refused, and begins nothing
    made.known["a@x.test"] = names["Verdict"]("known", 1.0)
    made.known["b@x.test"] = names["Verdict"]("known", -1.0)
    peer = Peer("127.0.0.1", 1)
    return bool(made._begin("a@x.test", peer) == "known"
                and made._begin("b@x.test", peer).startswith("450"))


# rewriting, header_addresses


def rewriting(names: Names, **more: Any) -> Any:
    return names["Rewriting"](**{"canonical": Table({"a@x.test": ("b@y.test",)}), **more})


class Table:
    """A map as it is asked."""

    names = "t"

    def __init__(self, rows: dict[str, tuple[str, ...]]) -> None:
        self.rows = rows


def look(maps: Any, key: str) -> tuple[str, ...] | None:
    found: tuple[str, ...] | None = maps.rows.get(key)
    return found


def kinds(names: Names) -> Any:
    return names["Class"]


def the_order_of_maps(names: Names) -> bool:
    kind = kinds(names)
    made = rewriting(names, sender=Table({"s@x.test": ("a@x.test",)}),
                     recipient=Table({"r@x.test": ("a@x.test",)}))
    return [made.of(address, each, look) for address, each in (
        ("s@x.test", kind.HEADER_SENDER), ("s@x.test", kind.HEADER_RECIPIENT),
        ("r@x.test", kind.ENVELOPE_RECIPIENT), ("r@x.test", kind.ENVELOPE_SENDER),
        ("", kind.ENVELOPE_SENDER))] == [
        "b@y.test", "s@x.test", "b@y.test", "r@x.test", ""]


def classes_are_kept_apart(names: Names) -> bool:
    kind = kinds(names)
    made = rewriting(names, canonical_classes=frozenset((kind.HEADER_SENDER,)))
    return [made.of("a@x.test", each, look) for each in kind] == [
        "a@x.test", "a@x.test", "b@y.test", "a@x.test"]


def a_key_has_no_case_and_no_quotes(names: Names) -> bool:
    made = rewriting(names)
    return all(made.of(each, kinds(names).HEADER_SENDER, look) == "b@y.test"
               for each in ("A@X.test", '"a"@x.test'))


def a_domain_keeps_the_local_part(names: Names) -> bool:
    made = rewriting(names, canonical=Table({"big@x.test": ("@y.test",)}))
    return bool(made.of("Big@x.test", kinds(names).HEADER_SENDER, look) == "Big@y.test")


def several_values_are_none(names: Names) -> bool:
    made = rewriting(names, canonical=Table({"a@x.test": ("b@y.test", "c@y.test")}))
    return refuses(lambda: made.of("a@x.test", kinds(names).HEADER_SENDER, look), MapFailed)


def hosts_are_hidden(names: Names) -> bool:
    made = names["Masquerade"](("!lab.x.test", "x.test"), frozenset(("root",)))
    return [made.of(each, kinds(names).HEADER_SENDER) for each in (
        "a@h.x.test", "a@x.test", "a@yx.test", "a@h.lab.x.test", "a@lab.x.test", "root@h.x.test")
        ] == ["a@x.test", "a@x.test", "a@yx.test", "a@h.lab.x.test", "a@lab.x.test",
              "root@h.x.test"] and made.of(
                  "a@h.x.test", kinds(names).ENVELOPE_RECIPIENT) == "a@h.x.test"


def values_that_cannot_be(names: Names) -> bool:
    problem = names["rewrite_problem"]
    return not any(problem(each) for each in ("a@b.test", "@b.test")) and all(
        problem(each) for each in ("a", "a b@c.test", "@", "@ä.test", "ä@b.test", "a@b@c.test"))


def only_addresses_change(names: Names) -> bool:
    kind = kinds(names)
    text = b"Subject: a@x.test\r\nFrom: a@x.test\r\nTo: a@x.test\r\n\r\nTo: a@x.test\r\n"
    made = names["with_addresses"](text, {(kind.HEADER_RECIPIENT, "a@x.test"): "b@y.test"}, 1000)
    return bool(made == text.replace(b"\nTo: a@x", b"\nTo: b@y", 1)
                and list(names["header_addresses"](text, 1000)) == [
                    (kind.HEADER_SENDER, "a@x.test"), (kind.HEADER_RECIPIENT, "a@x.test")])


def where_addresses_are(names: Names) -> bool:
    found = names["addresses_in"]
    return {field: [each.address for each in found(b"To: " + field)] for field in FIELDS} == FIELDS


FIELDS: Final = {
    b"a@x.test: c@b.test;": ["c@b.test"], b"c@d.test, <a@b.test": [],
    b"n: a@b.test;": ["a@b.test"], b"(x@y.test) a@b.test": ["a@b.test"],
    b'"x@y.test" <a@b.test>': ["a@b.test"], b"x@y.test <a@b.test>": ["a@b.test"],
    b"<@r.test:a@b.test>": ["a@b.test"], b"<a@b.test> <c@d.test>": [], b"<a@b.test": [],
    b"a @b.test": [], b"a@b@c.test": [], b"(x a@b.test": [], b"\xff@b.test": [],
    b"((x) y) a@b.test": ["a@b.test"], b"(\\) x) a@b.test": ["a@b.test"]}


# checks (check_file, mime_pieces, content_checks)


def rules(names: Names, text: str, *, of_fields: bool = True) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "h"
        path.write_text(text)
        return names["CheckFile"](Watched("h", path), of_fields).rules()


def due(names: Names, text: str, line: str) -> str:
    found = rules(names, text).first(line, lambda: None)
    return f"{found.action.value} {found.text}".strip() if found is not None else ""


def the_first_that_matches(names: Names) -> bool:
    return [due(names, text, "Subject: Money") for text in (
        "/money/ WARN a\n/subject/ WARN b\n", "!/money/ WARN a\n/subject/ WARN b\n",
        "!/none/ WARN a\n", "/money/i WARN a\n", "/Money/i WARN a\n",
        "if /money/\n/none/ WARN a\nendif\n/subject/ WARN b\n",
        "if /none/\n/money/ WARN a\nif /x/\nendif\n/money/ WARN a\nendif\n/subject/ WARN b\n",
        "if !/none/\n/money/ WARN a\nendif\n")] == [
        "WARN a", "WARN b", "WARN a", "", "WARN a", "WARN b", "WARN b", "WARN a"]


def a_dot_is_a_line_end_too(names: Names) -> bool:
    return [due(names, text, "a: b\n c\nd") for text in (
        "/b.+c/ WARN\n", "/b.+c/s WARN\n", "/^d/ WARN\n", "/^d/m WARN\n")] == [
        "WARN", "", "", "WARN"]


def what_a_bracket_matched(names: Names) -> bool:
    return [due(names, "/x: (.*)/ WARN $1 ${1} $$1\n", each) for each in ("x: a", "x: a\r\nB: c")
            ] == ["WARN a a $1", "WARN a B: c a B: c $1"]


def time_is_looked_at(names: Names) -> bool:
    ticks: list[int] = []
    rules(names, "/a/ WARN\n" * 7).first("b", lambda: ticks.append(1))
    return len(ticks) == 7


WRONG: Final = (
    "/(?:.{0,1000})z/ REJECT\n", "/a/ FILTER x\n", "/a/ PREPEND no field\n", "/a/ REDIRECT x@\n",
    "/(a)/ REDIRECT $1@b.test\n", "/a/ REJECT $1\n", "!/(a)/ REJECT $1\n", "/a/ REJECT ä\n",
    "/a/ REJECT " + "x" * 501 + "\n", "/a/x REJECT\n", "if /a/\n", "endif\n", "/a/ PREPEND\n",
    "/a/ WARN\n" * 1001, "/" + "(?:)" * 1100 + "a/ WARN\n")


def wrong_lines_are_seen(names: Names) -> bool:
    return all(refuses(partial(rules, names, each), MapFailed) for each in WRONG) and (
        refuses(lambda: rules(names, "/a/ REPLACE\n", of_fields=False), MapFailed))


def replies(names: Names) -> bool:
    action = names["Action"].REJECT
    return [names["reply_of"](names["Matched"](action, text, "")) for text in (
        "", "no", "5.6.7 no", "4.6.7 no", "5.6.7", "x" * 900)] == [
        "550 5.7.1 the content is not taken", "550 5.7.1 no", "550 5.6.7 no", "550 5.7.1 4.6.7 no",
        "550 5.6.7 the content is not taken", "550 5.7.1 " + "x" * 500]


def pieces(names: Names, text: bytes) -> list[tuple[str, bytes]]:
    return [(each.kind.value[0], text[each.start : each.end].strip())
            for each in names["Pieces"](text, 1 << 20)]


MIME: Final = (b"Content-Type: multipart/x; boundary=o\n\nb0\n--o\nX: 1\n\nb1\n--other\n--o\n"
               b"Content-Type: message/rfc822\n\nX: 2\nContent-Type: multipart/y; boundary=i\n\n"
               b"--i\nX: 3\n\nb2\n--o--\nX: b3\n--i\nX: b4\n--o\nX: b5\n")


def parts_are_found(names: Names) -> bool:
    return pieces(names, MIME) == [
        ("h", b"Content-Type: multipart/x; boundary=o"), ("b", b"b0"), ("m", b"X: 1"), ("b", b"b1"),
        # a boundary is known by its beginning: --other is one of o
        ("m", b"Content-Type: message/rfc822"), ("n", b"X: 2"),
        ("n", b"Content-Type: multipart/y; boundary=i"), ("m", b"X: 3"), ("b", b"b2"),
        *[("b", line) for line in (b"X: b3", b"--i", b"X: b4", b"--o", b"X: b5")]]


def lines_are_bounded(names: Names) -> bool:
    part = b"--o\n\n" + b"x" * 60 + b"\n"
    one = b"Content-Type: multipart/x; boundary=o\n\n" + (b"y" * 60 + b"\n") * 2000 + part
    all_of_them = b"Content-Type: multipart/x; boundary=o\n\n" + (
        part + (b"y" * 60 + b"\n") * 800) * 40
    seen = pieces(names, one)
    taken = sum(len(line) for kind, line in pieces(names, all_of_them) if kind == "b")
    return (sum(line.startswith(b"y") for _, line in seen) * 61 < 52_000 and seen[-1][1][:1] == b"x"
            and taken < (1 << 20) + 100)


def levels_are_bounded(names: Names) -> bool:
    made = names["Pieces"](b"".join(
        b"Content-Type: multipart/x; boundary=b%d\n\n--b%d\n" % (each, each)
        for each in range(300)), 1 << 20)
    list(made)
    nested = list(names["Pieces"](b"Content-Type: message/rfc822\n\n" * 300, 1 << 20))
    return len(made._boundaries) == 100 and sum(
        each.kind.value != "body" for each in nested) == 100


TEXT: Final = b"From: a@b.test\r\nX: 1\r\nX: 2\r\n\r\nline\r\n"


def checked(names: Names, text: str, mail: bytes = TEXT, ends: float = 1e9, **more: str) -> Any:
    check_file, mime = names_of("check_file", None), names_of("mime_pieces", None)
    with TemporaryDirectory() as folder:
        files = {}
        for name, content in {"header": text, **more}.items():
            path = Path(folder) / name
            path.write_text(content)
            files[mime["Kind"](name)] = check_file["CheckFile"](
                Watched(name, path), of_fields=name != "body")
        return names["Checks"](files).of(mail, 1 << 20, ends)


def what_becomes_of_a_mail(names: Names) -> bool:
    return [(found.refusal, found.discarded, found.held, found.redirected, found.added,
             found.text) for found in (
        checked(names, f"/^x/ {action}\n") for action in (
            "REJECT no", "DISCARD", "HOLD look", "REDIRECT c@d.test", "BCC c@d.test",
            "PREPEND Y: 1", "REPLACE Y: 1", "IGNORE", "STRIP", "WARN", "DUNNO"))] == [
        ("550 5.7.1 no", False, "", "", (), TEXT), ("", True, "", "", (), TEXT),
        ("", False, "look", "", (), TEXT), ("", False, "", "c@d.test", (), TEXT),
        ("", False, "", "", ("c@d.test",), TEXT),
        ("", False, "", "", (), TEXT.replace(b"X", b"Y: 1\r\nX")),
        ("", False, "", "", (), TEXT.replace(b"X: 1", b"Y: 1").replace(b"X: 2", b"Y: 1")),
        *[("", False, "", "", (), TEXT.replace(b"X: 1\r\nX: 2\r\n", b""))] * 2,
        *[("", False, "", "", (), TEXT)] * 2]


def pass_ends_it(names: Names) -> bool:
    return not checked(names, "/^from/ PASS\n/^x/ DISCARD\n").discarded


def a_body_has_its_file(names: Names) -> bool:
    return bool(not checked(names, "/line/ DISCARD\n").discarded
                and checked(names, "/none/ OK\n", body="/line$/ DISCARD\n").discarded)


def time_is_over(names: Names) -> bool:
    return refuses(lambda: checked(names, "/x/ OK\n", ends=-1.0), MapFailed)


def a_fold_is_one_line_end(names: Names) -> bool:
    return bool(checked(names, "/a\\n b$/ DISCARD\n", b"X: a\r\n b\r\n\r\n").discarded)


def a_field_is_looked_at_up_to_its_limit(names: Names) -> bool:
    text = b"X: " + b"a" * 200_000 + b"b\r\n\r\n"
    return bool(not checked(names, "/b$/ DISCARD\n", text).discarded
                and checked(names, "/a{9}$/ DISCARD\n", text).discarded)


def notes_have_a_number(names: Names) -> bool:
    return len(checked(names, "/./ WARN\n", b"X: 1\r\n" * 100 + b"\r\n").notes) == 20


CASES: Final[tuple[tuple[str, Sees, tuple[Mutant, ...]], ...]] = (
    ("tls_policy", dane_by_records, (('if host.dane == USABLE', 'if False'),)),
    ("tls_policy", dane_without_an_answer, (('host.dane not in ("", UNUSABLE)', "False"),)),
    ("tls_policy", dane_unusable_wants_tls, (
        ('if host.dane == UNUSABLE', 'if False'), ('if self.level == "dane-only"', "if False"))),
    ("tls_policy", dane_before_sts, (("if by_dane is not None", "if False"),)),
    ("tls_policy", sts_where_dane_is_silent, (
        ('level = "may"\n', "pass\n"), ('self.rule is None or self.rule.level == "dane"',
                                       "self.rule is None"))),
    ("tls_policy", a_line_before_sts, (
        ('(self.rule is None or self.rule.level == "dane") and', "True and"),)),
    ("tls_policy", sts_enforced, (
        ("if sts.allows(host.host)", "if True"),
        ('    if sts.mode == "enforce":', "    if False:"),
        ('"verify" if sts.mode == "enforce"', '"may" if sts.mode == "enforce"'))),
    ("tls_policy", sts_tested, (
        ("noted=text)", 'noted="")'), ("else TESTING,", 'else "verify",'))),
    ("tls_policy", a_verified_name_is_known, (
        ('level == "verify" and not self.named', "False"),
        ("and not self.named and", "and"))),
    ("tls_policy", optional_where_the_domain_asks, (
        ('"may" if self.optional and self.site in DANE else self.site', "self.site"),
        ("None if self.optional else self.sts", "self.sts"),
        ("replace(found, kind=UNCOUNTED)", "found"),
        ("if not self.optional or isinstance", "if isinstance"),
        ('        if self.rule is not None:\n            return self.rule.level\n', ""))),
    ("mail_message", optional_by_one_field, (
        ('said == [b"no"]', 'b"no" in said'),
        (' if name == b"tls-required"]', "]"))),
    ("tls_report_mail", who_wants_reports, (
        ("if len(found) != 1:", "if not found:"), ("not _PLAIN.fullmatch(address) or (", "("))),
    ("tls_policy", secure_is_for_the_domain, (
        ("(host.host,) if self.named else ()", "(host.host,)"),
        ("patterns or (domain, f'*.{domain}')", "(domain, f'*.{domain}')"))),
    ("peer_certificate", names_of_certificates, (
        ("fnmatchcase(name, pattern) or _wildcard(name, pattern)", "True"),
        (" or _wildcard(name, pattern)", ""), ('"*" not in pattern and', ""),
        ('name.startswith("*.") and', ""))),
    ("peer_certificate", failures_have_their_word, (
        ("error.verify_code == _EXPIRED", "False"), ("error.verify_code in _MISMATCHES", "False"))),
    ("dane", records_that_count, (
        ("usage not in (TA, EE) or", "False or"), ("or selector not in (0, 1)", ""),
        ("0 < len(data) <= _BYTES_MAX", "True"), ("len(data) == _DIGESTS[matching][0]", "True"),
        ("in (_WHOLE, strongest.get((usage, selector)))", "is not None"))),
    ("sts_policy", a_star_is_one_label, (
        ('name.partition(".")[2] == each[2:]', "name.endswith(each[1:])"),
        ('.lower().rstrip(".")\n        return any', "\n        return any"))),
    ("sts_policy", a_policy_says_all, (
        ("fields.setdefault(key, value)", "fields[key] = value"),
        ('fields.get("version") != _VERSION', "False"), ("mode not in MODES", "False"),
        ('not patterns and mode != "none"', "False"), ("min(int(age), AGE_S_MAX)", "int(age)"),
        ("    if problem:", "    if False:"))),
    ("sts_policy", one_record_of_a_policy, (
        ("len(found) != 1", "not found"), (" and _ID.fullmatch(value.strip())", ""))),
    ("recipient_probes", what_is_about_an_address, (
        ("enhanced[1] in _ABOUT_ADDRESSES", "True"), ("500 <= code <= 599 and", ""),
        ("return code in _NO_SUCH", "return 500 <= code <= 599"))),
    ("recipient_probes", probes_at_once, (
        ("len(self._asked) >= settings.smtp_verify_probes_max", "False"),
        ("if running is not None", "if False"))),
    ("recipient_probes", probes_at_a_domain, (
        ("self._at_domains[domain] >= settings.smtp_verify_domain_max", "False"),)),
    ("recipient_probes", probes_in_a_minute, (
        ("len(self._begun) >= settings.smtp_verify_minute_max", "False"),
        ("<= now - MINUTE_S", "<= now"))),
    ("recipient_probes", what_is_remembered_has_its_time, (
        (" and found.until > now", ""), ("if found is not None and", "if False and"))),
    ("rewriting", the_order_of_maps, (
        ("if kind in self.sender_classes", "if True"),
        ("if kind in self.recipient_classes", "if True"),
        ("found = _mapped(self.canonical, found, look)", "found = found"),
        ("_mapped(self.canonical, found, look)", "_mapped(self.canonical, address, look)"))),
    ("rewriting", classes_are_kept_apart, (("if kind in self.canonical_classes", "if True"),)),
    ("rewriting", a_key_has_no_case_and_no_quotes, (
        ('f"{plain_local(local).lower()}@{domain}")', 'f"{plain_local(local)}@{domain}")'),
        ('f"{plain_local(local).lower()}@{domain}")', 'f"{local.lower()}@{domain}")'))),
    ("rewriting", a_domain_keeps_the_local_part, (
        ('f"{local}{value}" if', 'f"{local.lower()}{value}" if'),
        ('f"{local}{value}" if value.startswith("@") else value', "value"))),
    ("rewriting", several_values_are_none, (("if len(found) > 1", "if False"),)),
    ("rewriting", hosts_are_hidden, (
        ('domain == name or domain.endswith(f".{name}")', "domain.endswith(name)"),
        ("plain_local(local).lower() in self.exceptions", "False"),
        ("domain == name or each != name else", "domain == name else"),
        ("kind not in self.classes or", ""))),
    ("rewriting", values_that_cannot_be, (
        ("value.isascii() and not domain_problem", "not domain_problem"),
        ('"@" not in value or " " in value', '" " in value'),
        (" or grammar_problem(value)", ""), ("smtputf8=False", "smtputf8=True"))),
    ("rewriting", only_addresses_change, (
        ("if name in SENDER_FIELDS", "if name"), ("elif name in RECIPIENT_FIELDS", "elif name"),
        ("answers.get((kind, each.address), each.address)",
         "next(iter(answers.values()), each.address)"))),
    ("header_addresses", where_addresses_are, (
        ('if not done and kind != ":"', "if not done"),
        ("depth += {", "depth = {"), (rb"\\.|[()]".decode(), "[()]"),
        ("tokens[number].end != tokens[number + 1].start", "False"),
        ('if tokens and tokens[0].kind == "@"', "if False"),
        ("    if inner is not None:\n        return ()\n    return (", "    return ("),
        ("            if done:\n                return ()\n", ""),
        ("() if done else _address(field, piece)", "_address(field, piece)"))),
    ("check_file", the_first_that_matches, (
        ("(match is None) != rule.negated", "match is None"), ("at = rule.end", "pass"),
        ('"i" in flags, False', "False, False"), ('"i" in flags, False', "True, False"))),
    ("check_file", a_dot_is_a_line_end_too, (
        ('"s" not in flags', '"s" in flags'), ('if "m" in flags', 'if "m" not in flags'))),
    ("check_file", what_a_bracket_matched, (
        ('_UNFIT.sub(" ", found)', "found"), ('"$" if at[0] == "$$" else', ""))),
    ("check_file", time_is_looked_at, (("            tick()\n", ""),)),
    ("check_file", wrong_lines_are_seen, (
        ("expression.programsize > PROGRAM_MAX", "False"),
        ("not _FIELD.fullmatch(text)", "False"),
        ('"a reference" if "$" in text', '"" if "$" in text'),
        ("len(found) >= EXPRESSIONS_MAX", "False"),
        ("(0 if negated else expression.groups)", "expression.groups"),
        ("len(text) > TEXT_MAX or", ""), ("not text.isascii() or", ""),
        ('set(flags) - set("ism")', "False"),
        ("    if open_ones:", "    if False:"), ("action in _WITH_TEXT and not text", "False"),
        ("len(pattern.encode()) > EXPRESSION_BYTES_MAX", "False"))),
    ("check_file", replies, (
        ("if found is not None else", "if False else"), ("[:_REPLY_MAX]", ""))),
    ("mime_pieces", parts_are_found, (
        ("            kind = Kind.NESTED_HEADER", "            pass"),
        ("if not message:", "if True:"), ("depth + (not last) :", "depth:"),
        ("depth + (not last) :", "depth + 1 :"), ("return not last", "return True"),
        ("if _MULTIPART.match(value) else None", "if False else None"))),
    ("mime_pieces", lines_are_bounded, (
        ("segment - end + self._at", "segment"), ("whole - end + self._at", "whole"),
        ("self._at, segment = end, SEGMENT_BYTES_MAX", "self._at = end"),
        ("and not self._skip():", "and True:"))),
    ("mime_pieces", levels_are_bounded, (
        ("len(self._boundaries) < NESTING_MAX", "True"),
        ("for _ in range(NESTING_MAX):", "while True:"))),
    ("content_checks", what_becomes_of_a_mail, (
        ("matched.action in (Action.REJECT, Action.DISCARD)", "matched.action is Action.REJECT"),
        ("action is Action.PREPEND:", "False:"), ("action is Action.REPLACE:", "False:"),
        ("action in (Action.IGNORE, Action.STRIP):", "action is Action.IGNORE:"),
        ("action is Action.HOLD:", "False:"), ("action is Action.REDIRECT:", "False:"),
        ("action is Action.BCC and", "False and"), ("edits.append((start, start, line))",
                                                    "edits.append((start, end, line))"))),
    ("content_checks", pass_ends_it, (("matched.action is Action.PASS", "False"),)),
    ("content_checks", a_body_has_its_file, (
        ("known = rules.get(piece.kind)", "known = next(iter(rules.values()))"),
        ("if not rules.keys() - {Kind.HEADER} and", "if"))),
    ("content_checks", time_is_over, (("if time.monotonic() > ends", "if False"),)),
    ("content_checks", a_fold_is_one_line_end, (
        ('.replace(b"\\r\\n", b"\\n")', ""), ('.removesuffix(b"\\n")', ""))),
    ("content_checks", a_field_is_looked_at_up_to_its_limit, (
        ("min(end, start + PIECE_BYTES_MAX)", "end"),)),
    ("content_checks", notes_have_a_number, (("len(doing.notes) < NOTES_MAX", "True"),)),
)
"""Module, what sees its rule, and the rule taken out."""


@pytest.mark.parametrize(("module", "sees"), [(module, sees) for module, sees, _ in CASES],
                         ids=[sees.__name__ for _, sees, _ in CASES])
def test_a_rule_is_seen(module: str, sees: Sees) -> None:
    assert sees(names_of(module, None))


@pytest.mark.parametrize(("module", "sees", "mutant"), [
    pytest.param(module, sees, mutant, id=f"{sees.__name__}-{number}")
    for module, sees, mutants in CASES for number, mutant in enumerate(mutants)])
def test_without_the_rule_it_is_not_seen(module: str, sees: Sees, mutant: Mutant) -> None:
    names = names_of(module, mutant)
    try:
        seen = sees(names)
    except Exception:
        seen = False
    assert not seen


def test_a_mutant_that_is_none_is_found() -> None:
    """The table itself: a text that is not there any more fails its test."""
    with pytest.raises(AssertionError):
        names_of("rewriting", ("no such text", ""))

