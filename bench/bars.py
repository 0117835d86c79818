"""The bars. Each compares figures of one run with each other, never with a time."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Protocol

__all__ = [
    "ArrivesWithin",
    "AtLeast",
    "Bar",
    "Flat",
    "IdleAtMost",
    "NoLaterThan",
    "PlansWithin",
    "Results",
    "Sample",
    "StartsWithin",
    "Verdict",
    "middle",
]

Sample = dict[str, float]
"""The figures of one measurement, by name."""

Results = dict[str, dict[str, list[Sample]]]
"""All measurements, by kind and case."""


@dataclass(frozen=True)
class Verdict:
    bar: str
    measured: str
    holds: bool


class Bar(Protocol):
    @property
    def kind(self) -> str: ...

    def judge(self, results: Results) -> Verdict: ...


def middle(samples: list[Sample], figure: str) -> float:
    return median(sample[figure] for sample in samples)


@dataclass(frozen=True)
class AtLeast:
    """Rows per second, as a multiple of another case's."""

    case: str
    factor: float
    of: str
    kind: str = "throughput"

    def judge(self, results: Results) -> Verdict:
        throughput = results[self.kind]
        ratio = middle(throughput[self.case], "rate") / middle(throughput[self.of], "rate")
        bar = f"{self.case}: at least {self.factor:g} times the rows/s of {self.of}"
        return Verdict(bar, f"{ratio:.2f} times", ratio >= self.factor)


@dataclass(frozen=True)
class ArrivesWithin:
    """Delay of a row in real-time mode, in milliseconds: its median, and what 99 % are within."""

    case: str
    median: float
    p99: float
    kind: str = "real_time"

    def judge(self, results: Results) -> Verdict:
        samples = results[self.kind][self.case]
        half, most = 1000 * middle(samples, "median"), 1000 * middle(samples, "p99")
        bar = f"{self.case}: half of the rows within {self.median:g} ms, 99 % within {self.p99:g} ms"
        return Verdict(bar, f"{half:.2f} and {most:.2f} ms", half <= self.median and most <= self.p99)


@dataclass(frozen=True)
class IdleAtMost:
    """CPU of an idle query, in points of one core above another's. The two ran at the same time."""

    case: str
    points: float
    than: str
    kind: str = "idle"

    def judge(self, results: Results) -> Verdict:
        idle = results[self.kind]
        more = median(a["cpu"] - b["cpu"] for a, b in zip(idle[self.case], idle[self.than], strict=True))
        bar = f"{self.case}: {self.kind}, at most {self.points:g} % of one core above {self.than}"
        return Verdict(bar, f"{more:+.1f} %", more <= self.points)


@dataclass(frozen=True)
class NoLaterThan:
    """Median delay of a row, beside another case's. The two ran at the same time."""

    case: str
    than: str
    kind: str = "delay"

    def judge(self, results: Results) -> Verdict:
        delays = results[self.kind]
        ratio = median(
            a["median"] / b["median"] for a, b in zip(delays[self.case], delays[self.than], strict=True)
        )
        bar = f"{self.case}: rows come no later than those of {self.than}"
        return Verdict(bar, f"{ratio:.2f} times the delay", ratio <= 1)


@dataclass(frozen=True)
class PlansWithin:
    """The time until the tasks of a batch can begin."""

    case: str
    milliseconds: float
    kind: str = "partitions"

    def judge(self, results: Results) -> Verdict:
        planning = 1000 * middle(results[self.kind][self.case], "planning")
        bar = f"{self.case}: a batch is planned within {self.milliseconds:g} ms"
        return Verdict(bar, f"{planning:.0f} ms", planning <= self.milliseconds)


@dataclass(frozen=True)
class StartsWithin:
    """The first batch on a checkpoint with a long log comes soon, and the log is not in memory."""

    case: str
    seconds: float
    heap_mib: float
    kind: str = "startup"

    def judge(self, results: Results) -> Verdict:
        samples = results[self.kind][self.case]
        seconds = middle(samples, "seconds")
        grown = (middle(samples, "heap_after") - middle(samples, "heap_before")) / (1 << 20)
        log = middle(samples, "log_bytes") / 1e9
        bar = (
            f"{self.case}: with a gigabyte of waiting log, the first batch within {self.seconds:g} s, and at "
            f"most {self.heap_mib:g} MiB of heap"
        )
        holds = seconds <= self.seconds and grown <= self.heap_mib and log >= 1
        return Verdict(bar, f"{seconds:.1f} s, {grown:+.1f} MiB, {log:.2f} GB", holds)


@dataclass(frozen=True)
class Flat:
    """Memory under a sink ten times too slow: it does not grow, and what waits stays within the buffer."""

    case: str
    percent: float
    kind: str = "memory"

    def judge(self, results: Results) -> Verdict:
        samples = results[self.kind][self.case]
        grown = {
            name: 100 * (middle(samples, f"{what}_last") / middle(samples, f"{what}_first") - 1)
            for name, what in (("heap", "heap"), ("resident", "rss"), ("Python", "python"))
        }
        within = all(0 < sample["waiting_most"] <= sample["buffer"] for sample in samples)
        slower = middle(samples, "slower")
        bar = f"{self.case}: a sink ten times too slow lets memory grow by at most {self.percent:g} %"
        waits = "within bufferBytes" if within else "beyond bufferBytes"
        sizes = ", ".join(f"{name} {percent:+.1f} %" for name, percent in grown.items())
        measured = f"{sizes}, {waits}, {slower:.1f} times too slow"
        return Verdict(bar, measured, max(grown.values()) <= self.percent and within and slower > 8)
