"""How the driver watches partitions: what it publishes, when, and what happens to calls that fail or hang.

Imports private modules: a test plays the JVM, and so sees every version that is published.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

import headwater as hw
import headwater.sources  # registered before a test of another file replaces the registry
from headwater.runtime.host import Host
from headwater.runtime.partitions import PartitionWatch, WatchFailed
from headwater.runtime.protocol import Address, StartFrom, WatchRequest
from headwater.runtime.published import Published
from headwater.runtime.tasks import WorkerPython
from headwater.runtime.threads import Deadline

SOON = 30.0
"""How long a test waits, at most, for what must happen."""


def in_time() -> Deadline:
    return Deadline.after(3.0)


class World:
    """The upstream: its partitions with their first and next offsets, and the calls that were made."""

    def __init__(self, **partitions: tuple[int, int]) -> None:
        self.partitions: dict[Any, tuple[int, int]] = dict(partitions)
        self.changed = threading.Condition()
        self.errors: dict[Any, Exception] = {}
        self.held: set[Any] = set()
        self.calls: Counter[Any] = Counter()
        self.in_use: set[int] = set()
        self.instances: list[int] = []
        self.closed: list[int] = []
        self.kept: list[Any] = []  # so that no two have the same id

    def visit(self, source: Any, method: str, partition: Any = None) -> None:
        """One call: it is counted, waits if it is held, and raises the error that is set for it."""
        key = method if partition is None else (method, partition)
        with self.changed:
            self.calls[key] += 1
            assert id(source) not in self.in_use, "an instance is used by two threads"
            self.in_use.add(id(source))
            self.changed.notify_all()
            self.changed.wait_for(lambda: key not in self.held or id(source) in self.closed)
            self.in_use.remove(id(source))
            if key in self.errors:
                raise self.errors[key]

    def set(self, **partitions: tuple[int, int]) -> None:
        with self.changed:
            self.partitions.update(partitions)

    def hold(self, *keys: Any) -> None:
        with self.changed:
            self.held.update(keys)

    def let_go(self) -> None:
        with self.changed:
            self.held.clear()
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON), (self.calls, len(self.instances))


class Watched(hw.PartitionedSource, name="watched", schema="p STRING, o LONG"):
    """A source of the world of the current test."""

    world: World

    def __init__(self, token: hw.Secret | None = None) -> None:
        with self.world.changed:
            self.world.kept.append(self)
            self.world.instances.append(id(self))
            self.world.changed.notify_all()
        if "init" in self.world.errors:
            raise self.world.errors["init"]

    def partitions(self) -> Any:
        self.world.visit(self, "partitions")
        return list(self.world.partitions)

    def earliest(self, p: Any) -> Any:
        self.world.visit(self, "earliest", p)
        return self.world.partitions[p][0]

    def latest(self, p: Any) -> Any:
        self.world.visit(self, "latest", p)
        return self.world.partitions[p][1]

    def at(self, p: Any, timestamp: datetime) -> Any:
        self.world.visit(self, "at", p)
        return self.world.partitions[p][0] + timestamp.second

    def after(self, p: Any, start: int, rows: int) -> Any:
        self.world.visit(self, "after", p)
        return start + 10 * rows

    def read(self, p: Any, start: int, end: int) -> Iterator[Any]:
        raise AssertionError("the driver does not read")

    def close(self) -> None:
        with self.world.changed:
            self.world.closed.append(id(self))
            self.world.changed.notify_all()
        if "close" in self.world.errors:
            raise self.world.errors["close"]


@pytest.fixture
def world() -> Iterator[World]:
    Watched.world = World(a=(0, 5), b=(2, 4))
    yield Watched.world
    Watched.world.let_go()


class Watching:
    """A watch, and what it has published."""

    def __init__(self, watch: PartitionWatch) -> None:
        self.watch = watch
        self.seen: list[dict[str, Any]] = []

    def next(self) -> dict[str, Any]:
        """The next version. None is skipped."""
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        version = self.seen[-1]["version"] if self.seen else 0
        self.watch.positions.when_newer(version, answers.put)
        try:
            self.seen.append(answers.get(timeout=SOON))
        except Empty:
            raise AssertionError(f"no new version within {SOON} s; the last were: {self.seen[-3:]}") from None
        return self.seen[-1]

    def until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        end = time.monotonic() + SOON
        while not condition(known := self.next()):
            assert time.monotonic() < end, self.seen[-3:]
        return known

    def until_complete(self) -> dict[str, Any]:
        return self.until(lambda known: known["complete"])

    def failure(self) -> str:
        return str(self.until(lambda known: "failure" in known)["failure"])


Start = Callable[..., Watching]


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    started: list[PartitionWatch] = []

    def begin(*, options: dict[str, str] | None = None, hooks: Any = (), **fields: Any) -> Watching:
        settings = {name: fields.pop(name) for name in ("timeout", "restart_delay") if name in fields}
        message = {
            "feed": "7",
            "source": "watched",
            "options": options or {},
            "onError": "fail",
            "onBadRow": "fail",
            "batchRows": 8192,
            "failOnDataLoss": True,
            "callTimeoutMs": 30_000,
            "startFrom": {"kind": "earliest"},
            "known": [],
            **fields,
        }
        watch = PartitionWatch(
            WatchRequest.parse(message), **{"restart_delay": lambda failures: 0.0, **settings}
        )
        started.append(watch)
        watch.start(hooks)
        return Watching(watch)

    yield begin
    world.let_go()
    for watch in started:
        watch.stop(in_time())
    end = time.monotonic() + SOON
    while any(thread.name.startswith("headwater-watch") for thread in threading.enumerate()):
        assert time.monotonic() < end, [thread.name for thread in threading.enumerate()]
        time.sleep(0.01)


# What is published


def test_the_first_complete_version_has_the_start_and_end_of_every_partition(start: Start) -> None:
    watching = start()
    assert {**watching.until_complete(), "version": 0} == {
        "version": 0,
        "partitions": "text",
        "latest": {"a": 5, "b": 4},
        "starts": {"a": 0, "b": 2},
        "gone": [],
        "complete": True,
        "failing": {},
        "status": {"state": "running", "restarts": 0, "lastError": None, "lastErrorAt": None},
    }
    assert watching.watch.state == "running"


def test_every_change_is_a_new_version_that_all_who_wait_receive(world: World, start: Start) -> None:
    watching = start()
    version = watching.until_complete()["version"]
    answers: list[SimpleQueue[Any]] = [SimpleQueue(), SimpleQueue()]
    for answer in answers:
        watching.watch.positions.when_newer(version, answer.put)
    assert all(answer.empty() for answer in answers)
    world.set(a=(0, 6))
    bodies = [answer.get(timeout=SOON) for answer in answers]
    assert [body["version"] for body in bodies] == [version + 1] * 2
    assert bodies[0]["latest"] == {"a": 6, "b": 4}
    late: SimpleQueue[Any] = SimpleQueue()
    watching.watch.positions.when_newer(0, late.put)
    assert late.get(timeout=SOON) == bodies[0]


def test_publishing_the_same_again_makes_no_new_version() -> None:
    positions, answers = Published(), SimpleQueue[Any]()
    assert positions.publish({"latest": {"a": 1}})
    assert not positions.publish({"latest": {"a": 1}})
    positions.when_newer(1, answers.put)
    assert answers.empty()
    assert positions.publish({"latest": {"a": 2}})
    assert answers.get(timeout=SOON) == {"version": 2, "latest": {"a": 2}}


def test_partitions_may_have_integer_names_and_methods_receive_integers(world: World, start: Start) -> None:
    world.partitions = {7: (0, 1), 10: (0, 2)}
    known = start().until_complete()
    assert (known["partitions"], known["latest"]) == ("int", {"7": 1, "10": 2})
    assert world.calls[("latest", 7)] > 0


def test_a_source_without_partitions_is_complete(world: World, start: Start) -> None:
    world.partitions = {}
    watching = start(startFrom={"kind": "latest"})
    assert watching.until_complete()["latest"] == {}
    world.set(c=(3, 9))
    known = watching.until(lambda known: known["latest"])
    assert (known["latest"], known["starts"]) == ({"c": 9}, {"c": 3})


def test_offsets_that_go_backwards_are_published_unchanged(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.set(a=(0, 1))
    assert watching.next()["latest"] == {"a": 1, "b": 4}


def test_partitions_may_appear_disappear_and_appear_again(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.set(c=(3, 9))
    known = watching.until(lambda known: "c" in known["latest"])
    assert known["starts"] == {"a": 0, "b": 2, "c": 3}
    del world.partitions["a"]
    known = watching.until(lambda known: known["gone"])
    assert (known["gone"], known["latest"]) == (["a"], {"b": 4, "c": 9})
    assert known["starts"] == {"a": 0, "b": 2, "c": 3}
    assert [partition.name for partition in watching.watch.partitions] == ["b", "c"]
    world.set(a=(0, 50))
    known = watching.until(lambda known: "a" in known["latest"])
    assert (known["gone"], known["latest"]["a"], known["starts"]["a"]) == ([], 50, 0)


def test_a_call_that_fails_because_its_partition_is_gone_is_not_an_error(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.hold(("latest", "a"))
    seen = world.calls[("latest", "a")]
    world.until(lambda: world.calls[("latest", "a")] > seen)
    del world.partitions["a"]
    world.let_go()  # the call goes on, and raises a KeyError
    known = watching.until(lambda known: known["gone"])
    assert (known["gone"], known["failing"], watching.watch.state) == (["a"], {}, "running")


# Where it starts


def test_start_from_latest_is_the_first_latest_of_a_partition(world: World, start: Start) -> None:
    watching = start(startFrom={"kind": "latest"})
    assert watching.until_complete()["starts"] == {"a": 5, "b": 4}
    world.set(a=(0, 8), c=(1, 6))
    known = watching.until(lambda known: "c" in known["latest"])
    assert known["starts"] == {"a": 5, "b": 4, "c": 1}, "one that comes later is read from its beginning"
    assert ("earliest", "a") not in world.calls


@pytest.mark.parametrize("time", ["2026-01-01T00:00:01Z", "2026-01-01T00:00:01.999999999Z"])
def test_start_from_a_time_calls_at(start: Start, time: str) -> None:
    assert start(startFrom={"kind": "at", "time": time}).until_complete()["starts"] == {"a": 1, "b": 3}


def test_start_from_a_time_after_the_last_row_starts_at_the_end(start: Start) -> None:
    known = start(startFrom={"kind": "at", "time": "2026-01-01T00:00:59Z"}).until_complete()
    assert known["starts"] == known["latest"] == {"a": 5, "b": 4}


def test_a_start_is_published_together_with_the_first_latest(world: World, start: Start) -> None:
    world.hold(("latest", "b"))
    known = start().until(lambda known: known["latest"])
    assert (known["starts"], known["latest"]) == ({"a": 0}, {"a": 5})


def test_start_from_offsets_starts_other_partitions_at_earliest(world: World, start: Start) -> None:
    watching = start(startFrom={"kind": "vector", "offsets": {"a": 4}})
    assert watching.until_complete()["starts"] == {"a": 4, "b": 2}
    assert ("earliest", "a") not in world.calls


def test_start_offsets_of_an_unknown_partition_fail_the_watch(start: Start) -> None:
    watching = start(onError="restart", startFrom={"kind": "vector", "offsets": {"a": 4, "x": 1}})
    assert watching.failure() == (
        "the option startFrom names partition 'x', which does not exist; the partitions are: 'a', 'b'. Set "
        "it to offsets of those."
    )


def test_known_starts_are_not_asked_for_and_new_partitions_start_at_earliest(
    world: World, start: Start
) -> None:
    watching = start(known=["a", "z"], startFrom={"kind": "latest"})
    known = watching.until_complete()
    assert (known["starts"], known["latest"]) == ({"b": 2}, {"a": 5, "b": 4})
    assert known["gone"] == ["z"]
    assert ("earliest", "a") not in world.calls


# Slow calls


def test_a_slow_partition_does_not_delay_the_others(world: World, start: Start) -> None:
    world.hold(("latest", "b"))
    watching = start()
    known = watching.until(lambda known: "a" in known["latest"])
    assert (known["latest"], known["complete"]) == ({"a": 5}, False)
    world.set(a=(0, 6))
    assert watching.until(lambda known: known["latest"] == {"a": 6})["complete"] is False
    assert world.calls[("latest", "b")] == 1, "the call is not made again while it is under way"
    world.let_go()
    assert watching.until_complete()["latest"] == {"a": 6, "b": 4}


def test_a_slow_call_of_partitions_does_not_delay_known_partitions(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.hold("partitions")
    seen = world.calls["partitions"]
    world.until(lambda: world.calls["partitions"] > seen)
    world.set(a=(0, 6))
    assert watching.until(lambda known: known["latest"]["a"] == 6)


def test_threads_are_added_only_while_calls_wait(world: World, start: Start) -> None:
    world.partitions = {f"p{n}": (0, 1) for n in range(20)}
    start().until_complete()
    assert len(world.instances) <= 4
    world.hold(*(("latest", f"p{n}") for n in range(20)))
    world.until(lambda: len(world.in_use) >= 20)


@pytest.mark.parametrize("method", ["partitions", "earliest", "at", "after"])
def test_every_call_has_a_time_limit(world: World, start: Start, method: str) -> None:
    world.hold("partitions" if method == "partitions" else (method, "b"))
    kind = {"kind": "at", "time": "2026-01-01T00:00:01Z"} if method == "at" else {"kind": "earliest"}
    watching = start(timeout=0.2, startFrom=kind)
    if method == "after":
        watching.until_complete()
        message = r"^after\('b', 2, 3\): TimeoutError: it has not returned for 0\.2 s"
        with pytest.raises(WatchFailed, match=message):
            watching.watch.after({"a": (0, 3), "b": (2, 3)})
    else:
        assert re.match(rf"{method}\(.*\): TimeoutError: it has not returned for 0\.2 s", watching.failure())


def test_a_call_that_takes_too_long_fails_only_its_partition(world: World, start: Start) -> None:
    world.hold(("latest", "b"))
    watching = start(timeout=0.2, onError="restart")
    watching.until(lambda known: known["complete"])
    known = watching.seen[-1]
    assert known["latest"] == {"a": 5}
    assert known["failing"] == {"b": {"errors": 1, "last": "TimeoutError: it has not returned for 0.2 s"}}
    # Its instance was closed, from another thread, and so the call came back; then it is made again.
    world.until(lambda: world.calls[("latest", "b")] > 1)
    world.let_go()
    assert watching.until(lambda known: not known["failing"])["latest"] == {"a": 5, "b": 4}
    assert watching.watch.state == "running"


def test_a_call_that_hangs_is_not_made_again_until_it_returns(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    stuck: list[threading.Thread] = []
    real = World.visit

    def visit(here: World, source: Any, method: str, partition: Any = None) -> None:
        if (method, partition) == ("latest", "b"):
            stuck.append(threading.current_thread())
            hanging.wait()  # whatever close() does
        real(here, source, method, partition)

    monkeypatch.setattr(World, "visit", visit)
    watching = start(timeout=0.1, onError="restart")
    watching.until(lambda known: "b" in known["failing"])
    for n in range(6, 10):
        world.set(a=(0, n))
        watching.until(lambda known, n=n: known["latest"]["a"] == n)  # type: ignore[misc]
    assert len(stuck) == 1
    assert watching.watch.state == "restarting"
    hanging.set()
    assert watching.until(lambda known: not known["failing"])["latest"]["b"] == 4
    stuck[0].join(SOON)
    assert not stuck[0].is_alive(), "a thread that was given up ends"


def test_too_many_hanging_calls_fail_the_watch_even_with_restart(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    world.partitions = dict.fromkeys(range(40), (0, 1))
    real = World.visit

    def visit(here: World, source: Any, method: str, partition: Any = None) -> None:
        if method == "latest":
            hanging.wait()
        real(here, source, method, partition)

    monkeypatch.setattr(World, "visit", visit)
    try:
        watching = start(timeout=0.05, onError="restart")
        message = watching.failure()
        assert re.fullmatch(r"\d+ calls do not return, and close\(\) does not unblock them", message)
    finally:
        hanging.set()


# Errors


def test_with_fail_the_first_error_fails_the_watch_with_the_authors_traceback(
    world: World, start: Start
) -> None:
    world.errors[("latest", "b")] = OSError("no route with token hush-hush")
    watching = start(options={"token": "hush-hush"})
    message = watching.failure()
    first, _, traceback = message.partition("\n\n")
    assert re.fullmatch(
        r"latest\('b'\): OSError: no route with token \*\*\* \(test_watch\.py:\d+, in visit\)\. "
        r"Set the option onError to restart \(with back-off\) or to end to continue after such an error\.",
        first,
    )
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("OSError: no route with token ***")
    assert "hush" not in message
    assert watching.watch.state == "failed"
    assert watching.watch.last_error == first


def test_with_restart_a_failing_partition_keeps_its_offset_and_is_called_again(
    world: World, start: Start
) -> None:
    pauses: list[int] = []
    watching = start(onError="restart", restart_delay=lambda failures: pauses.append(failures) or 0.0)
    watching.until_complete()
    world.errors[("latest", "b")] = OSError("hush")
    world.set(a=(0, 6))
    known = watching.until(lambda known: known["failing"].get("b", {}).get("errors") == 3)
    assert (known["latest"], known["complete"]) == ({"a": 6, "b": 4}, True)
    assert known["failing"] == {"b": {"errors": 3, "last": "OSError: hush"}}
    assert pauses[:3] == [1, 2, 3]
    assert watching.watch.state == "restarting"
    del world.errors[("latest", "b")]
    watching.until(lambda known: not known["failing"])
    (failed,) = [partition for partition in watching.watch.partitions if partition.name == "b"]
    assert (failed.failure.errors >= 3, failed.failure.last_error) == (True, "OSError: hush")
    assert (watching.watch.state, watching.watch.last_error) == ("running", "OSError: hush")


def test_with_restart_no_call_is_made_before_the_delay_is_over(world: World, start: Start) -> None:
    world.errors[("latest", "b")] = OSError("hush")
    watching = start(onError="restart", restart_delay=lambda failures: 3600.0)
    watching.until(lambda known: "b" in known["failing"])
    for n in range(6, 10):
        world.set(a=(0, n))
        watching.until(lambda known, n=n: known["latest"]["a"] == n)  # type: ignore[misc]
    assert world.calls[("latest", "b")] == 1


def test_more_restarts_in_a_row_than_allowed_fail_the_watch(world: World, start: Start) -> None:
    world.errors[("earliest", "b")] = OSError("hush")
    watching = start(onError="restart", maxRestarts=2)
    assert watching.failure().startswith("earliest('b'): OSError: hush (")
    assert world.calls[("earliest", "b")] == 3


@pytest.mark.parametrize("on_error", ["fail", "restart", "end"])
def test_on_error_applies_to_new_partitions_too(world: World, start: Start, on_error: str) -> None:
    watching = start(onError=on_error)
    watching.until_complete()
    world.errors[("earliest", "c")] = OSError("hush")
    world.set(c=(3, 9))
    if on_error == "fail":
        assert watching.failure().startswith("earliest('c'): OSError: hush (")
        return
    known = watching.until(lambda known: "c" in known["failing"])
    assert (known["latest"], known["starts"]) == ({"a": 5, "b": 4}, {"a": 0, "b": 2})
    del world.errors[("earliest", "c")]
    world.set(a=(0, 6))
    comes = on_error == "restart"
    known = watching.until(lambda known: known["latest"]["a"] == 6 and ("c" in known["latest"] or not comes))
    assert (known["latest"].get("c"), known["starts"].get("c")) == ((9, 3) if comes else (None, None))
    assert ("c" in known["failing"]) is not comes


def test_with_end_a_failing_partition_keeps_its_offset_and_is_not_called_again(
    world: World, start: Start
) -> None:
    watching = start(onError="end")
    watching.until_complete()
    world.errors[("latest", "b")] = OSError("hush")
    watching.until(lambda known: "b" in known["failing"])
    seen = world.calls[("latest", "b")]
    for n in range(6, 10):
        world.set(a=(0, n), b=(2, n))
        known = watching.until(lambda known, n=n: known["latest"]["a"] == n)  # type: ignore[misc]
    assert (known["latest"]["b"], world.calls[("latest", "b")]) == (4, seen)
    assert watching.watch.state == "running"


def test_with_end_a_partition_that_never_had_offsets_is_not_published(world: World, start: Start) -> None:
    world.errors[("earliest", "b")] = OSError("hush")
    known = start(onError="end").until_complete()
    assert (known["latest"], known["starts"], list(known["failing"])) == ({"a": 5}, {"a": 0}, ["b"])


def test_a_failure_of_partitions_has_the_empty_name_and_the_old_list_stays(
    world: World, start: Start
) -> None:
    watching = start(onError="restart")
    watching.until_complete()
    world.errors["partitions"] = OSError("hush")
    world.set(a=(0, 6), c=(0, 1))
    known = watching.until(lambda known: known["latest"]["a"] == 6 and known["failing"])
    assert known["failing"][""]["last"] == "OSError: hush"
    assert (list(known["latest"]), known["gone"], known["complete"]) == (["a", "b"], [], True)
    del world.errors["partitions"]
    assert watching.until(lambda known: "c" in known["latest"])


def test_with_end_partitions_is_not_called_again_after_a_failure(world: World, start: Start) -> None:
    world.errors["partitions"] = OSError("hush")
    watching = start(onError="end")
    known = watching.until_complete()
    assert (known["latest"], list(known["failing"])) == ({}, [""])
    assert world.calls["partitions"] == 1


def test_an_error_in_init_fails_the_watch(world: World, start: Start) -> None:
    world.errors["init"] = OSError("hush")
    assert start().failure().startswith("partitions(): OSError: hush (test_watch.py:")


@pytest.mark.parametrize(
    ("partitions", "pattern"),
    [
        (
            {"": (0, 1)},
            r"partitions\(\): ValueError: partitions\(\) returned the key '' of type str; it must return",
        ),
        (
            {"a": (-1, 5)},
            r"earliest\('a'\): ValueError: earliest\('a'\) returned -1 of type int; an offset is an",
        ),
        (
            {3: (0, "5")},
            r"latest\(3\): ValueError: latest\(3\) returned '5' of type str; an offset is an integer",
        ),
    ],
)
def test_an_invalid_value_fails_the_watch_and_is_named(
    world: World, start: Start, partitions: dict[Any, Any], pattern: str
) -> None:
    world.partitions = partitions
    assert re.match(pattern, start().failure())


def test_partition_names_must_stay_of_one_kind(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.partitions = {1: (0, 1)}
    assert (
        "partitions() returned integers, and strings before: names must stay of one kind"
        in watching.failure()
    )


# What it costs


def test_the_pause_between_rounds_grows_while_nothing_changes(world: World, start: Start) -> None:
    start().until_complete()
    begun, seen = time.monotonic(), world.calls["partitions"]
    world.until(lambda: world.calls["partitions"] >= seen + 10)
    # After a change: 10, 20, 40, 80 and 160 ms, and then 250 ms each time.
    assert time.monotonic() - begun > 1.0


def test_the_pause_is_ten_times_the_cpu_time_of_the_calls(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = World.visit

    def visit(here: World, source: Any, method: str, partition: Any = None) -> None:
        busy_until = time.thread_time() + 0.02
        while time.thread_time() < busy_until:
            pass
        real(here, source, method, partition)

    start().until_complete()
    monkeypatch.setattr(World, "visit", visit)
    seen = world.calls["partitions"]
    world.until(lambda: world.calls["partitions"] >= seen + 2)
    begun = time.monotonic()
    world.until(lambda: world.calls["partitions"] >= seen + 5)
    assert time.monotonic() - begun > 0.9  # three calls of 20 ms each time, and two whole pauses at least


# Stopping


def test_stop_calls_close_to_unblock_calls_and_leaves_no_thread(world: World, start: Start) -> None:
    watching = start()
    version = watching.until_complete()["version"]
    answers: SimpleQueue[Any] = SimpleQueue()
    watching.watch.positions.when_newer(version, answers.put)
    world.hold(("latest", "a"), ("latest", "b"))
    world.until(lambda: len(world.in_use) >= 2)
    assert watching.watch.stop(in_time()) == "stopped"
    assert answers.get(timeout=SOON) == {"version": version, "stopped": True}
    assert not watching.watch.is_alive
    assert watching.watch.state == "stopped"
    assert sorted(world.closed) == sorted(world.instances), "each is closed once"
    watching.watch.positions.when_newer(0, answers.put)
    assert answers.get(timeout=SOON)["stopped"]


def test_an_error_in_close_is_logged_without_secrets(
    world: World, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    watching = start(options={"token": "hush-hush"})
    watching.until_complete()
    world.errors["close"] = OSError("hush-hush")
    assert watching.watch.stop(in_time()) == "stopped"
    assert "close failed: OSError: *** (test_watch.py:" in caplog.text
    assert "hush" not in caplog.text


def test_a_call_that_cannot_be_interrupted_is_abandoned(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, reached = threading.Event(), threading.Event()

    def visit(*args: Any) -> None:
        reached.set()
        hanging.wait()

    monkeypatch.setattr(World, "visit", visit)
    watch = start().watch
    assert reached.wait(SOON)
    assert watch.stop(in_time()) == "abandoned"
    assert watch.is_alive
    assert watch.state == "abandoned"
    hanging.set()


def test_a_watch_can_be_stopped_before_it_is_started(world: World) -> None:
    message = {"feed": "7", "source": "watched", "options": {}, "onError": "fail", "onBadRow": "fail"}
    more = {"batchRows": 1, "failOnDataLoss": True, "callTimeoutMs": 1}
    start_from = {"startFrom": {"kind": "earliest"}, "known": []}
    watch = PartitionWatch(WatchRequest.parse({**message, **more, **start_from}))
    assert watch.stop(in_time()) == "stopped"
    watch.start()
    watch._thread.join(SOON)
    assert world.calls == {}


# Hooks


def test_the_newest_of_several_commits_is_passed_on_and_a_stuck_hook_does_not_hold_up_the_watch(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, entered, go_on = [], threading.Event(), threading.Event()

    def committed(self: Watched, offsets: Any) -> None:
        commits.append(offsets)
        entered.set()
        go_on.wait(SOON)

    monkeypatch.setattr(Watched, "committed", committed)
    watching = start(hooks={"committed"})
    watching.until_complete()
    watching.watch.committed({"a": 1})
    assert entered.wait(SOON)
    watching.watch.committed({"a": 2})
    watching.watch.committed({"a": 3})
    world.set(a=(0, 6))
    watching.until(lambda known: known["latest"]["a"] == 6)
    go_on.set()
    assert watching.watch.stop(in_time()) == "stopped"
    assert commits == [{"a": 1}, {"a": 3}]


def test_hooks_that_a_source_does_not_define_need_no_thread(start: Start) -> None:
    watching = start()
    watching.until_complete()
    watching.watch.committed({"a": 1})
    assert not [thread.name for thread in threading.enumerate() if thread.name.endswith("-hooks")]


# after


def test_after_returns_an_end_for_each_partition(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    assert watching.watch.after({"a": (1, 2), "b": (3, 4)}) == {"a": 21, "b": 43}
    assert watching.watch.after({}) == {}


def test_an_invalid_end_or_an_error_of_after_is_reported(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    with pytest.raises(
        WatchFailed, match=r"^after\('a', 5, 0\): ValueError: after\('a', 5, 0\) returned 5; it must"
    ):
        watching.watch.after({"a": (5, 0)})
    world.errors[("after", "b")] = OSError("hush")
    with pytest.raises(
        WatchFailed, match=r"^after\('b', 5, 1\): OSError: hush \(test_watch.py:\d+, in visit\)"
    ):
        watching.watch.after({"a": (5, 1), "b": (5, 1)})


def test_after_does_not_wait_once_the_watch_is_stopped(world: World, start: Start) -> None:
    watching = start()
    watching.until_complete()
    world.hold(("after", "a"))
    failures: SimpleQueue[str] = SimpleQueue()

    def call_after() -> None:
        try:
            watching.watch.after({"a": (5, 1)})
        except WatchFailed as failure:
            failures.put(str(failure))

    calling = threading.Thread(target=call_after)
    calling.start()
    world.until(lambda: world.calls[("after", "a")] == 1)
    watching.watch.stop(in_time())
    assert failures.get(timeout=SOON)
    calling.join(SOON)


def test_start_times_are_converted_to_utc() -> None:
    message = {"kind": "at", "time": "2026-01-01T02:00:00+02:00"}
    assert StartFrom.parse(message).time == datetime(2026, 1, 1, tzinfo=timezone.utc)


# Requests of the JVM


class Jvm:
    """Plays Spark's JVM, at the other end of the control connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._requests = 0
        self.host: Any = None

    def accept(self) -> None:
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(SOON)
        assert self._connection.makefile("rb").readline() == b"headwater 1 secret control\n"
        self._connection.sendall(b"ok\n")

    def send(self, kind: str, **fields: Any) -> int:
        self._requests += 1
        data = json.dumps({"id": self._requests, "ask": kind, **fields}).encode()
        self._connection.sendall(struct.pack(">i", len(data)) + data)
        return self._requests

    def receive(self) -> dict[str, Any]:
        (length,) = struct.unpack(">i", self._exactly(4))
        body: dict[str, Any] = json.loads(self._exactly(length))
        return body

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        number = self.send(kind, **fields)
        body = self.receive()
        assert body.pop("id") == number
        return body

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self._connection.recv(length - len(data))
        return data


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[Jvm]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "bridge"))
        listener.listen()
        jvm = Jvm(listener)
        accepting = threading.Thread(target=jvm.accept)
        accepting.start()
        address = Address(f"unix:{tmp_path / 'bridge'}", "secret")
        jvm.host = Host(address, lambda: WorkerPython("python3", "3.11", ["more.zip"], {"A": "1"}))
        accepting.join(SOON)
        yield jvm
        jvm.close()


