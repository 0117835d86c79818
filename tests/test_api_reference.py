"""The API reference is what the docstrings say, has every public name on it, and an example of each."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import docs
import pytest
from processes import ROOT

import headwater as hw

sys.path.append(str(ROOT / "project"))
import api_reference
from api_names import MODULES, Name, gaps, names_in

FAKE = '''"""A module of nothing much.

Its second paragraph is not on the page."""

__all__ = ["BARE", "LIMIT", "Base", "Box", "echo", "silent", "twice", "unmade"]

BARE = 1
LIMIT = 2
"""The most there is.

>>> print(LIMIT)
2
"""


class Base:
    """What boxes have in common.

    >>> assert Base().known() == 1
    """

    def known(self) -> int:
        """One."""
        return 1


class Box(Base):
    """Holds a value.

    >>> import headwater as hw
    >>> from fake_names import Box
    >>> from math import floor
    >>> class Small(Box):
    ...     def half(self):
    ...         return floor(self.value / 2)
    >>> print(Small(5).half())
    2

    And more.
    """

    size: int = 1
    """How large it is."""

    def __init__(self, value: int, *, _hidden: object = None) -> None:
        self.value = value

    @property
    def told(self) -> str:
        """What it says."""
        return "5"

    def untold(self) -> None:
        return None


def echo() -> int:
    """Gives a value.

    >>> echo()
    1
    """
    return 1


def silent() -> None:
    """Has no example."""


def twice(n: int, by: "float" = 2.0) -> float:
    """The double.

    >>> assert twice(2) == 4
    """
    return n * by


def unmade() -> None:
    pass
'''

INTERNAL = {f"headwater.{name}" for name in ("cli", "rows", "runtime", "spark")}

ENTRY = """
`Box(value: int)`

Holds a value.

```python
from math import floor

class Small(Box):
    def half(self):
        return floor(self.value / 2)

print(Small(5).half())
```

<!-- output -->
```text
2
```

And more.

- `size`: How large it is.
- `told`: What it says.
- `untold() -> None`:

"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "fake_names.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("fake_names")
    del sys.modules["fake_names"]


def test_the_page_is_what_the_docstrings_give() -> None:
    written = api_reference.PAGE.read_text(encoding="utf-8").splitlines()
    assert written == api_reference.page().splitlines(), "run project/api_reference.py, with .venv's Python"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page_with_an_example(module: str) -> None:
    imported = importlib.import_module(module)
    assert list(gaps(imported)) == []
    page = api_reference.PAGE.read_text(encoding="utf-8")
    section = page.partition(f"\n## {module}\n")[2].partition("\n## ")[0]
    for name in imported.__all__:
        entry = section.partition(f"\n### `{'hw.' if imported is hw else ''}{name}`\n")[2].partition(
            "\n### "
        )[0]
        assert "```python\n" in entry, f"{module}.{name} is not on the page, or has no example there"


def test_every_module_with_public_names_is_on_the_page() -> None:
    package = Path(hw.__file__).parent
    packages = {f"headwater.{file.parent.name}" for file in package.glob("[a-z]*/__init__.py")}
    assert {*MODULES} == {"headwater", *packages} - INTERNAL
    assert packages >= INTERNAL


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_that_need_no_spark_run_as_doctests_too(module: str) -> None:
    """Doctest also minds what is printed without being told; with a session, the page's own test has them."""
    imported = importlib.import_module(module)
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), list[str]()
    for found in names_in(imported):
        if not any("spark" in example.source for example in found.examples):
            names = {
                "hw": hw,
                "__name__": "__main__",
                **{name: getattr(imported, name) for name in imported.__all__},
            }
            text = found.doc.replace("…", "...")
            runner.run(
                doctest.DocTestParser().get_doctest(text, names, found.shown, None, 0), out=said.append
            )
    assert not said, "".join(said)
    assert runner.tries > 0


def test_what_a_docstring_lacks_is_found(fake: ModuleType) -> None:
    assert list(gaps(fake)) == [
        "fake_names.BARE has no docstring",
        "fake_names.Box.untold() -> None has no docstring",
        "fake_names.echo has an example that shows a value: write print(echo())",
        "fake_names.silent has no example",
        "fake_names.unmade has no docstring",
    ]


def test_a_page_with_gaps_is_not_written(fake: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_reference, "MODULES", (fake.__name__,))
    with pytest.raises(SystemExit, match=r"fake_names\.silent has no example"):
        api_reference.page()


def test_an_entry_has_signature_prose_examples_with_their_output_and_members(fake: ModuleType) -> None:
    section = "\n".join(api_reference.section(fake))
    assert section.partition("### `Box`\n")[2].partition("### ")[0] == ENTRY


def test_signatures_are_written_as_their_author_did(fake: ModuleType) -> None:
    assert Name(fake, "twice").signature == "twice(n: int, by: float = 2.0) -> float"
    assert Name(fake, "LIMIT").signature is None
    http = Name(importlib.import_module("headwater.http"), "Http").signature
    assert "idle_timeout: timedelta = timedelta(seconds=60), " in http
    assert http.endswith("random: Callable[[], float] = …, now: Callable[[], float] = …)")


def test_a_page_that_is_out_of_date_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(api_reference, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["api_reference.py"])
    assert api_reference.main() == 0
    monkeypatch.setattr(sys, "argv", ["api_reference.py", "--check"])
    assert api_reference.main() == 0
    entry, _, rest = page.read_text(encoding="utf-8").rpartition("\n### ")
    page.write_text(f"{entry}\n### another {rest}", encoding="utf-8")
    assert api_reference.main() == 1
    page.unlink()
    assert api_reference.main() == 1


def test_links_to_names_that_differ_by_case_lead_to_each_of_them() -> None:
    links = [link for link in docs.links(api_reference.PAGE) if link.startswith("#")]
    names = [name for module in MODULES for name in importlib.import_module(module).__all__]
    assert len(set(links)) >= len(names)
    assert {"#hwsource", "#hwsource-1", "#end", "#end-1"} <= set(links)
