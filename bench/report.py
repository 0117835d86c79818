"""The results as tables, on the console and in Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone

from bars import Results, Sample, Verdict, middle
from cases import OURS

__all__ = ["console", "machine", "markdown"]

Table = list[tuple[str, ...]]
"""Rows of cells; the first is the heading."""

_MIB = 1 << 20


def console(results: Results, verdicts: Sequence[Verdict], where: str) -> str:
    parts = [where, *(f"{title}\n\n{_text(table)}" for title, table in _tables(results, verdicts))]
    return "\n\n".join(parts) + "\n"


def markdown(results: Results, verdicts: Sequence[Verdict], where: str) -> str:
    parts = ["# Results of `make bench`", where]
    parts += [f"## {title}\n\n{_markdown(table)}" for title, table in _tables(results, verdicts)]
    return "\n\n".join(parts) + "\n"


def machine(versions: dict[str, str]) -> str:
    """What it ran on, and when."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}, {platform.system()} {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory. "
        f"Spark {versions['spark']} with local[2], Java {versions['java']}, "
        f"Python {platform.python_version()}."
    )


def _tables(results: Results, verdicts: Sequence[Verdict]) -> list[tuple[str, Table]]:
    tables = []
    if "throughput" in results:
        tables.append(("As fast as it can: rows per second", _throughput(results["throughput"])))
    if "web" in results:
        tables.append(("Records of 900 bytes over HTTP: per second", _web(results["web"])))
    if "webhook" in results:
        tables.append(("A webhook with 64 clients: requests per second", _webhook(results["webhook"])))
    if "messages" in results:
        tables.append(
            ("Messages of 900 bytes of a broker and a WebSocket: per second", _web(results["messages"]))
        )
    if "redis" in results:
        tables.append(("Messages of 100 bytes from Redis: per second", _web(results["redis"])))
    if "partitions" in results:
        tables.append(("More partitions: rows per second", _partitions(results["partitions"])))
    if "real_time" in results:
        tables.append(
            ("Real-time mode, 200 rows per second: delay of a row in ms", _real_time(results["real_time"]))
        )
    if "delay" in results:
        tables.append(("50 rows per second: delay of a row in ms", _delay(results["delay"])))
    if "idle" in results:
        tables.append(
            ("One row per second: CPU time of JVM and Python in % of one core", _idle(results["idle"]))
        )
    if "still" in results:
        tables.append(("No row: CPU time of JVM and Python in % of one core", _idle(results["still"])))
    if "startup" in results:
        tables.append(("A gigabyte of waiting log: the first batch", _startup(results["startup"])))
    if "memory" in results:
        tables.append(("A sink ten times too slow: memory in MiB", _memory(results["memory"])))
    tables.append(("Bars", _bars(verdicts)))
    return tables


def _throughput(cases: dict[str, list[Sample]]) -> Table:
    """When warm, and in the first query of a JVM; what a row costs; and how many times as many ours make."""
    ours = [name for name in OURS if name in cases]
    made = ("median", "least", "most", "CPU of a row, ns", "first query", "rows in a batch")
    table: Table = [("case", *made, *(f"{name} makes" for name in ours))]
    for name, samples in cases.items():
        ratios = (middle(cases[own], "rate") / middle(samples, "rate") for own in ours)
        cpu = f"{1e9 * middle(samples, 'cpu_per_row'):,.0f}"
        figures = (cpu, *(f"{middle(samples, figure):,.0f}" for figure in ("first", "batch_rows")))
        times = (f"{ratio:.2f} times" for ratio in ratios)
        table.append((name, *_spread(samples, "rate", ",.0f"), *figures, *times))
    return table


def _web(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "least", "most")]
    return table + [(name, *_spread(samples, "rate", ",.0f")) for name, samples in cases.items()]


