"""Requests per second of 64 clients to a webhook whose rows go into the log, and to its server without one.

The clients are in a process of their own, each with one connection and one request at a time. What counts is
the way into the log, so the query has few batches: on two cores they would compete with clients and server.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bars import Sample
from cases import WebhookCase
from pyspark.sql import SparkSession
from settings import Settings
from spark import new_checkpoint, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"

_CLIENTS = 64


def measure(spark: SparkSession, case: WebhookCase, settings: Settings) -> Sample:
    with new_checkpoint() as folder, _durable(spark, folder) if case.is_durable else _answering() as port:
        _call(port, settings.webhook_warmup)
        return _call(port, settings.webhook_seconds)


@contextmanager
def _durable(spark: SparkSession, folder: str) -> Iterator[int]:
    import headwater as hw
    from headwater.sources import webhook

    port = _free_port()
    stream = hw.stream(spark, webhook(port, decode="json", schema="id LONG, total DOUBLE"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    with running(writer.trigger(processingTime="10 seconds").start()):
        yield port


@contextmanager
def _answering() -> Iterator[int]:
    """The server that the source has, with an application that reads the body and answers."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def answer(request: Request) -> PlainTextResponse:
        await request.body()
        return PlainTextResponse("ok\n")

    port = _free_port()
    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    options = {"lifespan": "off", "log_config": None, "access_log": False, "http": "h11"}
    server = uvicorn.Server(uvicorn.Config(app, port=port, proxy_headers=False, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()


def _call(port: int, seconds: float) -> Sample:
    clients = Path(__file__).with_name("webhook_clients.py")
    command = [sys.executable, str(clients), str(port), str(_CLIENTS), str(seconds)]
    sample: Sample = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return sample


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
