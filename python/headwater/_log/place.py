"""Where a checkpoint lies: a path as Spark takes it, and whether it is one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from headwater._log.reading import is_log
from headwater.errors import HeadwaterError

__all__ = ["checkpoint_folder"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # one letter is a drive
_EXPECTED = "give the checkpointLocation of a query: the folder that holds offsets, commits and sources"


def checkpoint_folder(path: str) -> Path:
    """HeadwaterError says what is there instead."""
    scheme = _SCHEME.match(path)
    local = path
    if scheme and not os.path.exists(path):
        if scheme[1].lower() != "file":
            raise HeadwaterError(
                f"the checkpoint {path} is not on a local disk",
                "copy the folder to this machine, and give its path",
            )
        local = re.sub("^//(localhost)?(?=/)", "", path[scheme.end() :])
    folder = Path(local)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise HeadwaterError(f"the checkpoint {path} {what}", _EXPECTED)
    if not (folder / "offsets").is_dir() and not (folder / "sources").is_dir():
        within = ", it is the log of one source" if is_log(folder) else ""
        raise HeadwaterError(
            f"{path} is no checkpoint of a query: it has neither offsets nor sources{within}", _EXPECTED
        )
    return folder
