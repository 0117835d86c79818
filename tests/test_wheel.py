"""What is shipped: the wheel and the sdist, and a query where there is nothing but the wheel."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from processes import PACKAGE, run_command, running

import headwater as hw

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("wheel")]  # one worker: it is built once

QUERY = """
import headwater as hw
from headwater.sources import random_alpha
from pyspark.sql import SparkSession

spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
words = hw.stream(spark, random_alpha(len=5, rows_per_second=100))
query = words.writeStream.format("memory").queryName("words").start()
while spark.table("words").count() < 10:
    assert not query.awaitTermination(0.2)
query.stop()
print("LENGTHS", {len(row.value) for row in spark.table("words").collect()}, hw.__file__)
spark.stop()
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist, and the wheel made from that sdist, so that the sdist is known to be whole."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"headwater-{hw.__version__}-py3-none-any.whl"


def test_the_wheel_carries_the_jar_its_hash_the_options_its_types_and_the_licence(
    wheel: Path, jar: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.read(f"headwater/jars/{jar.name}") == jar.read_bytes()
        assert [name for name in names if "/jars/" in name and name.endswith(".jar")] == [
            f"headwater/jars/{jar.name}"
        ]
        assert f"headwater/jars/{jar.name}.sha256" in names
        assert "headwater/options.json" in names
        assert "headwater/py.typed" in names
        assert b"Apache License" in archive.read(f"headwater-{hw.__version__}.dist-info/licenses/LICENSE")


def test_the_sdist_carries_the_jar_and_the_licence_as_files(dist: Path, jar: Path) -> None:
    root = f"headwater-{hw.__version__}"
    with tarfile.open(dist / f"{root}.tar.gz") as archive:
        assert all(member.isfile() for member in archive.getmembers())
        packed = archive.extractfile(f"{root}/headwater/jars/{jar.name}")
        assert packed is not None
        assert packed.read() == jar.read_bytes()
        licence = archive.extractfile(f"{root}/LICENSE")
        assert licence is not None
        assert b"Apache License" in licence.read()


def test_the_licence_that_is_shipped_is_the_repository_s() -> None:
    assert (PACKAGE / "LICENSE").read_bytes() == (PACKAGE.parent / "LICENSE").read_bytes()


def test_nothing_shipped_names_a_folder_of_the_machine_that_built_it(wheel: Path) -> None:
    here = str(PACKAGE.parent).encode()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert here not in content, name
            assert not re.search(rb"--(extra-)?index-url", content), name
            if name.endswith(".jar"):
                with archive.open(name) as file, zipfile.ZipFile(file) as jar:
                    assert not [entry for entry in jar.namelist() if here in jar.read(entry)]


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that has only the wheel, and what it needs."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    install = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    run_command(install, os.environ, folder, timeout=900)
    return folder / "venv"


def test_a_query_runs_in_an_environment_that_has_only_the_wheel(
    home: Path, clean_env: dict[str, str], tmp_path: Path
) -> None:
    python = str(home / "bin" / "python")
    script = tmp_path / "query.py"
    script.write_text(QUERY)
    env = {**clean_env, "PYSPARK_PYTHON": python}
    output = run_command([python, str(script)], env, tmp_path, timeout=300)
    assert f"LENGTHS {{5}} {home}" in output
    assert run_command([str(home / "bin" / "headwater"), "jar"], env, tmp_path).startswith(str(home))


def test_a_simulator_runs_in_an_environment_that_has_only_the_wheel(
    home: Path, clean_env: dict[str, str], tmp_path: Path
) -> None:
    command = [str(home / "bin" / "headwater"), "sim", "rsvp", "--rate", "0", "--count", "3"]
    with running(command, tmp_path / "sim.log", clean_env) as process:
        told = process.until("its URL", lambda: re.match(r"(http://127\.0\.0\.1:\d+/\S+)\n", process.output))
        with urlopen(told[1]) as answer:
            assert json.loads(answer.readline())["rsvp_id"] == 1_700_000_000
        os.kill(process.popen.pid, signal.SIGINT)
        assert process.wait(10).splitlines()[1] == "requests 1, records 3, different ones 3"
