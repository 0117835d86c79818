"""The parameters of a source as its options: Spark's strings, calls in Python, and the errors for wrong ones.

The tests import `headwater.options`, which is not public: they cover every type of option without Spark.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.options import (
    RESERVED,
    SUPPORTED_TYPES,
    Option,
    OptionError,
    Secret,
    Signature,
    format_value,
    option_type,
)

UTC = timezone.utc
ISO = "an ISO 8601 date and time such as 2024-05-31T12:30:00Z, with at most microseconds"
MANY = "a comma-separated list or a JSON array, each item"
SPAN = "a duration such as 250ms, 10s, 15m, 2h or 1d"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"
    SCARLET = "red"  # noqa: PIE796 - an alias


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(str, Enum):
    HELLO = "hello"


class Swapped(Enum):
    A = "B"
    B = "A"


class Empty(Enum):
    pass


def of(function: Callable[..., object], *skip: str) -> Signature:
    return Signature.of(function, owner="source 'letters'", skip=skip)


def with_type(annotation: object) -> Signature:
    """A source with one required option, `option`, of that type."""

    def function(option): ...  # type: ignore[no-untyped-def]

    function.__annotations__ = {"option": annotation}
    return of(function)


def letters(
    url: str,
    length: int = 5,
    *,
    base_url: str | None = None,
    token: Secret | None = None,
    tags: list[str] = [],  # noqa: B006 - that no call shares it is tested
    since: object = None,
) -> None: ...


LETTERS = of(letters, "since")


# Strings


GOOD: list[tuple[Any, str, object]] = [
    (str, "", ""),
    (str, " as it is ", " as it is "),
    (str, "null", "null"),
    (int, "5", 5),
    (int, " -12 ", -12),
    (int, "+007", 7),
    (int, "9" * 30, int("9" * 30)),
    (float, "2.5", 2.5),
    (float, " 3 ", 3.0),
    (float, "-1e-3", -0.001),
    (float, ".5", 0.5),
    (float, "5.", 5.0),
    (bool, "true", True),
    (bool, " FALSE ", False),
    (bool, "True", True),
    (datetime, "2024-05-31T12:30:00Z", datetime(2024, 5, 31, 12, 30, tzinfo=UTC)),
    (datetime, " 2024-05-31 12:30 ", datetime(2024, 5, 31, 12, 30)),
    (datetime, "2024-05-31", datetime(2024, 5, 31)),
    (datetime, "2024-05-31T12:30:01.5", datetime(2024, 5, 31, 12, 30, 1, 500_000)),
    (datetime, "2024-05-31T12:30:01,000001Z", datetime(2024, 5, 31, 12, 30, 1, 1, UTC)),
    (datetime, "2024-05-31T12:30+02", datetime(2024, 5, 31, 10, 30, tzinfo=UTC)),
    (datetime, "2024-05-31T12:30-0130", datetime(2024, 5, 31, 14, 0, tzinfo=UTC)),
    (datetime, "2024-05-31T12:30:00+05:30", datetime(2024, 5, 31, 7, 0, tzinfo=UTC)),
    (timedelta, "250ms", timedelta(milliseconds=250)),
    (timedelta, "10s", timedelta(seconds=10)),
    (timedelta, "15m", timedelta(minutes=15)),
    (timedelta, " 2 h ", timedelta(hours=2)),
    (timedelta, "1d", timedelta(days=1)),
    (timedelta, "0s", timedelta(0)),
    (Literal["a", "b"], "a", "a"),
    (Literal["a", "b"], " b ", "b"),
    (Literal[" a"], " a", " a"),
    (Literal[1, 2], "2", 2),
    (Literal[True, "auto"], "TRUE", True),
    (Literal[True, "auto"], "auto", "auto"),
    (Literal[True, 1], "1", 1),
    (Colour, "RED", Colour.RED),
    (Colour, " blue ", Colour.BLUE),
    (Colour, "SCARLET", Colour.RED),
    (Level, "HIGH", Level.HIGH),
    (Word, "hello", Word.HELLO),
    (list[str], "", []),
    (list[str], "  ", []),
    (list[str], "a, b ,c", ["a", "b", "c"]),
    (list[str], "a,,b", ["a", "", "b"]),
    (list[str], ' ["a, b", " c "] ', ["a, b", " c "]),
    (list[str], "[]", []),
    (list[int], "1, 2", [1, 2]),
    (list[int], "[1, 2]", [1, 2]),
    (list[int], '["1", 2]', [1, 2]),
    (list[float], "[1, 2.5]", [1.0, 2.5]),
    (list[bool], "true,False", [True, False]),
    (list[bool], "[true, false]", [True, False]),
    (list[timedelta], "10s,1d", [timedelta(seconds=10), timedelta(days=1)]),
    (list[datetime], '["2024-05-31"]', [datetime(2024, 5, 31)]),
    (list[Literal["a", 1]], '["a", 1]', ["a", 1]),
    (list[Colour], "red,BLUE", [Colour.RED, Colour.BLUE]),
    (list[Secret], "a,b", [Secret("a"), Secret("b")]),
    (list[int | None], "[1, null]", [1, None]),
    (Secret, " a b ", Secret(" a b ")),
    (str | None, "null", "null"),
    (str | None, "", ""),
    (Optional[int], "5", 5),  # noqa: UP045 - the older spelling is one too
    (None | timedelta, "1d", timedelta(days=1)),
    (Secret | None, "abc", Secret("abc")),
    (list[int] | None, "1", [1]),
    (Annotated[int, "how many"], "5", 5),
    ("list[int] | None", "1", [1]),
    ("Colour", "red", Colour.RED),
]


@pytest.mark.parametrize(("annotation", "text", "value"), GOOD)
def test_a_string_is_parsed_as_the_type_says(annotation: object, text: str, value: object) -> None:
    found = with_type(annotation).parse({"option": text})["option"]
    assert found == value
    assert type(found) is type(value)
    if isinstance(found, datetime) and isinstance(value, datetime):
        assert (found.tzinfo is None) == (value.tzinfo is None), "nothing is substituted for a missing zone"


INTS = ("", "five", "1_000", "1.0", " 5x", "1 2", "0x1f", "٣", "1e3")
FLOATS = ("", "x", "nan", "inf", "-Infinity", "1e999", "1_0.5", ".")
TIMES = (
    "",
    "now",
    "2024-05-31T",
    "2024-5-31",
    "20240531",
    "2024-05-31T24:00",
    "2024-05-31T12:30Zulu",
    "1717158600",
)
BAD: list[tuple[Any, str, str]] = [
    *((int, text, "an integer") for text in INTS),
    *((float, text, "a finite number") for text in FLOATS),
    *((bool, text, "true or false") for text in ("", "yes", "1", "0", "t", "tru e")),
    *((datetime, text, ISO) for text in TIMES),
    (datetime, "2024-05-31T12:30:00.1234567Z", ISO),
    (datetime, "2024-02-30", f"{ISO} (day is out of range for month)"),
    *((timedelta, text, SPAN) for text in ("", "10", "s", "-1s", "1.5h", "10S", "10 seconds", "1w", "5us")),
    *((Literal["a", "b"], text, "one of: a, b") for text in ("", "A", "c", "a,b", "'a'")),
    *((Literal[1, True], text, "one of: 1, true") for text in ("2", "false", "01")),
    *((Colour, text, "one of: RED, red, BLUE, blue, SCARLET") for text in ("", "Red", "green", "Colour.RED")),
    *((Level, text, "one of: LOW, HIGH") for text in ("1", "low")),
    *((int | None, text, "an integer") for text in ("", "null", "None")),
    (list[int], "1,x", f"{MANY} an integer (item 2 is 'x')"),
    (list[int], "1,2,", f"{MANY} an integer (item 3 is '')"),
    (list[int], "[1, 2.0]", f"{MANY} an integer (item 2 is 2.0)"),
    (list[int], "[true]", f"{MANY} an integer (item 1 is True)"),
    (list[int], "[null]", f"{MANY} an integer (item 1 is None)"),
    (list[int], "[[1]]", f"{MANY} an integer (item 1 is [1])"),
    (list[int | None], "1,null", f"{MANY} an integer (item 2 is 'null')"),
    (list[str], "[1]", f"{MANY} a string (item 1 is 1)"),
    (list[str], "[a]", f"{MANY} a string (Expecting value: line 1 column 2 (char 1))"),
    (list[str], '["a"', f"{MANY} a string (Expecting ',' delimiter: line 1 column 5 (char 4))"),
    (list[float], "[NaN]", f"{MANY} a finite number (item 1 is nan)"),
    (list[Literal["a"]], "a,b", f"{MANY} one of: a (item 2 is 'b')"),
]


@pytest.mark.parametrize(("annotation", "text", "allowed"), BAD)
def test_the_error_for_a_wrong_string_names_the_option_and_what_is_allowed(
    annotation: object, text: str, allowed: str
) -> None:
    with pytest.raises(OptionError) as caught:
        with_type(annotation).parse({"option": text})
    assert str(caught.value) == f"option 'option' of source 'letters' is {text!r}, it must be {allowed}"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (timedelta, "999999999999999999d"),
        (timedelta, "1000000000d"),
        (list[timedelta], "1s,1000000000d"),
        (list[str], "[" * 100_000),
        (int, "9" * 5000 + "x"),
    ],
)
def test_a_huge_string_is_an_option_error_of_readable_length(annotation: object, text: str) -> None:
    with pytest.raises(
        OptionError, match=r"^option 'option' of source 'letters' is '.*it must be "
    ) as caught:
        with_type(annotation).parse({"option": text})
    assert len(str(caught.value)) < 500


# Values in Python


TAKEN: list[tuple[Any, object, object]] = [
    (str, "a", "a"),
    (str, Word.HELLO, "hello"),
    (int, 5, 5),
    (int, Level.HIGH, 2),
    (float, 2.5, 2.5),
    (float, 2, 2.0),
    (bool, False, False),
    (datetime, datetime(2024, 5, 31), datetime(2024, 5, 31)),
    (timedelta, timedelta(minutes=3), timedelta(minutes=3)),
    (Literal["a", 1], 1, 1),
    (Colour, Colour.RED, Colour.RED),
    (list[int], [1, 2], [1, 2]),
    (list[float], [1, 2.5], [1.0, 2.5]),
    (list[Secret], ["a", Secret("b")], [Secret("a"), Secret("b")]),
    (Secret, Secret("a"), Secret("a")),
    (Secret, "a", Secret("a")),
    (Secret | None, "a", Secret("a")),
    (Secret | None, None, None),
    (int | None, None, None),
    (list[int | None], [None, 1], [None, 1]),
]


@pytest.mark.parametrize(("annotation", "given_value", "value"), TAKEN)
def test_a_value_of_the_type_is_accepted(annotation: object, given_value: object, value: object) -> None:
    found = with_type(annotation).check((given_value,), {})["option"]
    assert found == value
    assert type(found) is type(value)


REFUSED: list[tuple[Any, object, type[Exception], str]] = [
    (str, 5, TypeError, "5 of type int, it must be a string, of type str"),
    (str, None, TypeError, "None of type NoneType, it must be a string, of type str"),
    (str, Secret("abc"), TypeError, "Secret(***) of type Secret, it must be a string, of type str"),
    (int, "8", TypeError, "'8' of type str, it must be an integer, of type int"),
    (int, True, TypeError, "True of type bool, it must be an integer, of type int"),
    (int, 5.0, TypeError, "5.0 of type float, it must be an integer, of type int"),
    (int | None, "8", TypeError, "'8' of type str, it must be an integer, of type int | None"),
    (float, True, TypeError, "True of type bool, it must be a finite number, of type float"),
    (float, math.nan, OptionError, "nan of type float, it must be a finite number, of type float"),
    (float, -math.inf, OptionError, "-inf of type float, it must be a finite number, of type float"),
    (bool, 1, TypeError, "1 of type int, it must be true or false, of type bool"),
    (datetime, "2024-05-31", TypeError, f"'2024-05-31' of type str, it must be {ISO}, of type datetime"),
    (timedelta, 10, TypeError, f"10 of type int, it must be {SPAN}, of type timedelta"),
    (
        Literal["a", "b"],
        "c",
        OptionError,
        "'c' of type str, it must be one of: a, b, of type Literal['a', 'b']",
    ),
    (Literal["a", "b"], 1, TypeError, "1 of type int, it must be one of: a, b, of type Literal['a', 'b']"),
    (Literal[1], True, TypeError, "True of type bool, it must be one of: 1, of type Literal[1]"),
    (Level, "HIGH", TypeError, "'HIGH' of type str, it must be one of: LOW, HIGH, of type Level"),
    (Level, 2, TypeError, "2 of type int, it must be one of: LOW, HIGH, of type Level"),
]


@pytest.mark.parametrize(("annotation", "value", "error", "message"), REFUSED)
def test_the_error_for_a_wrong_value_names_the_option_and_what_is_allowed(
    annotation: object, value: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        with_type(annotation).check((), {"option": value})
    assert type(caught.value) is error
    assert str(caught.value) == f"option 'option' of source 'letters' is {message}"


@pytest.mark.parametrize(
    ("annotation", "value", "error", "reason"),
    [
        (list[int], [1, "2"], TypeError, "of type list[int] (item 2 is '2')"),
        (list[int], (1, 2), TypeError, "of type list[int]"),
        (list[Literal["a"]], ["b"], OptionError, "of type list[Literal['a']] (item 1 is 'b')"),
        (
            timedelta,
            timedelta(seconds=-1),
            OptionError,
            "of type timedelta (it must be a multiple of one millisecond and not negative)",
        ),
        (
            timedelta,
            timedelta(microseconds=1),
            OptionError,
            "(it must be a multiple of one millisecond and not negative)",
        ),
        (float, 10**400, OptionError, "of type float (int too large to convert to float)"),
    ],
)
def test_the_error_for_a_wrong_value_gives_the_reason_if_there_is_one(
    annotation: object, value: object, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error) as caught:
        with_type(annotation).check((value,), {})
    assert str(caught.value).endswith(reason)


# Values become strings and back


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (Colour.RED, "RED"),
        (Word.HELLO, "HELLO"),
        (datetime(2024, 5, 31, tzinfo=UTC), "2024-05-31T00:00:00+00:00"),
        (timedelta(0), "0s"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=7), "7d"),
        (timedelta(milliseconds=1500), "1500ms"),
        (["a", "é"], '["a", "é"]'),
        ([timedelta(seconds=1), None], '["1s", null]'),
    ],
)
def test_a_value_is_formatted_as_people_write_it(value: object, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize("value", [Secret("abc"), [Secret("abc")], object(), None])
def test_a_secret_is_never_formatted_nor_a_value_that_no_option_has(value: object) -> None:
    with pytest.raises(TypeError) as caught:
        format_value(value)
    assert "abc" not in str(caught.value)


spans = st.integers(0, 10**13).map(lambda n: timedelta(milliseconds=n))
finite = st.floats(allow_nan=False, allow_infinity=False)
zones = st.none() | st.integers(-86_399, 86_399).map(lambda n: timezone(timedelta(seconds=n)))
times = st.datetimes(timezones=zones)
values = st.one_of(
    *(
        st.tuples(st.just(kind), one)
        for kind, one in (
            (str, st.text()),
            (int, st.integers()),
            (float, finite),
            (bool, st.booleans()),
            (datetime, times),
            (timedelta, spans),
            (Literal["a", "b ", 1, True], st.sampled_from(["a", "b ", 1, True])),
            (Colour, st.sampled_from(Colour)),
            (list[str], st.lists(st.text())),
            (list[int | None], st.lists(st.none() | st.integers())),
            (list[float], st.lists(finite)),
            (list[bool], st.lists(st.booleans())),
            (list[datetime], st.lists(times)),
            (list[timedelta | None], st.lists(st.none() | spans)),
            (list[Literal["a", 1, True]], st.lists(st.sampled_from(["a", 1, True]))),
            (list[Level], st.lists(st.sampled_from(Level))),
        )
    )
)


@given(values)
def test_any_valid_value_is_formatted_and_parsed_back_equal(typed: tuple[Any, object]) -> None:
    annotation, value = typed
    signature = with_type(annotation)
    taken = signature.check((value,), {})["option"]
    assert taken == value
    assert signature.parse({"option": format_value(taken)}) == {"option": taken}


@given(st.text())
def test_any_string_is_parsed_or_is_an_option_error(text: str) -> None:
    for annotation in (
        int,
        float,
        bool,
        datetime,
        timedelta,
        Literal["a"],
        Colour,
        list[int],
        list[datetime],
    ):
        try:
            value = with_type(annotation).parse({"option": text})["option"]
        except OptionError:
            continue
        assert option_type(annotation).validate(value) == value


# Names


@pytest.mark.parametrize("name", ["base_url", "baseUrl", "baseurl", "BASE_URL", "BaseUrl"])
def test_names_match_ignoring_case_and_underscores(name: str) -> None:
    assert LETTERS.parse({"url": "u", name: "x"})["base_url"] == "x"


def test_options_left_out_have_their_default_in_the_order_of_the_signature() -> None:
    whole = {"url": "u", "length": 5, "base_url": None, "token": None, "tags": []}
    assert list(LETTERS.parse({"url": "u"}).items()) == list(whole.items())
    assert list(LETTERS.check((), {"url": "u"}).items()) == list(whole.items())
    assert LETTERS.check(("u", 8), {"tags": ["a"]}) == {**whole, "length": 8, "tags": ["a"]}


def test_no_two_calls_share_a_list() -> None:
    given_list = ["a"]
    first, second = LETTERS.check(("u",), {}), LETTERS.parse({"url": "u"})
    for found in (first["tags"], second["tags"], LETTERS.check(("u",), {"tags": given_list})["tags"]):
        assert isinstance(found, list)
        found.append("changed")
    assert given_list == ["a"]
    assert LETTERS.parse({"url": "u"})["tags"] == LETTERS.check(("u",), {})["tags"] == []
    assert letters.__kwdefaults__["tags"] == []


def test_the_error_for_an_unknown_option_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(OptionError) as caught:
        LETTERS.parse({"url": "u", "lenght": "8"})
    message = str(caught.value)
    assert message.startswith(
        "source 'letters' has no option 'lenght'. Did you mean 'length'? Its options are: "
    )
    assert all(option.text in message for option in LETTERS.options)
    assert all(name in message for name in RESERVED[:-1])


def test_the_suggestion_may_be_an_option_of_every_source() -> None:
    with pytest.raises(
        OptionError, match=r"no option 'maxrowpertrigger'\. Did you mean 'maxRowsPerTrigger'\?"
    ):
        LETTERS.parse({"url": "u", "maxrowpertrigger": "8"})


def test_nothing_is_suggested_if_no_option_is_similar() -> None:
    with pytest.raises(OptionError, match=r"no option 'zzz'\. Its options are: none\."):
        of(lambda: None).parse({"zzz": "8"})


def test_an_option_set_twice_is_an_error_with_both_spellings() -> None:
    with pytest.raises(
        OptionError, match="source 'letters' got 'baseUrl' and 'base_url', which are one option: keep one"
    ):
        LETTERS.parse({"url": "u", "baseUrl": "x", "base_url": "x"})


def test_the_error_for_missing_options_names_all_and_what_is_allowed() -> None:
    def needy(url: str, count: int, length: int = 5) -> None: ...

    with pytest.raises(OptionError) as caught:
        of(needy).parse({"length": "8"})
    message = "source 'letters' needs the option url: a string, required; count: an integer, required"
    assert str(caught.value) == message


def test_a_wrong_call_is_a_type_error_with_the_source_and_its_options() -> None:
    options = "; ".join(option.text for option in LETTERS.options)
    with pytest.raises(TypeError) as caught:
        LETTERS.check((), {})
    message = f"source 'letters': missing a required argument: 'url'. Its options are: {options}"
    assert str(caught.value) == message
    with pytest.raises(TypeError, match="source 'letters': too many positional arguments"):
        LETTERS.check(("u", 5, "x"), {})
    with pytest.raises(TypeError, match="source 'letters': multiple values for argument 'url'"):
        LETTERS.check(("u",), {"url": "u"})


@pytest.mark.parametrize(("wrong", "right"), [("lenght", "length"), ("baseUrl", "base_url"), ("tag", "tags")])
def test_the_error_for_an_unexpected_argument_suggests_the_nearest(wrong: str, right: str) -> None:
    message = (
        f"source 'letters' got an unexpected argument '{wrong}'. Did you mean '{right}'? Its options are: "
    )
    with pytest.raises(TypeError) as caught:
        LETTERS.check(("u",), {wrong: 8})
    assert str(caught.value).startswith(message)


def test_the_error_for_an_option_of_every_source_points_to_hw_stream() -> None:
    message = (
        r"maxRowsPerTrigger is an option of every source: pass it to hw\.stream\(…, max_rows_per_trigger=…\)"
    )
    with pytest.raises(TypeError, match=message):
        LETTERS.check(("u",), {"max_rows_per_trigger": 8})


def test_a_skipped_parameter_is_not_an_option() -> None:
    with pytest.raises(TypeError, match="unexpected argument 'since'"):
        LETTERS.check(("u",), {"since": 1})
    with pytest.raises(OptionError, match="has no option 'since'"):
        LETTERS.parse({"url": "u", "since": "1"})


# Descriptions of options


def test_options_describe_themselves() -> None:
    assert LETTERS.options[1] == Option("length", "an integer", False, 5, False)
    assert LETTERS.options[0] == Option("url", "a string", True, None, False)
    assert [option.text for option in LETTERS.options] == [
        "url: a string, required",
        "length: an integer, default 5",
        "base_url: a string, default none",
        "token: a secret string, default none",
        "tags: a comma-separated list or a JSON array, each item a string, default []",
    ]


def test_defaults_are_described_as_people_write_them() -> None:
    def function(
        on: bool = True,
        every: timedelta = timedelta(minutes=15),
        colour: Colour = Colour.RED,
        name: str = "",
        mode: Literal["a", "b"] = "a",
        token: Secret = Secret("abc"),  # noqa: B008
        keys: list[Secret] = [Secret("abc")],  # noqa: B006, B008
    ) -> None: ...

    message = [option.text.partition("default ")[2] for option in of(function).options]
    assert message == ["true", "15m", "RED", "''", "'a'", "not shown", "not shown"]


def test_a_repr_shows_what_is_required_or_not_the_default() -> None:
    assert LETTERS.show(LETTERS.check(("u",), {})) == "url='u'"
    bound = LETTERS.check(("u", 8), {"token": "abc", "tags": ["x"]})
    assert LETTERS.show(bound) == "url='u', length=8, token=***, tags=['x']"
    assert LETTERS.show({}) == ""
    needed = with_type(int | None)
    assert needed.show(needed.check((None,), {})) == "option=None"


def test_a_repr_shows_a_secret_set_to_none() -> None:
    def function(token: Secret | None = Secret("abc"), keys: list[Secret] = []) -> None: ...  # noqa: B006, B008

    signature = of(function)
    assert signature.show(signature.check((None, ["k"]), {})) == "token=None, keys=***"
    assert signature.show(signature.check(("abc",), {})) == ""


# Parameters that cannot be options


@pytest.mark.parametrize(
    "annotation",
    [
        dict,
        list,
        tuple[int, ...],
        dict[str, int],
        bytes,
        object,
        Any,
        int | str,
        int | str | None,
        None,
        list[list[int]],
        list[list[int] | None],
        list[dict[str, int]],
        Literal[b"x"],
        Literal["a", None],
        Literal[Colour.RED],
        Enum,
        Empty,
        "dict[str, int]",
    ],
)
def test_an_unsupported_annotation_is_an_error_with_place_and_remedy(annotation: object) -> None:
    with pytest.raises(TypeError) as caught:
        with_type(annotation)
    message = str(caught.value)
    assert message.startswith(f"parameter 'option' of source 'letters' ({__file__}:")
    name = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    assert f"has the unsupported option type {name}" in message
    assert message.endswith(f"Fix: use {SUPPORTED_TYPES}")


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Literal["1", 1], "the string '1' could mean '1' or 1"),
        (Literal[True, "true"], "the string 'true' could mean True or 'true'"),
        (Swapped, "the string 'B' could mean <Swapped.A: 'B'> or <Swapped.B: 'A'>"),
    ],
)
def test_values_with_the_same_string_are_an_error(annotation: object, reason: str) -> None:
    with pytest.raises(TypeError) as caught:
        with_type(annotation)
    assert f" ({reason}). Fix: use " in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("Nowhere", "name 'Nowhere' is not defined"),
        ("list[Nowhere]", "name 'Nowhere' is not defined"),
        ("hw.Secret", "name 'hw' is not defined"),
        ("int |", "Forward reference must be an expression"),
        ("Colour.GREEN", "GREEN"),
    ],
)
def test_an_annotation_that_cannot_be_evaluated_is_an_error_with_the_reason(
    annotation: str, reason: str
) -> None:
    with pytest.raises(TypeError) as caught:
        with_type(annotation)
    message = str(caught.value)
    assert message.startswith(f"parameter 'option' of source 'letters' ({__file__}:")
    assert f"has the annotation {annotation!r}, which cannot be evaluated (" in message
    assert reason in message.partition("cannot be evaluated")[2]
    assert message.endswith("Fix: define or import its names at the top of the module")
    assert caught.value.__cause__ is not None


def test_a_skipped_parameter_may_have_any_annotation() -> None:
    def function(self: Nowhere, length: int = 5, since: Nowhere = None) -> Nowhere: ...  # type: ignore  # noqa: F821

    assert [option.name for option in of(function, "self", "since").options] == ["length"]


def by_position(a: int, /) -> None: ...
def with_args(*a: int) -> None: ...
def with_kwargs(**a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (by_position, "positional-only"),
        (with_args, "variadic positional"),
        (with_kwargs, "variadic keyword"),
    ],
)
def test_a_parameter_without_a_name_of_its_own_is_an_error(function: Callable[..., None], kind: str) -> None:
    place = f"{__file__}:{function.__code__.co_firstlineno}"
    with pytest.raises(TypeError) as caught:
        of(function)
    assert str(caught.value) == (
        f"parameter 'a' of source 'letters' ({place}) is {kind}, but an option needs a name of its own. "
        "Fix: write one plain parameter for each option, without *, ** or /"
    )


@pytest.mark.parametrize("reserved", RESERVED)
def test_a_parameter_with_a_reserved_name_is_an_error(reserved: str) -> None:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in reserved)
    for name in {reserved, snake, reserved.upper()}:
        function = eval(f"lambda *, {name}=1: None")
        with pytest.raises(ValueError, match=f"^parameter '{name}' of source 'letters' .*") as caught:
            of(function)
        assert str(caught.value).endswith(
            f"has the reserved name {reserved}, an option of every source: rename it"
        )


def test_the_reserved_names_are_the_promised_ones() -> None:
    assert len(RESERVED) == len({name.lower() for name in RESERVED}) == 25
    for name in ("path", "schema", "format"):
        assert name not in RESERVED
        assert of(eval(f"lambda {name}: None")).parse({name: "x"}) == {name: "x"}


def test_two_parameters_that_are_one_option_are_an_error() -> None:
    def function(base_url: str, baseUrl: str) -> None: ...  # noqa: N803

    with pytest.raises(
        ValueError, match=r"parameter 'baseUrl' of source 'letters' .* is the same option as 'base_url'"
    ):
        of(function)


@pytest.mark.parametrize(
    ("annotation", "default", "error", "message"),
    [
        (int, "5", TypeError, "is '5' of type str, it must be an integer, of type int. Fix: "),
        (int, None, TypeError, "is None of type NoneType, it must be an integer, of type int. Fix: "),
        ("int", None, TypeError, "is None of type NoneType, it must be an integer, of type int. Fix: "),
        (
            Literal["a"],
            "b",
            OptionError,
            "is 'b' of type str, it must be one of: a, of type Literal['a']. Fix: ",
        ),
        (Secret, 12345, TypeError, "is *** of type int, it must be a secret string, of type Secret. Fix: "),
        (
            inspect.Parameter.empty,
            [1],
            TypeError,
            "is [1] of type list, it must be a string, of type str. Fix: ",
        ),
    ],
)
def test_a_default_of_another_type_is_an_error(
    annotation: object, default: object, error: type[Exception], message: str
) -> None:
    def function(option=default): ...  # type: ignore[no-untyped-def]

    if annotation is not inspect.Parameter.empty:
        function.__annotations__ = {"option": annotation}
    with pytest.raises(error) as caught:
        of(function)
    assert type(caught.value) is error
    assert f"the default of parameter 'option' of source 'letters' ({__file__}:" in str(caught.value)
    assert f"{message}change the default or the annotation so that they match" in str(caught.value)


# Types of parameters


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (5, "8", 8),
        (2.5, "8", 8.0),
        (True, "false", False),
        ("a", "8", "8"),
        (None, "8", "8"),
        (timedelta(1), "8s", timedelta(seconds=8)),
        (datetime(2024, 1, 1), "2024-05-31", datetime(2024, 5, 31)),
        (Colour.RED, "blue", Colour.BLUE),
        (Secret("a"), "8", Secret("8")),
    ],
)
def test_without_an_annotation_the_default_gives_the_type(default: object, text: str, value: object) -> None:
    def function(option=default): ...  # type: ignore[no-untyped-def]

    found = of(function).parse({"option": text})["option"]
    assert found == value
    assert type(found) is type(value)
    assert of(function).parse({}) == {"option": default}


def test_without_annotation_and_default_an_option_is_a_string() -> None:
    assert of(lambda option: None).parse({"option": "8"}) == {"option": "8"}


def test_a_class_without_an_init_has_no_options() -> None:
    class Plain: ...

    assert of(Plain.__init__, "self").options == ()
    assert of(Plain.__init__, "self").check((), {}) == {}


def test_the_options_of_a_wrapped_function_are_found_through_its_wrapper() -> None:
    """With the names of its own module, which the wrapper's need not have."""
    elsewhere = eval("lambda wrapped: wraps(wrapped)(lambda *args: None)", {"wraps": functools.wraps})
    assert of(elsewhere(letters), "since").options == LETTERS.options


