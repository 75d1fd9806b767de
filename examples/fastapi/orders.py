"""A service that takes orders: the order is on the disk before the answer, news of it follows.

    uvicorn orders:app

What the client may rely on is awaited before the response. What may be missed, and should not hold
the response up, is a background task: it runs when the response has been sent, and is lost with
the process if that dies before.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import BackgroundTasks, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import omq
import omq.aio

SPOOL = "/var/tmp/orders"


class Order(BaseModel):
    customer: str
    pieces: int = 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One connection for all requests; after a fork of the server each worker has its own."""
    async with omq.aio.connect(SPOOL, name="orders") as app.state.queues:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take(order: Order, request: Request, later: BackgroundTasks) -> dict[str, str]:
    queues: omq.aio.AsyncConnection = request.app.state.queues
    number = await queues.put("ORDERS", order.model_dump_json().encode())
    later.add_task(queues.put, "AUDIT", b"an order of " + order.customer.encode())
    return {"order": number}


@app.exception_handler(omq.OmqError)
async def refused(request: Request, error: Exception) -> JSONResponse:
    """The queue is full, its manager away: nothing was taken, and the client may try again."""
    return JSONResponse({"detail": str(error)}, status_code=503, headers={"Retry-After": "5"})
