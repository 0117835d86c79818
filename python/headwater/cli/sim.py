"""`headwater sim`: serves a simulated feed."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable
from typing import Any

from headwater.errors import HeadwaterError
from headwater.sim.faults import fault, spellings
from headwater.sim.rsvp import RsvpSim
from headwater.sim.wikimedia import WikimediaSim

__all__ = ["add_to"]

Print = Callable[[Iterable[str]], None]
Sim = RsvpSim | WikimediaSim

_FEEDS: dict[str, tuple[type[RsvpSim] | type[WikimediaSim], str]] = {
    "rsvp": (RsvpSim, "Meetup's RSVPs, one JSON object per line"),
    "wikimedia": (WikimediaSim, "changes of Wikimedia's wikis, as Server-Sent Events"),
}


def add_to(commands: Any, print_lines: Print) -> None:
    """Adds the command to argparse's subparsers."""
    parser = commands.add_parser("sim", help="serve a simulated feed on this machine until Ctrl-C")
    feeds = parser.add_subparsers(dest="feed", required=True, metavar="feed")
    for name, (sim_class, about) in _FEEDS.items():
        feed = feeds.add_parser(
            name, help=about, description=f"{about}. Prints its URL and serves until Ctrl-C."
        )
        feed.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
        feed.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
        feed.add_argument("--seed", type=int, default=0, help="seed of the random records (default: 0)")
        feed.add_argument(
            "--rate", type=float, default=5, help="records per second (default: 5); 0: no limit"
        )
        feed.add_argument("--count", type=int, default=None, help="number of records (default: no limit)")
        feed.add_argument(
            "--fault",
            dest="faults",
            action="append",
            default=[],
            metavar="FAULT",
            help=f"a fault before record N; can be repeated: {'; '.join(spellings())}",
        )
        feed.set_defaults(run=lambda args, sim_class=sim_class: _serve(sim_class, args, print_lines))


def _serve(
    sim_class: type[RsvpSim] | type[WikimediaSim], args: argparse.Namespace, print_lines: Print
) -> int:
    with _start(sim_class, args) as sim:
        try:
            print_lines([sim.url])
            threading.Event().wait()
        except KeyboardInterrupt:
            sent = sim.sent
            print_lines(
                [f"requests {len(sim.requests)}, records {len(sent)}, different ones {len(set(sent))}"]
            )
    return 0


def _start(sim_class: type[RsvpSim] | type[WikimediaSim], args: argparse.Namespace) -> Sim:
    settings = {name: getattr(args, name) for name in ("seed", "rate", "count", "host", "port")}
    try:
        return sim_class(faults=[fault(text) for text in args.faults], **settings)
    except (OSError, OverflowError) as error:
        raise HeadwaterError(
            f"cannot listen on {args.host}, port {args.port}: {str(error).rstrip('.')}",
            "leave out --port to use a free one",
        ) from None
