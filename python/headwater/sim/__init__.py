"""Simulators of real feeds: local servers that speak their protocols, seeded, with faults on demand.

    from headwater.sim import Cut, RsvpSim

    with RsvpSim(seed=1, rate=50, faults=[Cut(after=100)]) as sim:
        print(sim.url)      # any HTTP client can read it
        print(sim.sent)     # the numbers of the records that were sent, in order

`headwater sim rsvp` and `headwater sim wikimedia` run one from a shell.
"""

from headwater.sim.faults import (
    BadRecord,
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
from headwater.sim.wikimedia import WikimediaSim

__all__ = [
    "BadRecord",
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
    "WikimediaSim",
    "fault",
]
