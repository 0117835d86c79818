"""How the time of a call grows with the size of its input, in CPU time of its thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

__all__ = ["assert_linear"]

_TIMES = 8
_MAX_GROWTH = 24.0  # of the time for an input 8 times as large: 8 if it is linear, 64 if it is quadratic
_MIN_SECONDS = 0.003


def assert_linear(call: Callable[[int], object], size: int) -> None:
    """Fails if the time of `call(size)` grows much faster than `size`. The best of three runs counts."""

    def seconds(size: int) -> float:
        gc.disable()  # its time depends on all other objects
        try:
            begun = thread_time()
            call(size)
            return thread_time() - begun
        finally:
            gc.enable()

    small = max(_MIN_SECONDS, min(seconds(size) for _ in range(3)))
    runs: list[float] = []
    while len(runs) < 3:
        runs.append(seconds(_TIMES * size))
        if runs[-1] < _MAX_GROWTH * small:
            return
    raise AssertionError(f"{size}: {small:.4f} s; {_TIMES * size}: {min(runs):.4f} s")
