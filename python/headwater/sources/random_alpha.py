"""Random words, generated in the JVM: a source for trying things out."""

from headwater.jvm_source import JvmSource

__all__ = ["random_alpha"]


@JvmSource.of("timestamp TIMESTAMP, value STRING")
def random_alpha(len: int, rows_per_second: int = 500, seed: int | None = None) -> JvmSource:
    """Random words: the time at which each was generated, and `len` random letters and digits.

    `len` is 1 to 65536. A `rows_per_second` of 0 means as fast as possible. The same `seed` gives the same
    values.

    >>> words = random_alpha(len=5, seed=1)
    >>> print(words, words == random_alpha(5, 500, 1))
    random_alpha(len=5, rows_per_second=500, seed=1) True
    """
    return JvmSource("random_alpha", {"len": len, "rows_per_second": rows_per_second, "seed": seed})
