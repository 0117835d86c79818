"""Meetup's former RSVP feed: an endless response with a JSON object on each line."""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from headwater.sim.server import RefusedError, Reply, Request, Sim
from headwater.sim.words import FIRST_NAMES, LAST_NAMES, PLACES, TITLES, TOPICS, VENUES

__all__ = ["RsvpSim"]

_FIRST_ID = 1_700_000_000
_CHANGE_EVERY, _CHANGE_OF = 10, 17
"""Every tenth record is a changed RSVP: that of 17 records before, with a new time."""


class RsvpSim(Sim):
    """Serves `GET /2/rsvps`: new records, the last `since_count` ones too, or those after `since_mtime`.

    It has the quirks of the real feed: slashes may be escaped, `venue` and other fields may be missing,
    strings are in many scripts, several records share an `mtime`, and an RSVP that was changed comes again
    with the same `rsvp_id`.

    It makes `rate` records per second, or all at once if that is 0, and stops after `count`, if there is one.
    `start`, which must have a time zone, is the time of the first record; by default now. `sent`, `requests`
    and `faults_come` say what has happened.

    >>> from urllib.request import urlopen
    >>> with RsvpSim(seed=1, rate=0, count=3) as sim:
    ...     with urlopen(sim.url) as response:
    ...         print(response.readline()[:40])
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
        count, mtime = (_parse_integer(request, name) for name in ("since_count", "since_mtime"))
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
        """Record n: the same for the same seed, except for its time."""
        mtime, original = self.timeline.stamp(n), n
        earlier = n - _CHANGE_OF
        if n % _CHANGE_EVERY == _CHANGE_EVERY - 1 and earlier >= 0 and self.timeline.stamp(earlier) < mtime:
            original = earlier
        rsvp = _rsvp(random.Random(f"{self.seed}/{original}"), mtime)  # noqa: S311
        rsvp["rsvp_id"] = _FIRST_ID + original
        if original != n:
            rsvp["response"] = "no" if rsvp["response"] == "yes" else "yes"
        return _without_none(**rsvp)


def _parse_integer(request: Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is not None and not (text.isascii() and text.isdigit()):
        raise RefusedError(400, f"{name} is '{text}', it must be an integer")
    return None if text is None else int(text)


def _rsvp(dice: random.Random, mtime: int) -> dict[str, Any]:
    """The fields in the order of the real feed. Fields that are None are left out."""
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


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _near(dice: random.Random, degrees: float) -> float:
    return round(degrees + dice.uniform(-0.1, 0.1), 6)
