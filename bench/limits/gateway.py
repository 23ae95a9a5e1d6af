"""Bare application for ``bench gateway``: framework and server answer the same POST, with nothing behind."""

import sys

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_REPLY = b'{"ok":true,"namespace":"bench","name":"job","uid":"uid-job","sequence":1,"duplicate":false}'


async def submit(request: Request) -> Response:
    """Decode the body, answer."""
    msgspec.json.decode(await request.body())
    return Response(_REPLY, 201, media_type="application/json")


def main() -> None:
    """Serve on the port in the first argument."""
    app = Starlette(routes=[Route("/api/v1/jobs", submit, methods=["POST"])])
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="error",
        access_log=False,
        timeout_keep_alive=600,
    )


if __name__ == "__main__":
    main()
