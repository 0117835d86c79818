"""The feed of Meetup's RSVPs, as it was: an endless response with a JSON object on each line."""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from headwater.sim.records import FIRST_NAMES, LAST_NAMES, PLACES, TITLES, TOPICS, VENUES
from headwater.sim.server import RefusedError, Reply, Request, Sim

__all__ = ["RsvpSim"]

_FIRST_ID = 1_700_000_000
_CHANGE_EVERY, _CHANGE_OF = 10, 17
"""Every tenth record is a member's change of mind: the RSVP of 17 records before, at a new time."""


class RsvpSim(Sim):
    """`GET /2/rsvps`, from now on, or with the last `since_count` records, or those after `since_mtime`.

    The quirks are those of the real feed: slashes may be escaped, `venue` and others may be missing, texts
    are in many scripts, several records have the same `mtime`, and an RSVP that is changed comes again under
    the same `rsvp_id`.

    It has `count` records, or no end, and makes `rate` a second, or all at once with 0. `start`, with its
    zone, is when they begin; else that is now. `sent`, `requests` and `faults_come` tell what has happened.

    >>> from urllib.request import urlopen
    >>> with RsvpSim(seed=1, rate=0, count=3) as sim:
    ...     with urlopen(sim.url) as answer:
    ...         print(answer.readline()[:40])
    ...     print(sim.record(2)["rsvp_id"], len(sim.requests))
    b'{"visibility":"public","response":"no","'
    1700000002 1
    """

    path: ClassVar[str] = "/2/rsvps"

    def answer(self, request: Request) -> Reply:
        """The records that a request is for, by its `since_count` or `since_mtime`."""
        if request.path != self.path:
            raise RefusedError(404, f"there is nothing at {request.path}; RSVPs are at {self.path}")
        return Reply(
            content_type="application/json; charset=utf-8",
            start=self._start(request),
            encode=self.line,
            bad=b'{"rsvp_id":17,"venue":{"venue_name":\n',
        )

    def _start(self, request: Request) -> int:
        count, mtime = (_whole(request, name) for name in ("since_count", "since_mtime"))
        if count is not None and mtime is not None:
            raise RefusedError(400, "since_count and since_mtime exclude each other")
        if mtime is not None:
            return self.timeline.first_from(mtime + 1)
        if count is not None:
            return self.timeline.newest(count)
        return self.timeline.live

    def line(self, n: int) -> bytes:
        """Record n as it is sent."""
        text = json.dumps(self.record(n), ensure_ascii=False, separators=(",", ":"))
        if n % 3 != 1:
            text = text.replace("/", "\\/")
        return text.encode() + b"\n"

    def record(self, n: int) -> dict[str, Any]:
        """Record n: the same for the same seed, but for its time."""
        mtime, of = self.timeline.stamp(n), n
        earlier = n - _CHANGE_OF
        if n % _CHANGE_EVERY == _CHANGE_EVERY - 1 and earlier >= 0 and self.timeline.stamp(earlier) < mtime:
            of = earlier
        made = _made(random.Random(f"{self.seed}/{of}"), mtime)  # noqa: S311
        if of != n:
            made["response"] = "no" if made["response"] == "yes" else "yes"
        return {
            key: value for key, value in (made | {"rsvp_id": _FIRST_ID + of}).items() if value is not None
        }


def _whole(request: Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is not None and not (text.isascii() and text.isdigit()):
        raise RefusedError(400, f"{name} is '{text}', it must be a whole number")
    return None if text is None else int(text)


def _made(dice: random.Random, mtime: int) -> dict[str, Any]:
    """In the real feed's order; None stands for what is left out."""
    city, country, state, lat, lon = dice.choice(PLACES)
    topics = dice.sample(TOPICS, dice.randint(1, 4))
    member, group = dice.randrange(10**6, 10**9), dice.randrange(10**5, 10**8)
    event, urlname = dice.randrange(10**8, 10**9), f"{topics[0][0]}-{country}-{group % 97}"
    venue = {
        "venue_name": dice.choice(VENUES),
        "lon": _near(dice, lon),
        "lat": _near(dice, lat),
        "venue_id": dice.randrange(10**5, 10**8),
    }
    photo = f"https://photos.example.org/member/{member % 4096:x}/{member}.jpeg"
    return {
        "venue": venue if dice.random() < 0.6 else None,
        "visibility": "public" if dice.random() < 0.95 else "public_limited",
        "response": "yes" if dice.random() < 0.75 else "no",
        "guests": dice.choice((0, 0, 0, 0, 1, 2)),
        "member": _without_none(
            member_id=member,
            photo=photo if dice.random() < 0.7 else None,
            member_name=f"{dice.choice(FIRST_NAMES)} {dice.choice(LAST_NAMES)}",
        ),
        "rsvp_id": None,
        "mtime": mtime,
        "event": _without_none(
            event_name=dice.choice(TITLES),
            event_id=str(event) if dice.random() < 0.7 else f"{event:x}qbfb",
            time=mtime // 60_000 * 60_000 + dice.randrange(1, 500) * 900_000 if dice.random() < 0.9 else None,
            event_url=f"https://www.example.org/{urlname}/events/{event}/",
        ),
        "group": _without_none(
            group_topics=[{"urlkey": key, "topic_name": name} for key, name in topics],
            group_city=city,
            group_country=country,
            group_id=group,
            group_name=f"{city} {topics[0][1]}",
            group_lon=lon,
            group_urlname=urlname,
            group_state=state,
            group_lat=lat,
        ),
    }


def _without_none(**parts: Any) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value is not None}


def _near(dice: random.Random, degrees: float) -> float:
    return round(degrees + dice.uniform(-0.1, 0.1), 6)
