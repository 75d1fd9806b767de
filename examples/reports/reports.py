"""Reports for many customers, each night: pages first, and a report when all of its pages are made.

    omon schedule
    omq worker reports:begin --queue NIGHTLY
    omq worker reports:make --queue PAGES --concurrency 4
    omq worker reports:send --queue REPORTS
"""

import json

import omq
from omq import codec
from omq.tasks.task import Again, Aside, progress, task

PAGES = {"alice": 40, "bob": 2}
"""How many pages each customer's report has."""


def message(connection, customer, page):
    """A page to be made; BodyRefused, if it is not what conf/schemas/PAGES.json says."""
    empty = omq.Outgoing(properties={"customer": customer}, queues=("PAGES",))
    return codec.outgoing(connection, "PAGES", {"customer": customer, "page": page}, message=empty)


def begin(night):
    """All pages of all reports; for each report one message more, put when its pages are done."""
    with omq.connect(name="reports") as connection:
        for customer, pages in PAGES.items():
            with connection.unit() as unit:
                for page in range(1, pages + 1):
                    unit.put("PAGES", outgoing=message(connection, customer, page))
                report = {"customer": customer, "of": night["of"]}
                unit.barrier("REPORTS", json.dumps(report).encode(), within_s=86400)


@task(on={ConnectionError: Again(60.0), LookupError: Aside("UNKNOWN")})
def make(page):
    """One page. A data base that is away is asked again in a minute; who is unknown goes aside."""
    if page["customer"] not in PAGES:
        raise LookupError(page["customer"])
    progress(f"page {page['page']}")


@task(then="SENT")
def send(report):
    """All of its pages are there."""
    return {"to": report["customer"], "pages": PAGES[report["customer"]]}
