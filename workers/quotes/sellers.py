"""Sellers to try it with: each has its own price, and stalls now and then.

uvicorn workers.quotes.sellers:app --port 8101
"""

from __future__ import annotations

import asyncio
import os
import random
import zlib
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

STALL_SHARE: Final = float(os.environ.get("SELLERS_STALL_SHARE", "0.01"))
STALL_S: Final = float(os.environ.get("SELLERS_STALL_S", "1.0"))


async def price(request: Request) -> Response:
    """The same for the same seller and item."""
    if random.random() < STALL_SHARE:
        await asyncio.sleep(STALL_S)
    seller, item = request.path_params["seller"], request.query_params["item"]
    return JSONResponse({"cents": 500 + zlib.crc32(f"{seller} {item}".encode()) % 1000})


app = Starlette(routes=[Route("/{seller}", price)])
