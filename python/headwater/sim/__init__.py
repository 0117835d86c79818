"""Simulators of real feeds: local servers that speak their protocols, seeded, with faults on demand.

    from headwater.sim import Cut, RsvpSim

    with RsvpSim(seed=1, rate=50, faults=[Cut(after=100)]) as sim:
        print(sim.url)      # any HTTP client can read it
        print(sim.sent)     # the numbers of the records that were sent, in order

`headwater sim rsvp`, `headwater sim websocket` and `headwater sim wikimedia` run one from a shell.
`WebhookCallers` are clients instead of a server: they POST to a URL, with faults too, as
`headwater sim webhook` does.
"""

from headwater.sim.faults import (
    BadRecord,
    BadSignature,
    Cut,
    CutMidCharacter,
    CutMidRecord,
    End,
    Fault,
    Redirect,
    Repeat,
    Reset,
    Skip,
    Stall,
    Status,
    fault,
)
from headwater.sim.rsvp import RsvpSim
from headwater.sim.webhook import WebhookCallers
from headwater.sim.websocket import WebSocketSim
from headwater.sim.wikimedia import WikimediaSim

__all__ = [
    "BadRecord",
    "BadSignature",
    "Cut",
    "CutMidCharacter",
    "CutMidRecord",
    "End",
    "Fault",
    "Redirect",
    "Repeat",
    "Reset",
    "RsvpSim",
    "Skip",
    "Stall",
    "Status",
    "WebSocketSim",
    "WebhookCallers",
    "WikimediaSim",
    "fault",
]
