"""Writes the tables of options in wiki/Options-and-metrics.md from python/headwater/options.json.

With `--check` it writes nothing, and exits with status 1 if the page is not up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

__all__ = ["PAGE", "page"]

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "wiki" / "Options-and-metrics.md"
_TABLE = _ROOT / "python" / "headwater" / "options.json"


def page(text: str) -> str:
    """The text of the page, with each generated table in place of the one that stands below its heading."""
    options = json.loads(_TABLE.read_text(encoding="utf-8"))
    of_every_source = [option for option in options if "feed" in option["sources"]]
    of_python_only = [option for option in options if "feed" not in option["sources"]]
    text = _replace_table(text, "Options of every source", of_every_source)
    return _replace_table(text, "Options of sources in Python", of_python_only)


def _replace_table(text: str, heading: str, options: list[dict[str, str | None]]) -> str:
    above_table = rf"^## {re.escape(heading)}\n(?:(?![#|]).*\n)*"
    rows = [_row("option", "default", "meaning"), "|---|---|---|\n"]
    rows += [_row(f"`{option['name']}`", _default(option), option["meaning"] or "") for option in options]
    text, count = re.subn(
        rf"({above_table})(?:\|.*\n)+", lambda match: match[1] + "".join(rows), text, flags=re.MULTILINE
    )
    if count != 1:
        sys.exit(f"{PAGE}: there is no table below the heading '{heading}'")
    return text


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(option: dict[str, str | None]) -> str:
    """The value, and the note that adds to it or stands for it."""
    value, note = option["default"], option.get("defaultNote")
    return "; ".join([*([f"`{value}`"] if value else []), *([note] if note else [])]) or "none"


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the tables of options in the wiki.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if outdated")
    options, old = parser.parse_args(), PAGE.read_text(encoding="utf-8")
    new = page(old)
    if options.check:
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
