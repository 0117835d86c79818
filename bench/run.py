"""The benchmark: all cases side by side in one run, several times over, and the medians against the bars.

Every measurement has a process and a JVM of its own, so no case warms or spoils the JVM of another; only
delays are measured in one JVM. A full run takes about 50 minutes, writes `results.md`, and puts
its figures into the pages that show them. The exit code is 1 when a bar is missed; with --quick the bars are
only printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bars import Bar, Results, Sample
from cases import BARS, CASES, IDLE_TOGETHER
from figures import main as renew_pages
from report import console, machine, markdown
from settings import FULL, QUICK, Settings

HERE = Path(__file__).parent

Measured = tuple[dict[str, Sample], dict[str, str]]
"""The figures of each case, and the versions they ran on."""


def main() -> int:
    arguments = parser().parse_args()
    settings = QUICK if arguments.quick else FULL
    if arguments.repeats is not None:
        settings = replace(settings, **{f"{kind}_repeats": arguments.repeats for kind in CASES})
    kinds = arguments.only or list(CASES)
    results: Results = {}
    versions: dict[str, str] = {}
    for kind in kinds:
        names = [case.name for case in CASES[kind] if case.name in (arguments.cases or [case.name])]
        results[kind] = {name: [] for name in names}
        for repeat in range(settings.repeats(kind)):
            for samples, found in measure_round(kind, names, settings):
                versions = found
                for name, sample in samples.items():
                    results[kind][name].append(sample)
                    say(f"{kind} {repeat + 1}/{settings.repeats(kind)} {name}: {figures(sample)}")
    verdicts = [bar.judge(results) for bar in BARS if bar.kind in results and is_measured(bar, results)]
    say("\n" + console(results, verdicts, machine(versions)))
    if arguments.quick:
        say("A quick run: no bar is enforced, and nothing was written.")
        return 0
    if not arguments.only and not arguments.cases:
        (HERE / "results.md").write_text(markdown(results, verdicts, machine(versions)), encoding="utf-8")
        renew_pages([])
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench/run.py", description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help="a few seconds per case, once; no bar is enforced")
    made.add_argument("--repeats", type=int, help="how often to measure; the medians count")
    made.add_argument(
        "--only", choices=list(CASES), nargs="+", help="some kinds of measurement; results.md is not written"
    )
    made.add_argument("--cases", nargs="+", help="some cases only; results.md is not written")
    return made


def is_measured(bar: Bar, results: Results) -> bool:
    """Whether all cases that a bar speaks of are there."""
    wanted = {getattr(bar, part) for part in ("case", "of", "than") if hasattr(bar, part)}
    return all(results[bar.kind].get(name) for name in wanted)


def measure_round(kind: str, names: list[str], settings: Settings) -> Iterator[Measured]:
    """Each case of a kind, once.

    One after the other, but for those that leave the machine free: at the same time they meet the same
    conditions.
    """
    if kind == "delay":
        yield Worker(kind, names, settings).result()
    elif kind in ("idle", "still"):
        for first in range(0, len(names), IDLE_TOGETHER):
            for worker in [Worker(kind, [name], settings) for name in names[first : first + IDLE_TOGETHER]]:
                yield worker.result()
    else:
        for name in names:
            yield Worker(kind, [name], settings).result()


class Worker:
    """A measurement that is under way, of one case or of several in one JVM."""

    def __init__(self, kind: str, names: list[str], settings: Settings) -> None:
        self._names = ",".join(names)
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-bench-")
        self._out = Path(self._folder.name) / "result.json"
        self._log = Path(self._folder.name) / "log"
        command = [
            sys.executable,
            str(HERE / "worker.py"),
            kind,
            self._names,
            json.dumps(asdict(settings)),
            str(self._out),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder.name
            )

    def result(self) -> Measured:
        with self._folder:
            if self._process.wait() != 0:
                say(self._log.read_text(errors="replace")[-10_000:])
                raise SystemExit(f"measuring {self._names} failed, see above")
            result = json.loads(self._out.read_text())
        return result["samples"], result["versions"]


def figures(sample: Sample) -> str:
    return ", ".join(
        f"{name} {value:,.4g}" if value < 1000 else f"{name} {value:,.0f}" for name, value in sample.items()
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    say(f"It took {time.monotonic() - began:.0f} s.")
    sys.exit(code)
