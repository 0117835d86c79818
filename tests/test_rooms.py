"""Who may know what: the design's rooms, read from the imports, and the size of what is public."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw

PACKAGE = Path(hw.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
PRIVATE_HANDLES = {"_jvm", "_gateway", "_jsc", "_jsparkSession", "_sc"}


def imports(file: Path) -> Iterator[str]:
    """All dotted names that a module imports, those inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import: write it out"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes(file: Path) -> set[str]:
    return {
        n.attr for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Attribute)
    }


def ids(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


BRIDGE = PACKAGE / "_spark" / "bridge.py"


@pytest.mark.parametrize("file", [f for f in MODULES if f != BRIDGE], ids=ids)
def test_only_the_bridge_knows_py4j_and_the_jvm(file: Path) -> None:
    assert not [name for name in imports(file) if name.partition(".")[0] == "py4j"]
    assert not attributes(file) & PRIVATE_HANDLES


def test_the_bridge_does_know_them() -> None:
    """Keeps the test above honest: what it looks for is found where it is allowed."""
    assert [name for name in imports(BRIDGE) if name.startswith("py4j.")]
    assert attributes(BRIDGE) & PRIVATE_HANDLES


def test_the_bridge_knows_no_source() -> None:
    rooms = ("headwater._author", "headwater._feed", "headwater._partitioned", "headwater.sources")
    assert not [name for name in imports(BRIDGE) if name.startswith(rooms)]


@pytest.mark.parametrize("file", sorted((PACKAGE / "_author").glob("*.py")), ids=ids)
def test_what_an_author_writes_is_known_without_spark(file: Path) -> None:
    """Spark's types are needed to speak of a schema, and nothing else of it."""
    named = [found for found in imports(file) if found.partition(".")[0] in ("py4j", "pyspark")]
    assert not [found for found in named if not found.startswith("pyspark.sql.types")]
    rooms = ("headwater._spark", "headwater._feed", "headwater._partitioned")
    assert not [found for found in imports(file) if found.startswith(rooms)]


@pytest.mark.parametrize("file", sorted((PACKAGE / "_rows").glob("*.py")), ids=ids)
def test_rows_become_arrow_without_any_knowledge_of_feeds(file: Path) -> None:
    rooms = ("headwater._spark", "headwater._feed", "headwater._partitioned", "headwater._author")
    assert not [found for found in imports(file) if found.startswith(rooms)]


@pytest.mark.parametrize("file", sorted((PACKAGE / "decode").glob("*.py")), ids=ids)
def test_decoders_know_neither_spark_nor_feeds_nor_the_network(file: Path) -> None:
    named = [found for found in imports(file) if found.startswith(("pyspark", "py4j", "headwater._spark"))]
    assert not [found for found in named if not found.startswith("pyspark.sql.types")]
    rooms = ("headwater._feed", "headwater.http", "headwater.sources", "socket", "requests", "urllib")
    assert not [found for found in imports(file) if found.startswith(rooms)]


@pytest.mark.parametrize("file", sorted((PACKAGE / "_feed").glob("*.py")), ids=ids)
def test_feeds_know_of_spark_only_how_to_ask_for_their_buffers(file: Path) -> None:
    named = [found for found in imports(file) if found.startswith("headwater._spark")]
    assert named == (["headwater._spark.crossing"] if file.name == "status.py" else [])


@pytest.mark.parametrize("file", sorted((PACKAGE / "_partitioned").glob("*.py")), ids=ids)
def test_partitions_are_watched_and_read_without_the_jvm_and_without_sockets(file: Path) -> None:
    """On an executor there is neither; what is needed of Spark there are its types and how it pickles."""
    named = [found for found in imports(file) if found.partition(".")[0] in ("py4j", "pyspark")]
    assert not [
        found for found in named if not found.startswith(("pyspark.sql.types", "pyspark.cloudpickle"))
    ]
    rooms = ("headwater._spark", "headwater._feed.host", "headwater._feed.wire", "headwater._feed.feed")
    assert not [found for found in imports(file) if found.startswith((*rooms, "socket"))]


@pytest.mark.parametrize("file", sorted((PACKAGE / "_log").glob("*.py")), ids=ids)
def test_logs_are_read_without_spark_and_without_any_other_room(file: Path) -> None:
    assert not [found for found in imports(file) if found.partition(".")[0] in ("py4j", "pyspark", "pyarrow")]
    ours = [found for found in imports(file) if found.partition(".")[0] == "headwater"]
    assert not [found for found in ours if not found.startswith(("headwater._log.", "headwater._errors."))]


@pytest.mark.parametrize("file", sorted((PACKAGE / "sim").glob("*.py")), ids=ids)
def test_simulators_are_made_of_the_standard_library_alone(file: Path) -> None:
    """So that they are wrong in other ways than what is tested against them."""
    named = [found for found in imports(file) if found.partition(".")[0] not in sys.stdlib_module_names]
    assert not [found for found in named if not found.startswith(("headwater.sim", "headwater._errors."))]


@pytest.mark.parametrize("file", sorted((PACKAGE / "http").glob("*.py")), ids=ids)
def test_http_knows_neither_sources_nor_rows(file: Path) -> None:
    """An author could have written it: of headwater it needs the secret only."""
    known = (*sys.stdlib_module_names, "requests", "urllib3")
    named = [found for found in imports(file) if found.partition(".")[0] not in known]
    assert not [found for found in named if not found.startswith(("headwater.http.", "headwater.Secret"))]


@pytest.mark.parametrize(
    "file",
    [
        PACKAGE / "sources" / f"{name}.py"
        for name in ("_event_columns", "_event_ids", "_events", "_moments", "_rsvp")
    ],
    ids=ids,
)
def test_events_are_read_without_io(file: Path) -> None:
    rooms = ("headwater.http", "socket", "requests", "urllib")
    assert not [found for found in imports(file) if found.startswith(rooms)]


@pytest.mark.parametrize("file", sorted((PACKAGE / "sources").glob("*.py")), ids=ids)
def test_built_in_sources_use_public_names_only(file: Path) -> None:
    """But for the one that says that a source runs in the JVM: that is how such a source is made."""
    ours = {name for name in imports(file) if name.partition(".")[0] == "headwater"}
    for name in ours - {"headwater", "headwater._author.jvm_source.JvmSource"}:
        assert name.split(".")[1] in ("sources", "decode", "http", *hw.__all__)
        below = name.removeprefix("headwater.sources._")  # what belongs to one source alone
        assert not [part for part in below.split(".") if part.startswith("_")]


def test_how_a_source_in_the_jvm_is_made_is_no_promise() -> None:
    assert "JvmSource" not in hw.__all__
    assert not hasattr(hw, "JvmSource")


def test_the_public_names_are_few_and_cannot_be_mixed_up() -> None:
    assert len(hw.__all__) <= 20
    plain = [name.lower().rstrip("s") for name in hw.__all__ if name != "Source"]  # its class form
    assert len(set(plain)) == len(plain)
    assert all(hasattr(hw, name) for name in hw.__all__)


@pytest.mark.parametrize("file", MODULES, ids=ids)
def test_each_module_is_small_and_says_what_it_exports(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    assert ast.get_docstring(ast.parse(text)), "a module says what it is for"
    room = file.name == "__init__.py" and file.parent.name.startswith("_")
    if not room and file.name not in ("_version.py", "__main__.py"):
        dotted = ".".join(("headwater", *file.relative_to(PACKAGE).with_suffix("").parts))
        module = importlib.import_module(dotted.removesuffix(".__init__"))
        assert module.__all__
        assert all(hasattr(module, name) for name in module.__all__)


JVM = PACKAGE.parent.parent / "jvm" / "src" / "main" / "scala"

# What a file of the Scala side may import of Spark; the rest may import what it likes.
OF_SPARK = {
    "Admission": ["org.apache.spark.sql.connector.read.streaming."],
    "ArrowRows": [],
    "Buffer": [],
    "Cargo": [],
    "Cuts": ["org.apache.spark.internal.Logging"],
    "Feed": [],
    "FeedThread": ["org.apache.spark.internal.Logging"],
    "Pacer": [],
    "PartitionMetrics": [],
    "Positions": [],
    "RandomAlpha": [],
    "Ranges": [],
    "SeqOffset": ["org.apache.spark.sql.execution.streaming.Offset"],
    "StartPositions": ["org.apache.spark.internal.Logging"],
    "Tally": [],
    "VectorOffset": ["org.apache.spark.sql.execution.streaming.Offset"],
    "Watch": ["org.apache.spark.internal.Logging"],
}


@pytest.mark.parametrize("name", OF_SPARK)
def test_the_rooms_of_the_jvm_that_do_without_spark_do_so(name: str) -> None:
    lines = (JVM / "headwater" / f"{name}.scala").read_text(encoding="utf-8").splitlines()
    named = [line.removeprefix("import ") for line in lines if line.startswith("import org.apache.spark.")]
    assert [line for line in named if not line.startswith(tuple(OF_SPARK[name]) or "nothing")] == []


def test_one_folder_stands_in_spark_s_own_package() -> None:
    files = [file for file in JVM.rglob("*.scala") if "package org.apache.spark" in file.read_text()]
    assert sorted(file.name for file in files) == ["PartitionFrames.scala", "StreamingFrames.scala"]
