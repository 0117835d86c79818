"""Fuzzes the Python parsers for a given time: `make fuzz FUZZ_SECONDS=600 FUZZ_SEED=7`.

The targets take turns. Each round has a seed of its own, made of the seed of the run, the target and the
number of the round, so one round can be repeated alone. A round that does not end is shown with its stack.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from fuzz.targets import TARGETS

__all__ = ["FuzzError", "fuzz"]

_ROUND_SECONDS = 120  # far beyond what any round needs, however busy the machine is


class FuzzError(Exception):
    """A target failed. The message says how to repeat the round."""


def fuzz(
    targets: Mapping[str, Callable[[Random], None]],
    seed: int,
    is_over: Callable[[], bool],
    first_round: int = 0,
) -> Counter[str]:
    """Runs rounds until `is_over`, and at least one of each target. Returns how many rounds each one had."""
    rounds: Counter[str] = Counter()
    while True:
        for name, target in targets.items():
            number = first_round + rounds[name]
            faulthandler.dump_traceback_later(_ROUND_SECONDS, exit=True)
            try:
                target(Random(f"{seed}/{name}/{number}"))
            except Exception as error:
                again = f"python -m fuzz.run --seed {seed} --target {name} --round {number}"
                raise FuzzError(f"{name} failed; to repeat the round, in tests/: {again}") from error
            finally:
                faulthandler.cancel_dump_traceback_later()
            rounds[name] += 1
        if is_over():
            return rounds


def random_seed() -> int:
    return random.SystemRandom().randrange(1 << 32)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=os.environ.get("FUZZ_SECONDS") or 300)
    parser.add_argument("--seed", type=int, default=os.environ.get("FUZZ_SEED") or random_seed())
    parser.add_argument("--target", choices=list(TARGETS), help="only this one")
    parser.add_argument("--round", type=int, help="only this round")
    arguments = parser.parse_args()
    print(f"--seconds {arguments.seconds:g} --seed {arguments.seed}", flush=True)
    targets = {name: TARGETS[name] for name in TARGETS if arguments.target in (None, name)}
    end = time.monotonic() + arguments.seconds
    is_one_round = arguments.round is not None
    rounds = fuzz(
        targets, arguments.seed, lambda: is_one_round or time.monotonic() > end, arguments.round or 0
    )
    for name, count in rounds.items():
        print(f"{name}: {count} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
