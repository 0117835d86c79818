"""The schema of Meetup's RSVPs. Not beside their source, because `import headwater` needs no HTTP library."""

from __future__ import annotations

__all__ = ["RSVP_SCHEMA"]

RSVP_SCHEMA = (
    "venue STRUCT<venue_name: STRING, lon: DOUBLE, lat: DOUBLE, venue_id: BIGINT>, "
    "visibility STRING, response STRING, guests INT, "
    "member STRUCT<member_id: BIGINT, photo: STRING, member_name: STRING>, "
    "rsvp_id BIGINT, mtime BIGINT, "
    "event STRUCT<event_name: STRING, event_id: STRING, time: BIGINT, event_url: STRING>, "
    "`group` STRUCT<group_topics: ARRAY<STRUCT<urlkey: STRING, topic_name: STRING>>, group_city: STRING, "
    "group_country: STRING, group_id: BIGINT, group_name: STRING, group_lon: DOUBLE, group_urlname: STRING, "
    "group_state: STRING, group_lat: DOUBLE>"
)
"""The columns of an RSVP as DDL, for `from_json`. `meetup_rsvp` with `decode` = `json` has this schema.

>>> from pyspark.sql.functions import from_json
>>> strings = spark.createDataFrame([('{"response": "yes", "guests": 2}',)], "rsvp STRING")
>>> rsvps = strings.select(from_json("rsvp", hw.RSVP_SCHEMA).alias("rsvp"))
>>> print(rsvps.select("rsvp.response", "rsvp.guests").dtypes)
[('response', 'string'), ('guests', 'int')]
"""
