"""`sse` against the simulator of Wikimedia's EventStreams, which knows what it sent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from test_log import Checkpointed

from headwater.sim import (
    Cut,
    CutMidCharacter,
    CutMidRecord,
    End,
    Fault,
    Redirect,
    Repeat,
    Reset,
    Stall,
    Status,
    WikimediaSim,
)
from headwater.sources import sse
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]

SOON = timedelta(milliseconds=10)
STREAMS = "recentchange,page-create"


def source(sim: WikimediaSim, streams: str = STREAMS, **options: Any) -> Any:
    return sse(url=sim.url.replace("recentchange", streams), retry=SOON, **options)


def different(sim: WikimediaSim) -> list[Any]:
    """The records that the simulator sent, without repeats, in order."""
    return [sim.record(n) for n in dict.fromkeys(sim.sent)]


FAULTS = [
    Cut(20),
    CutMidRecord(20),
    CutMidCharacter(20),
    End(20),
    Reset(20),
    Repeat(20, count=7),
    Stall(20),
    Status(429, retry_after=0, times=2),
    Redirect(),
]


@pytest.mark.parametrize("ids", ["offset", "timestamp"])
@pytest.mark.parametrize("planned", FAULTS, ids=lambda planned: type(planned).__name__)
def test_a_fault_loses_and_repeats_no_event(planned: Fault, ids: Any) -> None:
    with WikimediaSim(seed=2, rate=0, count=48, faults=[planned], ids=ids) as sim:
        events = list(itertools.islice(source(sim, idle_timeout=timedelta(seconds=0.5)), 44))
        assert [json.loads(data_of(event)) for event in events] == different(sim)
        assert sim.faults_come == [planned] * planned.times


def data_of(row: Any) -> str:
    return str(row["data"] if isinstance(row, dict) else row[0])


def test_with_a_cut_after_every_event_no_event_that_shares_a_time_is_lost() -> None:
    with WikimediaSim(seed=2, rate=0, count=200, faults=[Cut(n) for n in range(200)], ids="timestamp") as sim:
        events = list(itertools.islice(source(sim), 183))
        assert len({sim.timeline.stamp(n) for n in range(200)}) < 200, "no two events share a time"
        assert [json.loads(data_of(event)) for event in events] == different(sim)


def test_canary_events_can_be_filtered_by_their_domain(stream: Stream) -> None:
    def changes(frame: DataFrame) -> DataFrame:
        domain = F.get_json_object("data", "$.meta.domain")
        return frame.withColumn("domain", domain).where("domain <> 'canary'")

    with WikimediaSim(seed=3, rate=0, count=48) as sim:
        rows = stream(source(sim), apply=changes).rows(42)
        kept = [record for record in different(sim) if record["meta"]["domain"] != "canary"]
        assert len(kept) == 42
        assert [json.loads(row.data) for row in rows] == kept
        assert {row.event for row in rows} == {"message"}


@pytest.mark.parametrize("ids", ["offset", "timestamp"])
def test_restarts_of_the_query_lose_and_repeat_nothing(
    ids: Any, spark_session: SparkSession, tmp_path: Path
) -> None:
    """Each query reads up to a stall; the next one is cut before it reaches another."""
    stalls = [Stall(after) for after in (48, 96, 144)]
    faults = [Cut(20), CutMidRecord(70), Repeat(90), Reset(110), CutMidCharacter(160)]
    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["data"]
    with WikimediaSim(seed=4, rate=0, count=240, faults=[*faults, *stalls], ids=ids) as sim:
        for rows in (44, 88, 132, 220):
            with checkpoint.running(source(sim)) as query:
                checkpoint.until(query, rows)
            assert query.exception() is None
            assert len(checkpoint.sink.rows) == rows
        assert [json.loads(data) for (data,) in checkpoint.sink.rows] == different(sim)
        assert set(sim.faults_come) == {*faults, *stalls}
        assert all("last-event-id" in request.headers for request in sim.requests[1:])


@pytest.mark.parametrize("written", ["2024-05-31T12:00:00.010Z", "1717156800010"])
def test_the_first_start_begins_at_since_and_later_ones_resume_after_the_last_id(
    written: str, spark_session: SparkSession, tmp_path: Path
) -> None:
    """After a cut and after a restart the server gets both, and the id counts."""
    start = datetime(2024, 5, 31, 12, tzinfo=timezone.utc)
    faults = [Cut(20), Stall(48)]
    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["data"]
    with WikimediaSim(seed=5, rate=0, count=96, start=start, faults=faults) as sim:
        changes = [n for n in range(10, 96) if sim.record(n)["meta"]["stream"] == "mediawiki.recentchange"]
        for end in (48, 96):
            with checkpoint.running(sse(f"{sim.url}?since={written}", retry=SOON)) as query:
                checkpoint.until(query, len([n for n in changes if n < end]))
        assert sim.sent == changes
        assert [json.loads(data) for (data,) in checkpoint.sink.rows] == different(sim)
        assert sim.faults_come == faults
        assert [request.query for request in sim.requests] == [{"since": written}] * 3
        assert ["last-event-id" in request.headers for request in sim.requests] == [False, True, True]
