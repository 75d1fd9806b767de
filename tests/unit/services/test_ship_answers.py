"""What stores answer, in a line: texts of obstore with SeaweedFS, Azurite, and no credentials."""

from __future__ import annotations

import pytest

from omq.base.errors import Exit, PlaceRefused, PlaceUnavailable
from omq.services.ship.answers import told

URL = "s3://archive/omq"
REVOKED = """Generic S3 error: Error performing list request: Error performing GET \
http://127.0.0.1:29339/archive?list-type=2&prefix=omq%2F in 367.245µs - Server returned non-2xx \
status code: 403 Forbidden: <?xml version="1.0" encoding="UTF-8"?>
<Error><Code>InvalidAccessKeyId</Code><Message>The access key ID you provided does not exist in \
our records.</Message><Resource>/archive</Resource></Error>

Debug source:
Generic {
    store: "S3",
"""
AWAY = """Generic MicrosoftAzure error: Error performing list request: Error performing GET \
http://127.0.0.1:1/a in 5.2s, after 3 retries, max_retries: 3, retry_timeout: 180s  - HTTP error: \
error sending request

Debug source: Http(status code: 403 Forbidden)"""
NOBODY = """Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in \
510.986197ms, after 3 retries, max_retries: 3, retry_timeout: 180s  - HTTP error: error \
sending request

Debug source: ..."""
MISSING = """Object at location omq/x not found: Error performing PUT http://127.0.0.1/a in 1ms - \
Server returned non-2xx status code: 404 Not Found: <?xml version="1.0"?>
<Error>
  <Code>ContainerNotFound</Code>
  <Message>The specified container does not exist.
RequestId:1
Time:2026-11-29T16:00:00Z</Message>
</Error>"""


@pytest.mark.parametrize(("said", "kind", "reason"), [
    (REVOKED, PlaceRefused, "403 Forbidden, InvalidAccessKeyId: The access key ID you provided "
     "does not exist in our records"),
    (MISSING, PlaceUnavailable, "404 Not Found, ContainerNotFound: The specified container does "
     "not exist"),
    (AWAY, PlaceUnavailable, "Generic MicrosoftAzure error: Error performing list request: Error "
     "performing GET http://127.0.0.1:1/a, after 3 retries, max_retries: 3, retry_timeout: 180s - "
     "HTTP error: error sending request"),
    (NOBODY, PlaceRefused, "the environment has no credentials, and this host no metadata service "
     "that would give some"),
    ("status code: 401 Unauthorized", PlaceRefused, "401 Unauthorized"),
    ("status code: 503 Slow Down: 403 <Code>403</Code>", PlaceUnavailable, "503 Slow Down, 403"),
    ("", PlaceUnavailable, ""),
])
def test_one_line_and_whether_it_is_a_refusal(said: str, kind: type[PlaceUnavailable], reason: str
                                              ) -> None:
    found = told(URL, said)
    assert type(found) is kind and found.fields == {"url": URL, "reason": reason}
    assert (found.exit_code is Exit.NO_PERMISSION) == (kind is PlaceRefused)


def test_what_is_not_in_the_text_is_in_its_class() -> None:
    assert type(told(URL, "no way", refused=True)) is PlaceRefused


def test_a_store_that_sends_what_a_terminal_obeys() -> None:
    found = told(URL, f"status code: 500 X: <Message>\x1b]0;a\x07{'x' * 150}"
                 "\N{RIGHT-TO-LEFT OVERRIDE}</Message>")
    assert str(found.fields["reason"]).isprintable()
    assert len(str(told(URL, "y" * 10_000))) < 400
