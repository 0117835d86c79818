"""The fuzz tests themselves: each target runs, and a parser that is wrong is found and can be repeated."""

from __future__ import annotations

from random import Random

import pytest
from fuzz.inputs import mutate, split
from fuzz.run import FuzzError, fuzz
from fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_holds_for_a_few_inputs(name: str) -> None:
    rounds = iter(range(20))
    fuzz({name: TARGETS[name]}, seed=1, is_over=lambda: next(rounds, None) is None)


def test_a_wrong_parser_is_found_and_the_round_can_be_repeated() -> None:
    def parser(random: Random) -> None:
        assert b"\0" not in mutate(random, b"a" * 20)

    with pytest.raises(FuzzError, match=r"python -m fuzz\.run") as found:
        fuzz({"parser": parser}, seed=5, is_over=lambda: False)
    number = int(str(found.value).split("--round ")[1])
    with pytest.raises(FuzzError):
        fuzz({"parser": parser}, seed=5, is_over=lambda: True, first_round=number)


def test_chunks_are_the_same_bytes() -> None:
    for seed in range(200):
        random = Random(seed)
        data = mutate(random, b"some bytes, more or less")
        assert b"".join(split(random, data)) == data