def _webhook(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "least", "most", "median response, ms", "99 % within, ms")]
    for name, samples in cases.items():
        times = (f"{1000 * middle(samples, figure):,.1f}" for figure in ("p50", "p99"))
        table.append((name, *_spread(samples, "rate", ",.0f"), *times))
    return table


def _partitions(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "least", "most", "rows in a batch", "planning a batch, ms")]
    for name, samples in cases.items():
        planning = f"{1000 * middle(samples, 'planning'):,.0f}"
        table.append(
            (name, *_spread(samples, "rate", ",.0f"), f"{middle(samples, 'batch_rows'):,.0f}", planning)
        )
    return table


def _delay(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "95 % within", "rows in a batch")]
    for name, samples in cases.items():
        delays = (f"{1000 * middle(samples, figure):,.0f}" for figure in ("median", "p95"))
        table.append((name, *delays, f"{middle(samples, 'rows') / middle(samples, 'batches'):.1f}"))
    return table


def _real_time(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "99 % within", "99.9 % within")]
    for name, samples in cases.items():
        table.append(
            (name, *(f"{1000 * middle(samples, figure):,.2f}" for figure in ("median", "p99", "p999")))
        )
    return table


def _idle(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "median", "least", "most", "the JVM's compiler, apart")]
    return table + [
        (name, *_spread(samples, "cpu", ".1f"), f"{middle(samples, 'compiler'):.1f}")
        for name, samples in cases.items()
    ]


def _startup(cases: dict[str, list[Sample]]) -> Table:
    table: Table = [("case", "seconds", "heap before, MiB", "heap after, MiB", "waiting, GB")]
    for name, samples in cases.items():
        heap = (f"{middle(samples, figure) / _MIB:,.1f}" for figure in ("heap_before", "heap_after"))
        log = f"{middle(samples, 'log_bytes') / 1e9:.2f}"
        table.append((name, f"{middle(samples, 'seconds'):.1f}", *heap, log))
    return table


def _memory(cases: dict[str, list[Sample]]) -> Table:
    """Heap after a full collection, and resident memory of JVM and Python, by thirds of the time."""
    table: Table = [
        (
            "case",
            "heap before",
            "heap, first third",
            "last third",
            "resident, first third",
            "last third",
            "Python, first third",
            "last third",
            "most waiting",
            "bufferBytes",
            "heap ÷ bufferBytes",
            "slower",
        )
    ]
    for name, samples in cases.items():
        parts = [f"{what}_{third}" for what in ("heap", "rss", "python") for third in ("first", "last")]
        sizes = ("heap_before", *parts, "waiting_most", "buffer")
        used = middle(samples, "heap_last") - middle(samples, "heap_before")
        table.append(
            (
                name,
                *(f"{middle(samples, size) / _MIB:,.1f}" for size in sizes),
                f"{used / middle(samples, 'buffer'):.1f}",
                f"{middle(samples, 'slower'):.1f} times",
            )
        )
    return table


def _bars(verdicts: Sequence[Verdict]) -> Table:
    table: Table = [("bar", "measured", "verdict")]
    return table + [(each.bar, each.measured, "holds" if each.holds else "MISSED") for each in verdicts]


def _spread(samples: list[Sample], figure: str, form: str) -> tuple[str, str, str]:
    values = [sample[figure] for sample in samples]
    return (format(middle(samples, figure), form), format(min(values), form), format(max(values), form))


def _text(table: Table) -> str:
    columns = [_aligned(column) for column in zip(*table, strict=True)]
    return "\n".join("  " + "  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _aligned(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    return [cell.rjust(width) if _has_figures(column) else cell.ljust(width) for cell in column]


def _has_figures(column: tuple[str, ...]) -> bool:
    return all(cell[:1].isdigit() for cell in column[1:] if cell)


def _markdown(table: Table) -> str:
    heading, *rows = table
    rule = ["---:" if _has_figures(column) else "---" for column in zip(*table, strict=True)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heading, rule, *rows))
