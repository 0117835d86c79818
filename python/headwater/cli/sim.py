"""The command `headwater sim`: a simulator, from a shell."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable
from typing import Any

from headwater.errors import HeadwaterError
from headwater.sim.faults import fault, forms
from headwater.sim.rsvp import RsvpSim
from headwater.sim.wikimedia import WikimediaSim

__all__ = ["add_to"]

Say = Callable[[Iterable[str]], None]

_FEEDS: dict[str, tuple[type[RsvpSim] | type[WikimediaSim], str]] = {
    "rsvp": (RsvpSim, "RSVPs of Meetup, a JSON object per line"),
    "wikimedia": (WikimediaSim, "changes of Wikimedia's wikis, as Server-Sent Events"),
}


def add_to(commands: Any, say: Say) -> None:
    """`commands` are argparse's; `say` prints."""
    sim = commands.add_parser("sim", help="serve a simulated feed on this machine, until Ctrl-C")
    feeds = sim.add_subparsers(dest="feed", required=True, metavar="feed")
    for name, (kind, about) in _FEEDS.items():
        parser = feeds.add_parser(
            name, help=about, description=f"{about}. Prints its URL, serves until Ctrl-C."
        )
        parser.add_argument("--port", type=int, default=0, help="to listen on (default: a free one)")
        parser.add_argument("--host", default="127.0.0.1", help="to listen on (default: 127.0.0.1)")
        parser.add_argument("--seed", type=int, default=0, help="what the records follow from (default: 0)")
        parser.add_argument(
            "--rate", type=float, default=5, help="records per second (default: 5); 0: all at once"
        )
        parser.add_argument("--count", type=int, default=None, help="so many records, and no more come")
        parser.add_argument(
            "--fault",
            dest="faults",
            action="append",
            default=[],
            metavar="FAULT",
            help=f"before record N; may be given several times: {'; '.join(forms())}",
        )
        parser.set_defaults(run=lambda given, kind=kind: _serve(kind, given, say))


def _serve(kind: type[RsvpSim] | type[WikimediaSim], given: argparse.Namespace, say: Say) -> int:
    with _made(kind, given) as sim:
        try:
            say([sim.url])
            threading.Event().wait()
        except KeyboardInterrupt:
            sent = sim.sent
            say([f"requests {len(sim.requests)}, records {len(sent)}, different ones {len(set(sent))}"])
    return 0


def _made(kind: type[RsvpSim] | type[WikimediaSim], given: argparse.Namespace) -> RsvpSim | WikimediaSim:
    settings = {name: getattr(given, name) for name in ("seed", "rate", "count", "host", "port")}
    try:
        return kind(faults=[fault(text) for text in given.faults], **settings)
    except (OSError, OverflowError) as error:
        raise HeadwaterError(
            f"nothing can listen on {given.host}, port {given.port}: {str(error).rstrip('.')}",
            "leave --port out, to take a free one",
        ) from None
