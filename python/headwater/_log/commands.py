"""The commands `headwater checkpoint show` and `headwater checkpoint verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from headwater._log.checkpoint import read_checkpoint
from headwater._log.facts import shown, verified
from headwater._log.report import show_lines, verify_lines

__all__ = ["add_to"]

Say = Callable[[Iterable[str]], None]


def add_to(commands: Any, say: Say) -> None:
    """`commands` are argparse's; `say` prints."""
    checkpoint = commands.add_parser("checkpoint", help="look into a query's checkpoint, without Spark")
    verbs = checkpoint.add_subparsers(dest="verb", required=True, metavar="verb")
    for verb, about, run in (
        ("show", "show which rows of each source are in its log, and where Spark stands", _show),
        ("verify", "check every byte of the logs; exit status 1 if any is damaged", _verify),
    ):
        parser = verbs.add_parser(verb, help=about, description=f"{about[0].upper()}{about[1:]}.")
        parser.add_argument(
            "path", metavar="PATH", help="the checkpointLocation of the query, on a local disk"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object, with nothing shortened")
        parser.set_defaults(run=lambda given, run=run: run(given, say))


def _show(given: argparse.Namespace, say: Say) -> int:
    found = read_checkpoint(given.path)
    say([json.dumps(shown(found))] if given.json else show_lines(found))
    return 0


def _verify(given: argparse.Namespace, say: Say) -> int:
    found = read_checkpoint(given.path)
    say([json.dumps(verified(found))] if given.json else verify_lines(found))
    return int(found.damaged)
