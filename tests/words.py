"""What `random_alpha` must give, worked out apart from it: a value follows from seed and seq alone."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits

_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = (1 << 64) - 1


def word(seed: int, seq: int, length: int) -> str:
    """SplitMix64, begun anew for each row; six bits make a letter, and 62 and 63 are drawn again."""
    state = _mix(seed + _GOLDEN * seq)
    letters: list[str] = []
    while len(letters) < length:
        state += _GOLDEN
        bits = _mix(state)
        letters += [ALPHABET[i] for k in range(10) if (i := bits >> 6 * k & 63) < len(ALPHABET)]
    return "".join(letters[:length])


def words(seed: int, count: int, length: int) -> list[str]:
    return [word(seed, seq, length) for seq in range(count)]


def _mix(z: int) -> int:
    z &= _64_BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64_BITS
    return z ^ z >> 31


def written_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of Spark's JSON file sink in order, of finished batches only: those that its own log lists."""
    log = _sink_log(folder)
    whole = max((n for n, file in enumerate(log) if file.suffix == ".compact"), default=0)  # all up to it
    paths = [json.loads(line)["path"] for file in log[whole:] for line in file.read_text().splitlines()[1:]]
    return [
        json.loads(line) for path in paths for line in (folder / Path(path).name).read_text().splitlines()
    ]


def last_seq(checkpoint: Path, folder: Path) -> int:
    """Where the last batch ends that the sink has finished, whether or not Spark has noted so yet."""
    offsets = checkpoint / "offsets" / _sink_log(folder)[-1].stem
    return int(json.loads(offsets.read_text().splitlines()[-1])["seq"])


def _sink_log(folder: Path) -> list[Path]:
    files = (file for file in (folder / "_spark_metadata").iterdir() if file.stem.isdigit())
    return sorted(files, key=lambda file: int(file.stem))
