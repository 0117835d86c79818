"""Records per second that come over HTTP: through a query, and in a loop that only counts lines."""

from __future__ import annotations

import time
from dataclasses import replace

import requests
import throughput
from bars import Sample
from cases import Case, WebCase
from pyspark.sql import SparkSession
from settings import Settings
from web_server import LINES, serving

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "2g"
JAVA_OPTIONS = "-Xms2g"


def measure(spark: SparkSession, case: WebCase, settings: Settings) -> Sample:
    seconds = settings.web_seconds
    with serving() as address:
        url = f"{address}/{case.path}"
        if (load := case.load) is None:
            return _counted(url, case.chunk_bytes, seconds, LINES[case.path])
        brief = replace(settings, throughput_warmup=settings.web_warmup, throughput_seconds=seconds)
        return throughput.measure(spark, Case(case.name, lambda spark, _: load(spark, url)), brief)


def _counted(url: str, chunk_bytes: int, seconds: float, lines: int) -> Sample:
    with requests.get(url, stream=True, timeout=10) as response:
        end = (began := time.monotonic()) + seconds
        for n, _ in enumerate(response.iter_lines(chunk_size=chunk_bytes), 1):
            if not n % 1000 and time.monotonic() > end:
                break
        return {"rate": n / lines / (time.monotonic() - began)}
