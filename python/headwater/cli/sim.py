"""`headwater sim`: serves a simulated feed, or calls a webhook."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections import Counter
from typing import Any

from headwater.cli.output import print_lines
from headwater.errors import HeadwaterError
from headwater.sim.faults import FAULT_TYPES, BadSignature, fault, spellings
from headwater.sim.rsvp import RsvpSim
from headwater.sim.webhook import CALLER_FAULTS, WebhookCallers
from headwater.sim.websocket import WebSocketSim
from headwater.sim.wikimedia import WikimediaSim

__all__ = ["add_to"]

Sim = RsvpSim | WebSocketSim | WikimediaSim

_FEEDS: dict[str, tuple[type[Sim], str]] = {
    "rsvp": (RsvpSim, "Meetup's RSVPs, one JSON object per line"),
    "websocket": (WebSocketSim, "numbered events over a WebSocket, as Bluesky's Jetstream sends them"),
    "wikimedia": (WikimediaSim, "changes of Wikimedia's wikis, as Server-Sent Events"),
}


def add_to(commands: Any) -> None:
    """Adds the command to argparse's subparsers."""
    parser = commands.add_parser("sim", help="simulate a feed on this machine until Ctrl-C")
    feeds = parser.add_subparsers(dest="feed", required=True, metavar="feed")
    for name, (sim_class, about) in _FEEDS.items():
        feed = feeds.add_parser(
            name, help=about, description=f"{about}. Prints its URL and serves until Ctrl-C."
        )
        feed.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
        feed.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
        _add_record_arguments(feed, spellings([type_ for type_ in FAULT_TYPES if type_ is not BadSignature]))
        feed.set_defaults(run=lambda args, sim_class=sim_class: _serve(sim_class, args))

    _add_callers(feeds)


def _add_callers(feeds: Any) -> None:
    about = "callers of a webhook, which POST orders in JSON to a URL"
    callers = feeds.add_parser(
        "webhook", help=about, description=f"{about}. Runs until Ctrl-C, or to --count."
    )
    callers.add_argument("url", nargs="?", default="http://127.0.0.1:8080/", help="(default: %(default)s)")
    callers.add_argument("--clients", type=int, default=4, help="connections at a time (default: 4)")
    callers.add_argument(
        "--verify",
        choices=["none", "header", "basic", "github", "stripe", "slack"],
        default="none",
        help="how requests are signed, as the option of the source webhook",
    )
    callers.add_argument("--secret-env", metavar="NAME", help="the environment variable that has the secret")
    _add_record_arguments(callers, spellings(CALLER_FAULTS))
    callers.set_defaults(run=_call)


def _add_record_arguments(parser: argparse.ArgumentParser, faults: list[str]) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of the random records (default: 0)")
    parser.add_argument("--rate", type=float, default=5, help="records per second (default: 5); 0: no limit")
    parser.add_argument("--count", type=int, default=None, help="number of records (default: no limit)")
    parser.add_argument(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="FAULT",
        help=f"a fault before record N; can be repeated: {'; '.join(faults)}",
    )


def _call(args: argparse.Namespace) -> int:
    stopped = _stop_signal()
    faults = [fault(text) for text in args.faults]
    settings = {name: getattr(args, name) for name in ("seed", "rate", "count", "clients", "verify")}
    secret = "" if args.secret_env is None else os.environ.get(args.secret_env, "")
    with WebhookCallers(args.url, faults=faults, secret=secret, **settings) as callers:
        while not stopped.is_set() and not callers.wait(0.1):
            pass
        statuses = Counter(callers.answers.values())
        shown = ", ".join(f"{count} with {status}" for status, count in sorted(statuses.items())) or "none"
        print_lines([f"requests {callers.requests}, records answered: {shown}"])
    return 0


def _stop_signal() -> threading.Event:
    """Set by Ctrl-C."""
    stopped = threading.Event()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Several Ctrl-C are one: `timeout` signals its child and then the child's process group.
        signal.signal(signal.SIGINT, lambda signum, frame: stopped.set())
    return stopped


def _serve(sim_class: type[Sim], args: argparse.Namespace) -> int:
    stopped = _stop_signal()
    with _start(sim_class, args) as sim:
        print_lines([sim.url])
        stopped.wait()
        sent = sim.sent
        print_lines([f"requests {len(sim.requests)}, records {len(sent)}, different ones {len(set(sent))}"])
    return 0


def _start(sim_class: type[Sim], args: argparse.Namespace) -> Sim:
    settings = {name: getattr(args, name) for name in ("seed", "rate", "count", "host", "port")}
    try:
        return sim_class(faults=[fault(text) for text in args.faults], **settings)
    except (OSError, OverflowError) as error:
        raise HeadwaterError(
            f"cannot listen on {args.host}, port {args.port}: {str(error).rstrip('.')}",
            "leave out --port to use a free one",
        ) from None
