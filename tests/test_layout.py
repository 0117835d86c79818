"""What import-linter cannot check (see python/pyproject.toml): parts of pyspark, public names, Scala folders.

The test reads the source files of private modules, because it is about them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PACKAGE, ROOT

import headwater as hw

MODULES = sorted((PACKAGE / "headwater").rglob("*.py"))
PY4J = PACKAGE / "headwater" / "spark" / "py4j.py"
SCALA = ROOT / "jvm" / "src" / "main" / "scala"
JVM_HANDLES = {"_jvm", "_gateway", "_jsc", "_jsparkSession", "_sc"}

# What may be imported of pyspark outside headwater.spark. Authors and executors need no more.
OF_PYSPARK = {
    "runtime": ("pyspark.sql.types", "pyspark.cloudpickle"),
    "testing": ("pyspark.sql", "pyspark.errors"),  # which runs queries
}

# What may be imported of Spark, by Scala folder; others may import what they need.
OF_SPARK = {
    "alpha": (),
    "buffer": ("internal.Logging",),
    "core": ("internal.Logging", "network.util.JavaUtils", "sql.types.StructType"),
}


def relative(file: Path) -> str:
    return str(file.relative_to(PACKAGE / "headwater"))


def imports(file: Path) -> Iterator[str]:
    """All dotted names that a module imports, including those inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(file)} has a relative import: write it out"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_the_spark_package_imports_more_of_pyspark_than_its_types() -> None:
    wrong = []
    for file in MODULES:
        folder = relative(file).partition("/")[0]
        allowed = OF_PYSPARK.get(folder, ("pyspark.sql.types",))
        if folder != "spark":
            named = [name for name in imports(file) if name.partition(".")[0] == "pyspark"]
            wrong += [f"{relative(file)}: {name}" for name in named if not name.startswith(allowed)]
    assert wrong == []


def attributes(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_only_one_module_touches_the_handles_of_the_jvm() -> None:
    assert [relative(file) for file in MODULES if attributes(file) & JVM_HANDLES] == [relative(PY4J)]


def test_the_public_names_are_few_exist_and_cannot_be_mixed_up() -> None:
    assert len(hw.__all__) <= 20
    assert all(hasattr(hw, name) for name in hw.__all__)
    plain = [name.lower().rstrip("s") for name in hw.__all__ if name != "Source"]  # the class form of source
    assert len(set(plain)) == len(plain)


def test_how_a_source_in_the_jvm_is_made_is_not_public() -> None:
    assert not hasattr(hw, "JvmSource")


def test_one_scala_folder_is_in_spark_s_own_package() -> None:
    files = [file for file in SCALA.rglob("*.scala") if "package org.apache.spark" in file.read_text()]
    assert {file.parent for file in files} == {SCALA / "org" / "apache" / "spark" / "sql" / "headwater"}


@pytest.mark.parametrize("folder", OF_SPARK)
def test_a_scala_folder_imports_only_what_it_may_of_spark(folder: str) -> None:
    files = sorted((SCALA / "headwater" / folder).glob("*.scala"))
    assert files, f"there is no folder {folder}"
    wrong = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            name = line.strip().removeprefix("import org.apache.spark.")
            if line.strip().startswith("import org.apache.spark.") and not name.startswith(OF_SPARK[folder]):
                wrong.append(f"{file.name}: {name}")
    assert wrong == []


def test_only_tasks_use_pickle_and_nothing_uses_java_serialization() -> None:
    """What is on disk is JSON and Arrow. A task gets its source as a pickle from Spark, not from a disk."""
    modules = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}
    users = {
        file.relative_to(PACKAGE / "headwater").as_posix()
        for file in MODULES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and modules & {name.name.rpartition(".")[2] for name in node.names}
    }
    assert users == {"runtime/tasks.py"}
    forbidden = ("ObjectInputStream", "ObjectOutputStream", "JavaSerializer", "KryoSerializer")
    for file in ROOT.glob("jvm/src/main/**/*.scala"):
        assert not [word for word in forbidden if word in file.read_text(encoding="utf-8")], file


def test_no_file_of_a_checkpoint_is_a_pickle_or_a_java_object() -> None:
    files = [file for file in (ROOT / "tests/golden").rglob("*") if file.is_file() and file.suffix != ".py"]
    assert len(files) > 100
    for file in files:
        assert b"\xac\xed\x00\x05" not in file.read_bytes(), f"{file} has a Java object"
        assert not file.read_bytes().startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")), file
