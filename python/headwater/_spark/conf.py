"""Where `spark.jars` may already be set before Spark has started, read the way spark-submit reads it.

PySpark starts its JVM through spark-submit, which takes the first of: `--jars`, `--conf spark.jars`,
`--properties-file`, spark-defaults.conf. PySpark passes the builder's settings as `--conf`, ahead of those in
PYSPARK_SUBMIT_ARGS, and of two `--conf` the later wins. A setting that wins hides the others, so appending a
jar means finding the list that would win, and putting it, with the jar, where nothing beats it: `--jars`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

__all__ = ["append_jar", "default_jars", "read_properties", "submit_jars", "with_jars"]

_SWITCHES = {
    "--help",
    "-h",
    "--supervise",
    "--usage-error",
    "--verbose",
    "-v",
    "--version",
    "--load-spark-defaults",
}
_JARS = "spark.jars"


def append_jar(jars: str | None, jar: str) -> str:
    """The comma-separated list with `jar` at its end, once."""
    listed = [entry.strip() for entry in (jars or "").split(",") if entry.strip()]
    return ",".join(listed if jar in listed else [*listed, jar])


def submit_jars(args: str) -> str | None:
    """The `spark.jars` that submit arguments set, by `--jars` or else by `--conf`; the last of each wins."""
    jars = conf = None
    for option, value, *_ in _options(shlex.split(args)):
        if option == "--jars":
            jars = value
        elif option in ("--conf", "-c") and value.partition("=")[0].strip() == _JARS:
            conf = value.partition("=")[2].strip()
    return conf if jars is None else jars


def with_jars(args: str, jars: str) -> str:
    """The submit arguments with `--jars` set to that list, in place of any that they have."""
    tokens = shlex.split(args)
    for option, _, index, width in reversed(list(_options(tokens))):
        if option == "--jars":
            del tokens[index : index + width]
    return shlex.join(["--jars", jars, *tokens])


def default_jars(args: str, conf_dir: Path) -> str | None:
    """`spark.jars` of the properties files that spark-submit would read."""
    options = list(_options(shlex.split(args)))
    base = [value for option, value, *_ in options if option == "--properties-file"][-1:]
    extra = [value for option, value, *_ in options if option == "--extra-properties-file"]
    files = [Path(name) for name in (*reversed(extra), *base)]  # a later extra file wins over an earlier one
    if not base or "--load-spark-defaults" in shlex.split(args):
        files.append(conf_dir / "spark-defaults.conf")
    for file in files:
        if file.is_file():
            jars = read_properties(file.read_text(encoding="utf-8")).get(_JARS)
            if jars is not None:
                return jars
    return None


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file: `=`, `:` or blanks divide, `\\` joins lines and escapes."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line)
        if match:
            found[_unescape(match[1])] = _unescape(match[2]).strip(" \t\f")
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines but for comments and blank ones, each with those joined on that a `\\` at its end asks for."""
    lines = (line.lstrip(" \t\f") for line in re.split(r"\r\n|\r|\n", text))
    for line in lines:
        if line.startswith(("#", "!")) or line == "\\":  # nothing yet to go on with: Java starts afresh
            continue
        whole = line
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "")
        if whole:
            yield whole


def _unescape(text: str) -> str:
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if len(match[1]) == 5 else named.get(match[1], match[1])

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)


def _options(tokens: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """Each option with a value, as (option, value, index, how many tokens), up to the first that is none."""
    index = 0
    while index < len(tokens) and tokens[index].startswith("-"):
        token = tokens[index]
        joined = re.fullmatch(r"(--[^=]+)=(.+)", token)
        if joined:
            yield joined[1], joined[2], index, 1
            index += 1
        elif token in _SWITCHES or index + 1 == len(tokens):
            index += 1
        else:
            yield token, tokens[index + 1], index, 2
            index += 2
