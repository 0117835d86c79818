"""How long and how often to measure. Durations are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Settings"]


@dataclass(frozen=True)
class Settings:
    throughput_repeats: int = 3
    throughput_warmup: float = 15
    throughput_seconds: float = 7
    web_repeats: int = 3
    web_warmup: float = 15
    web_seconds: float = 6
    webhook_repeats: int = 3
    webhook_warmup: float = 10
    webhook_seconds: float = 6
    messages_repeats: int = 3
    messages_count: int = 200_000
    redis_repeats: int = 3
    partitions_repeats: int = 2
    partitions_warmup: float = 10
    partitions_seconds: float = 6
    delay_repeats: int = 3
    delay_warmup: float = 15
    delay_seconds: float = 12
    real_time_repeats: int = 3
    real_time_warmup: float = 10
    real_time_seconds: float = 30
    idle_repeats: int = 3
    idle_settle: float = 12
    idle_seconds: float = 20
    still_repeats: int = 2
    startup_repeats: int = 1
    memory_repeats: int = 1
    memory_warmup: float = 10
    memory_settle: float = 10
    memory_seconds: float = 30

    def repeats(self, kind: str) -> int:
        return int(getattr(self, f"{kind}_repeats"))


FULL = Settings()

QUICK = Settings(
    throughput_repeats=1,
    throughput_warmup=3,
    throughput_seconds=3,
    web_repeats=1,
    web_warmup=3,
    web_seconds=3,
    webhook_repeats=1,
    webhook_warmup=3,
    webhook_seconds=3,
    messages_repeats=1,
    messages_count=50_000,
    redis_repeats=1,
    partitions_repeats=1,
    partitions_warmup=3,
    partitions_seconds=3,
    delay_repeats=1,
    delay_warmup=3,
    delay_seconds=4,
    real_time_repeats=1,
    real_time_warmup=5,
    real_time_seconds=10,
    idle_repeats=1,
    idle_settle=3,
    idle_seconds=5,
    still_repeats=1,
    memory_warmup=5,
    memory_settle=5,
    memory_seconds=9,
)
