"""Puts figures of `results.md` into the pages that show them: `make figures`. With `--check` it only looks.

A table that is made here stands below a line `<!-- figures: NAME -->`, up to the next blank line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["PAGES", "Results", "with_figures"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "wiki").glob("*.md"))]

_TABLE = re.compile(r"(<!-- figures: (\S+) -->\n)(?:\|.*\n)*")
_CELL = re.compile(r" *\| *")

_SOURCES = {
    "python_arrow": "headwater, Arrow batches, kept in memory",
    "python_log": "headwater, Arrow batches, in the durable log",
    "partitioned": "headwater, Arrow batches, partitioned: read on the executors",
    "python_tuples": "headwater, tuples, kept in memory",
    "api_arrow": "Python Data Source API, Arrow batches",
    "api_tuples": "Python Data Source API, tuples",
    "api_simple": "Python Data Source API, simple reader, tuples",
    "socket": "Spark's `socket`, lines of text",
}
_PEERS = [name for name in _SOURCES if name.startswith("api_") or name == "socket"]


class Results:
    """What `results.md` says, by the beginning of a heading, case and column."""

    def __init__(self, text: str) -> None:
        self.machine = next(line for line in text.splitlines() if line[:1].isdigit())
        self._tables: dict[str, dict[str, dict[str, str]]] = {}
        for section in text.split("\n## ")[1:]:
            title, *rest = section.splitlines()
            heading, _, *lines = [_CELL.split(line.strip("| ")) for line in rest if line.startswith("|")]
            columns = _columns(heading)
            self._tables[title] = {line[0]: dict(zip(columns, line, strict=True)) for line in lines}

    def table(self, title: str) -> dict[str, dict[str, str]]:
        (found,) = [table for name, table in self._tables.items() if name.startswith(title)]
        return found

    def rate(self, case: str) -> float:
        return _number(self.table("As fast as it can")[case]["median"])


def with_figures(page: str, results: Results) -> str:
    """The page, with its tables as the results have them."""

    def made(found: re.Match[str]) -> str:
        if found[2] not in _TABLES:
            raise ValueError(f"no table is called '{found[2]}'; there are {', '.join(_TABLES)}")
        return found[1] + "".join(f"| {' | '.join(row)} |\n" for row in _TABLES[found[2]](results))

    return _TABLE.sub(made, page)


def _compared(results: Results) -> Iterator[tuple[str, ...]]:
    """Rows per second of each way, and how many times that is of each peer."""
    yield ("", "million rows/s", *(f"times `{peer}`" for peer in _PEERS))
    yield ("---", *["---:"] * (1 + len(_PEERS)))
    for case, what in _SOURCES.items():
        times = (_times(results.rate(case), results.rate(peer)) for peer in _PEERS)
        shown = ("" for _ in _PEERS) if case in _PEERS else times
        yield (f"`{case}`: {what}", _millions(results.rate(case)), *shown)


def _partitions(results: Results) -> Iterator[tuple[str, ...]]:
    table = results.table("More partitions")
    yield "partitions", "headwater, million rows/s", "planning a batch, ms", "API, million rows/s"
    yield "---:", "---:", "---:", "---:"
    for case, figures in table.items():
        if case.startswith("partitioned_"):
            count = case.removeprefix("partitioned_")
            api = table.get(f"api_{count}")
            yield (
                count,
                _millions(_number(figures["median"])),
                figures["planning a batch, ms"],
                _millions(_number(api["median"])) if api else "not measured",
            )


def _web(results: Results) -> Iterator[tuple[str, ...]]:
    table = results.table("Records of 900 bytes")
    yield (
        "protocol",
        "headwater, in the log",
        "requests, counting lines only",
        "Python Data Source API, by hand",
    )
    yield "---", "---:", "---:", "---:"
    for name in ("sse", "ndjson"):
        yield f"`{name}`", *(table[case]["median"] for case in (name, f"{name}_lines", f"api_{name}"))


def _delay(results: Results) -> Iterator[tuple[str, ...]]:
    yield "case", "median, ms", "95 % within, ms"
    yield "---", "---:", "---:"
    for case, figures in results.table("50 rows per second").items():
        yield f"`{case}`", figures["median"], figures["95 % within"]


def _memory(results: Results) -> Iterator[tuple[str, ...]]:
    yield (
        "case",
        "`bufferBytes`",
        "heap before",
        "heap, first third → last",
        "times `bufferBytes`",
        "JVM's process",
        "Python's",
    )
    yield ("---", *["---:"] * 6)
    for case, figures in results.table("A sink ten times too slow").items():
        heap, jvm, python = (
            f"{figures[f'{what}, first third']} → {figures[f'{what}, last third']}"
            for what in ("heap", "resident", "Python")
        )
        times = figures["heap ÷ bufferBytes"]
        yield f"`{case}`", figures["bufferBytes"], figures["heap before"], heap, times, jvm, python


def _machine(results: Results) -> Iterator[tuple[str, ...]]:
    yield ("measured",)
    yield ("---",)
    yield (results.machine,)


_TABLES: dict[str, Callable[[Results], Iterator[tuple[str, ...]]]] = {
    "compared": _compared,
    "delay": _delay,
    "machine": _machine,
    "memory": _memory,
    "partitions": _partitions,
    "web": _web,
}


def _columns(heading: list[str]) -> list[str]:
    """Each by a name of its own: of what a `last third` is one, the column before it says."""
    before = ["", *heading[:-1]]
    return [
        f"{of.partition(',')[0]}, {name}" if name == "last third" else name
        for of, name in zip(before, heading, strict=True)
    ]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.2f}"


def _times(ours: float, theirs: float) -> str:
    ratio = ours / theirs
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def main(arguments: list[str]) -> int:
    results = Results((ROOT / "bench" / "results.md").read_text(encoding="utf-8"))
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        renewed = with_figures(text, results)
        if renewed != text:
            stale.append(page.name)
            if "--check" not in arguments:
                page.write_text(renewed, encoding="utf-8")
    print(f"not as bench/results.md has them: {', '.join(stale)}" if stale else "all figures are as measured")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
