"""Plugins: sources of installed packages, found by their entry points. Finding one imports nothing.

    [project.entry-points."headwater.sources"]
    weather = "weather_feed:Weather"

The name is that of the source. The module is imported when the source is first used: as a format, in a
reference, or in a URI whose scheme is that name, or begins with it and a `+`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater import trust
from headwater.errors import HeadwaterError, first_line

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["Plugin", "find", "plugins"]

_GROUP = "headwater.sources"
_log = logging.getLogger("headwater")


@dataclass(frozen=True)
class Plugin:
    """The entry point of a source that may not have been imported."""

    name: str
    place: str
    """Where the source is defined, as `module:name`."""
    package: str
    """The package and its version, as in `weather-feed 1.2`."""
    _entry_point: Any = field(repr=False, compare=False)

    def load(self) -> Any:
        """Imports the source. HeadwaterError, on one line, if that fails."""
        try:
            trust.current.check_module(self._entry_point.module)
            source = self._entry_point.load()
        except (Exception, SystemExit) as error:
            raise HeadwaterError(
                f"plugin '{self.name}' of {self.package} cannot be loaded from {self.place}: "
                f"{first_line(error, ())}",
                "install what it needs, update it, or uninstall it",
            ) from error
        name = getattr(source, "_name", None)
        if name != self.name:
            found = "which is not a source" if name is None else f"which is the source '{name}'"
            raise HeadwaterError(
                f"plugin '{self.name}' of {self.package} names {self.place}, {found}",
                "an entry point has the name of the source that it names",
            )
        return source


def plugins() -> list[Plugin]:
    """All plugins that are installed, by name. Metadata that cannot be read is skipped, with a warning."""
    from importlib import metadata  # which takes a while, so not when headwater is imported

    try:
        entry_points = list(metadata.entry_points(group=_GROUP))
    except Exception:  # of one package, which must not affect the others
        entry_points = [point for package in metadata.distributions() for point in _entry_points(package)]
    return sorted(map(_plugin, entry_points), key=lambda plugin: plugin.name)


def find(name: str) -> Plugin | None:
    """The plugin with that name, ignoring case. HeadwaterError if two packages have one."""
    found = {(p.place, p.package): p for p in plugins() if p.name.lower() == name.lower()}
    if len(found) > 1:
        packages = " and ".join(plugin.package for plugin in found.values())
        raise HeadwaterError(f"two plugins are named '{name}', of {packages}", "uninstall one of them")
    return next(iter(found.values()), None)


def _entry_points(package: Distribution) -> list[Any]:
    try:
        return list(package.entry_points.select(group=_GROUP))
    except Exception as error:
        _log.warning("the entry points of a package cannot be read: %s", first_line(error, ()))
        return []


def _plugin(entry_point: Any) -> Plugin:
    package = getattr(entry_point, "dist", None)
    named = "an unknown package" if package is None else f"{package.name} {package.version}"
    return Plugin(entry_point.name, entry_point.value.strip(), named, entry_point)
