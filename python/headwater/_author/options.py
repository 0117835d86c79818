"""Options between the two languages: snake_case and Python values here, camelCase and strings in Spark."""

from datetime import timedelta

__all__ = ["OptionValue", "camel", "encode", "snake"]

OptionValue = str | int | float | bool | timedelta | None


def camel(name: str) -> str:
    """`max_rows_per_trigger` → `maxRowsPerTrigger`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    """`maxRowsPerTrigger` → `max_rows_per_trigger`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def encode(name: str, value: OptionValue) -> str:
    """The value as Spark's options hold it. Ranges are checked where the option is defined, in the JVM."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        millis, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ValueError(f"{name}={value!r} must be a whole number of milliseconds")
        return f"{millis}ms"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(
        f"{name}={value!r} is of type {type(value).__name__}; it must be a str, int, float, bool or timedelta"
    )
