"""What simulated records contain, and when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

__all__ = [
    "ENDLESS",
    "FIRST_NAMES",
    "LAST_NAMES",
    "PLACES",
    "TITLES",
    "TOPICS",
    "VENUES",
    "WIKIS",
    "Timeline",
]

PLACES = [  # city, country, state, latitude, longitude
    ("New York", "us", "NY", 40.75, -73.99),
    ("San Francisco", "us", "CA", 37.77, -122.41),
    ("Austin", "us", "TX", 30.27, -97.74),
    ("Toronto", "ca", "ON", 43.67, -79.38),
    ("Montréal", "ca", "QC", 45.54, -73.65),
    ("London", "gb", None, 51.52, -0.1),
    ("Dublin", "ie", None, 53.33, -6.25),
    ("Paris", "fr", None, 48.86, 2.34),
    ("München", "de", None, 48.14, 11.58),
    ("Zürich", "ch", None, 47.38, 8.54),
    ("Kraków", "pl", None, 50.06, 19.96),
    ("Málaga", "es", None, 36.72, -4.42),
    ("São Paulo", "br", None, -23.53, -46.63),
    ("Bogotá", "co", None, 4.63, -74.09),
    ("Bangalore", "in", None, 12.97, 77.56),
    ("東京", "jp", None, 35.67, 139.77),
    ("Sydney", "au", None, -33.87, 151.21),
]
FIRST_NAMES = [
    "Ana",
    "Bjørn",
    "Chloé",
    "Deepa",
    "Émile",
    "François",
    "Grace",
    "Jürgen",
    "Łukasz",
    "Мария",
    "Noor",
    "優子",
]
LAST_NAMES = [
    "Ångström",
    "Brown",
    "Çelik",
    "Díaz",
    "García",
    "Ivanova",
    "Müller",
    "Nowak",
    "O'Neill",
    "Rao",
    "佐藤",
]
TOPICS = [
    ("big-data", "Big Data"),
    ("hiking", "Hiking"),
    ("language", "Language & Culture"),
    ("opensource", "Open Source"),
    ("photo", "Photography"),
    ("softwaredev", "Software Development"),
    ("women-in-technology", "Women in Technology"),
    ("writing", "Writing/Reading"),
]
VENUES = [
    "Café Central",
    "Library / Room 2",
    "The Old Mill",
    'Coworking "Loft"',
    "Park, north gate",
    "Bibliothèque",
]
TITLES = [
    "Evening walk 🥾",
    "Hack night",
    "Apéro des développeurs",
    'Reading circle: "Ulysses"',
    "Streams & coffee ☕",
]
WIKIS = [  # domain, database
    ("en.wikipedia.org", "enwiki"),
    ("de.wikipedia.org", "dewiki"),
    ("fr.wikipedia.org", "frwiki"),
    ("ja.wikipedia.org", "jawiki"),
    ("commons.wikimedia.org", "commonswiki"),
    ("www.wikidata.org", "wikidatawiki"),
]


ENDLESS = 1 << 62
"""More records than any reader will take."""

_NOMINAL = 1000
"""Records that come as fast as they can still have times: as if so many came in a second."""

_LEADERS = (0, 1, 2, 2, 2, 5, 6, 6)
"""Of eight records in a row, whose time each has: real feeds give one to several records."""


class Timeline:
    """`rate` records come in a second, from the moment that it is made; with 0 all are there at once.

    The time that a record says is that of its coming, counted from `start`, or a little before.

    >>> hour = Timeline(rate=100, count=None, start=datetime(2024, 1, 1, tzinfo=timezone.utc))
    >>> [hour.stamp(n) - hour.stamp(0) for n in range(9)]
    [0, 10, 20, 20, 20, 50, 60, 60, 80]
    >>> hour.first_from(hour.stamp(0) + 20), hour.first_from(hour.stamp(0) + 21)
    (2, 5)
    """

    def __init__(
        self,
        rate: float,
        count: int | None,
        start: datetime | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= rate < float("inf"):
            raise ValueError(f"rate is {rate!r}, it must be 0 or more records per second")
        if count is not None and count < 0:
            raise ValueError(f"count is {count!r}, it must be 0 or more records, or None for no end")
        if start is not None and start.tzinfo is None:
            raise ValueError(f"start is {start.isoformat()}, it must have a time zone")
        self.rate = rate
        self.end = ENDLESS if count is None else count
        self._start = int((start or datetime.now(timezone.utc)).timestamp() * 1000)
        self._clock = clock
        self._began = clock()

    @property
    def made(self) -> int:
        """How many records there are by now."""
        if self.rate == 0:
            return self.end
        return min(self.end, int((self._clock() - self._began) * self.rate) + 1)

    @property
    def live(self) -> int:
        """The next record, for a reader who asks for no earlier one. Without a rate that is the first."""
        return self.made if self.rate else 0

    def newest(self, count: int) -> int:
        """The first of the `count` newest records; without an end to them, of all."""
        return 0 if self.made == ENDLESS else max(0, self.made - count)

    def finish(self) -> None:
        """No record comes after those that there are."""
        self.end = self.made

    def seconds_to(self, n: int) -> float | None:
        """How long until record n is there; None if it will never be."""
        if n >= self.end:
            return None
        return max(0.0, n / self.rate - (self._clock() - self._began)) if self.rate else 0.0

    def stamp(self, n: int) -> int:
        """The time of record n, in milliseconds since 1970. It never goes back from one to the next."""
        leader = n - n % len(_LEADERS) + _LEADERS[n % len(_LEADERS)]
        return self._start + int(leader * 1000 / (self.rate or _NOMINAL))

    def first_from(self, stamp: int) -> int:
        """The first record of that time or a later one."""
        n = max(0, int((stamp - self._start) * (self.rate or _NOMINAL) / 1000) - 1)
        while self.stamp(n) < stamp:
            n += 1
        while n > 0 and self.stamp(n - 1) >= stamp:
            n -= 1
        return n