# Secrets


def test_only_reveal_shows_a_secret() -> None:
    secret = Secret("abc")
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!s:>20}", f"{secret:>20}", f"{[secret]}"):
        assert "Secret(***)" in text
        assert "abc" not in text
    assert secret.reveal() == "abc"
    with pytest.raises(TypeError):
        vars(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_secrets_are_equal_by_value() -> None:
    assert Secret("é\ud800") == Secret("é\ud800")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_a_secret_can_be_copied_but_not_changed() -> None:
    secret = Secret("abc")
    assert copy.copy(secret) == copy.deepcopy([secret])[0] == secret
    with pytest.raises(AttributeError, match="a Secret cannot be changed"):
        secret._value = "x"
    with pytest.raises(AttributeError, match="a Secret cannot be changed"):
        del secret._value
    with pytest.raises(TypeError, match=r"Secret\(\) takes a str, not a value of type int$"):
        Secret(12345)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_cannot_be_pickled_and_the_error_says_what_to_do(protocol: int) -> None:
    with pytest.raises(TypeError, match=r"a Secret cannot be pickled: .* Fix: read it where it is used"):
        pickle.dumps({"token": Secret("abc")}, protocol)
    with pytest.raises(TypeError, match="a Secret cannot be pickled"):
        Secret("abc").__getstate__()


@pytest.mark.parametrize(
    ("annotation", "text"),
    [(list[Secret], '["hush", 12345]'), (list[Secret], '["hush'), (list[Secret] | None, "[12345]")],
)
def test_no_error_shows_a_secret_string(annotation: object, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        with_type(annotation).parse({"option": text})
    assert str(caught.value).startswith("option 'option' of source 'letters' is ***, it must be ")
    assert "hush" not in str(caught.value)
    assert "12345" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("value", [12345, b"12345", [12345], ["hush", 12345]])
def test_no_error_shows_a_secret_value(value: object) -> None:
    for annotation in (Secret, Secret | None, list[Secret]):
        with pytest.raises(TypeError, match=r"is \*\*\* of type \w+, it must be .*a secret string") as caught:
            with_type(annotation).check((value,), {})
        assert "12345" not in str(caught.value)


def test_no_error_shows_the_value_of_an_unknown_option_which_may_be_a_misspelt_secret() -> None:
    with pytest.raises(OptionError) as caught:
        LETTERS.parse({"url": "u", "tokken": "hush"})
    assert "hush" not in str(caught.value)
    assert "Did you mean 'token'?" in str(caught.value)


def test_options_need_no_spark() -> None:
    script = (
        "import sys; import headwater.options; "
        "print(sorted({'pyspark', 'py4j', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
