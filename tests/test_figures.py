"""Figures on the pages come from bench/results.md, by bench/figures.py."""

from __future__ import annotations

import sys

import pytest
from processes import ROOT

sys.path.append(str(ROOT / "bench"))
from figures import PAGES, Results, with_figures

RESULTS = Results((ROOT / "bench" / "results.md").read_text(encoding="utf-8"))
NONE = """# Results

2026-01-01, somewhere.

## 50 rows per second: delay

| case | median | 95 % within |
| --- | ---: | ---: |
| one | 7 | 1,009 |

## A sink ten times too slow: memory in MiB

| case | heap before | heap, first third | last third | resident, first third | last third \
| Python, first third | last third | bufferBytes | heap ÷ bufferBytes |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| one | 10.5 | 20 | 21 | 1,300.1 | 1,301 | 130 | 131 | 4.0 | 2.6 |
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_figures_of_a_page_are_those_that_were_measured(page: object) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_figures(text, RESULTS) == text, "`make figures` puts them right"


def test_a_table_is_made_anew_and_what_stands_around_it_stays() -> None:
    page = "before\n\n<!-- figures: delay -->\n| old |\n| older |\n\nafter | this\n"
    table = "| case | median, ms | 95 % within, ms |\n| --- | ---: | ---: |\n| `one` | 7 | 1,009 |\n"
    assert with_figures(page, Results(NONE)) == f"before\n\n<!-- figures: delay -->\n{table}\nafter | this\n"


def test_columns_of_one_name_are_told_apart_by_the_one_before() -> None:
    *_, row, _ = with_figures("<!-- figures: memory -->\n", Results(NONE)).split("\n")
    assert row == "| `one` | 4.0 | 10.5 | 20 → 21 | 2.6 | 1,300.1 → 1,301 | 130 → 131 |"


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table is called 'nonesuch'; there are compared, "):
        with_figures("<!-- figures: nonesuch -->\n", Results(NONE))
