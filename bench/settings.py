"""How long and how often to measure. Durations are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Settings"]


@dataclass(frozen=True)
class Settings:
    throughput_repeats: int = 3
    throughput_warmup: float = 12
    throughput_seconds: float = 10
    idle_repeats: int = 3
    idle_settle: float = 15
    idle_seconds: float = 25
    memory_repeats: int = 1
    memory_warmup: float = 15
    memory_settle: float = 15
    memory_seconds: float = 60

    def repeats(self, kind: str) -> int:
        return {
            "throughput": self.throughput_repeats,
            "idle": self.idle_repeats,
            "memory": self.memory_repeats,
        }[kind]


FULL = Settings()

QUICK = Settings(
    throughput_repeats=1,
    throughput_warmup=3,
    throughput_seconds=3,
    idle_repeats=1,
    idle_settle=3,
    idle_seconds=5,
    memory_warmup=5,
    memory_settle=5,
    memory_seconds=9,
)
