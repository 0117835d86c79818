"""Plugins: sources of installed packages. Here the packages are folders on Python's path."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import Run

import headwater as hw
from headwater import references
from headwater.cli.main import main
from headwater.options import OptionError

WEATHER = """
from pathlib import Path
import headwater as hw

Path(__file__).with_suffix(".imported").touch()

class Weather(hw.Source, name="plugweather", schema="city STRING", schemes=("plugweather+tls", "pluggedin")):
    def __init__(self, url: str = "nowhere"):
        self.url = url

    def read(self):
        yield self.url
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with one module and these entry points on the path."""
    modules = set(sys.modules)

    def install(package: str, code: str, **entry_points: str) -> Path:
        folder = tmp_path / package
        info = folder / f"{package}-1.2.dist-info"
        info.mkdir(parents=True)
        (folder / f"{package}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {value}\n" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("[headwater.sources]\n" + "".join(lines))
        monkeypatch.syspath_prepend(folder)
        return folder

    yield install
    for name in set(sys.modules) - modules:
        if name.startswith("plug"):
            del sys.modules[name]


@pytest.fixture
def weather(install: Install) -> Path:
    """The file that exists once the plugin has been imported."""
    return install("plug_weather", WEATHER, plugweather="plug_weather:Weather") / "plug_weather.imported"


def listed(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["list"]) == 0
    return capsys.readouterr().out


def test_a_plugin_is_listed_without_an_import(weather: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in listed(capsys).splitlines() if line.startswith("plugweather ")]
    assert line.split(maxsplit=1)[1].startswith("not loaded ")
    assert line.endswith("  plug_weather:Weather, a plugin of plug_weather 1.2")
    assert not weather.exists()


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("plugweather?url=x", "x"),
        ("PlugWeather", "nowhere"),
        ("plugweather+tls://h/p", "tls://h/p"),
    ],
)
def test_a_reference_loads_the_plugin_it_names(weather: Path, reference: str, url: str) -> None:
    assert list(references.resolve(reference).configured()) == [url]
    assert weather.exists()
    assert "plugweather" in [source.name for source in hw.registered()]


def test_a_scheme_that_does_not_begin_with_its_name_is_known_once_the_plugin_is_loaded(weather: Path) -> None:
    with pytest.raises(hw.HeadwaterError, match=r"no source has the scheme 'pluggedin:'"):
        references.resolve("pluggedin://h")
    references.resolve("plugweather")
    assert list(references.resolve("pluggedin://h").configured()) == ["pluggedin://h"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("", "has no attribute 'Broken'"),
        ("Broken = 5", "plug_broken:Broken, which is not a source"),
        (WEATHER.replace("class Weather", "class Broken"), "which is the source 'plugweather'"),
    ],
)
def test_a_broken_plugin_is_one_line_and_leaves_others_alone(
    install: Install, weather: Path, capsys: pytest.CaptureFixture[str], code: str, reason: str
) -> None:
    install("plug_broken", code, plugbroken="plug_broken:Broken")
    assert "plugbroken" in listed(capsys)
    assert main(["peek", "plugbroken"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headwater: plugin 'plugbroken' of plug_broken 1.2 ")
    assert reason in line
    if "Weather" not in code:
        assert list(references.resolve("plugweather").configured()) == ["nowhere"]


def test_a_plugin_of_two_packages_is_an_error_when_it_is_used(install: Install, weather: Path) -> None:
    install("plug_other", WEATHER, plugweather="plug_other:Weather")
    message = "two plugins are named 'plugweather', of plug_[a-z]+ 1.2 and plug_[a-z]+ 1.2"
    with pytest.raises(OptionError, match=message):
        references.resolve("plugweather")


@pytest.mark.parametrize("name", ["sse", "kafka", "a-b"])
def test_a_plugin_cannot_take_a_name_that_is_taken_or_malformed(install: Install, name: str) -> None:
    install("plug_taker", "raise AssertionError('imported')", **{name: "plug_taker:Taker"})
    for reference in (name, f"{name}://h", f"{name}+x://h"):
        try:
            references.resolve(reference)
        except (hw.HeadwaterError, OptionError) as error:
            assert "imported" not in str(error)  # noqa: PT017


def test_metadata_that_cannot_be_read_is_skipped_with_a_warning(
    install: Install, weather: Path, caplog: pytest.LogCaptureFixture
) -> None:
    info = install("plug_garbled", "") / "plug_garbled-1.2.dist-info" / "entry_points.txt"
    info.write_bytes(b"[headwater.sources]\n\xff = x:y\n")
    with caplog.at_level(logging.WARNING, "headwater"):
        assert list(references.resolve("plugweather").configured()) == ["nowhere"]
    assert "the entry points of a package cannot be read: UnicodeDecodeError" in caplog.text


def test_a_plugin_that_is_not_trusted_is_not_imported(weather: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater import trust

    monkeypatch.setattr(trust, "current", trust.Trust(modules=("other",)))
    with pytest.raises(OptionError, match="module 'plug_weather' is not trusted"):
        references.resolve("plugweather")
    assert not weather.exists()


def test_a_plugin_is_a_format_of_a_session_and_is_loaded_when_it_is_read(
    install: Install, run: Run, tmp_path: Path
) -> None:
    install("plug_weather", WEATHER, plugweather="plug_weather:Weather")
    install("plug_broken", "import no_such_library", plugbroken="plug_broken:Broken")
    code = """
        import sys
        from pathlib import Path
        for package in ("plug_weather", "plug_broken"):
            sys.path.insert(0, str(Path(FOLDER) / package))
        import headwater as hw
        from headwater.testing import RunningStream
        spark = hw.session(builder())
        before = "plug_weather" in sys.modules
        rows = spark.readStream.format("plugweather").option("url", "x").load()
        query = rows.writeStream.format("memory").queryName("plugged").trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        query.stop()
        try:
            spark.readStream.format("plugbroken").load()
            error = ""
        except Exception as raised:
            error = str(raised)
        report([before, [row.city for row in spark.table("plugged").collect()], error.splitlines()[0]])
    """
    before, cities, error = run(code.replace("FOLDER", repr(str(tmp_path))))
    assert (before, cities) == (False, ["x"])
    assert "plugin 'plugbroken' of plug_broken 1.2 cannot be loaded" in error