WATCH = {
    "feed": "7",
    "source": "watched",
    "options": {},
    "onError": "fail",
    "onBadRow": "fail",
    "batchRows": 8192,
    "failOnDataLoss": True,
    "startFrom": {"kind": "earliest"},
    "known": [],
}


def test_load_describes_the_source(world: World, jvm: Jvm) -> None:
    source = jvm.request("load", source="watched", options={})["answer"]
    assert (source["partitioned"], source["hasAt"], source["hasAfter"]) == (True, True, True)
    assert (source["resumable"], source["ack"]) == (False, False)

    source = jvm.request("load", source="ndjson", options={"url": "https://example.org"})["answer"]
    assert (source["partitioned"], source["hasAt"], source["hasAfter"]) == (False, False, False)


def test_the_jvm_receives_the_task_function_and_then_every_version(world: World, jvm: Jvm) -> None:
    reader = jvm.request("watch", **WATCH)["answer"]["reader"]
    assert (reader["executable"], reader["version"]) == ("python3", "3.11")
    assert (reader["includes"], reader["environment"]) == (["more.zip"], {"A": "1"})
    function, result = pickle.loads(base64.b64decode(reader["function"]))
    assert (callable(function), result.simpleString()) == (True, "struct<report:string,rows:binary>")
    version = 0
    while True:
        known = jvm.request("positions", feed="7", version=version)["answer"]
        assert known["version"] == version + 1
        version += 1
        if known["complete"]:
            break
    assert known["latest"] == {"a": 5, "b": 4}
    waiting = jvm.send("positions", feed="7", version=version)
    ends = jvm.send("after", feed="7", wanted={"a": [1, 2]})
    assert jvm.receive() == {"id": ends, "answer": {"ends": {"a": 21}}}, "the other request still waits"
    world.set(a=(0, 6))
    reply = jvm.receive()
    assert (reply["id"], reply["answer"]["latest"]) == (waiting, {"a": 6, "b": 4})
    waiting = jvm.send("positions", feed="7", version=version + 1)
    (watch,) = jvm.host.feeds
    jvm.send("stop", feed="7")
    answers = [jvm.receive()["answer"] for _ in range(2)]
    assert {"state": "stopped"} in answers
    assert {"version": version + 1, "stopped": True} in answers
    assert (jvm.host.feeds, watch.is_alive) == ([], False)
    assert jvm.request("stop", feed="7") == {"answer": {"state": "stopped"}}
    assert jvm.request("positions", feed="7", version=3)["answer"] == {"version": 3, "stopped": True}
    assert "message" in jvm.request("after", feed="7", wanted={"a": [1, 2]})["error"]


@pytest.mark.usefixtures("by_value")
def test_a_source_that_cannot_be_pickled_fails_the_watch(world: World, jvm: Jvm) -> None:
    message = jvm.request("watch", **WATCH)["error"]["message"]
    assert message.startswith(
        "HeadwaterError: source 'watched' cannot be sent to Spark's executors: TypeError: cannot"
    )
    assert world.calls == {}


def test_a_watch_ends_when_its_jvm_is_gone(world: World, jvm: Jvm) -> None:
    jvm.request("watch", **WATCH)
    (watch,) = jvm.host.feeds
    jvm.close()
    end = time.monotonic() + SOON
    while jvm.host.feeds or watch.is_alive:
        assert time.monotonic() < end, watch.state
        time.sleep(0.01)
