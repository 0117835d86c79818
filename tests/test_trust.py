"""Options that name code or files, narrowed by Spark's configuration; and a secret that py4j would log.

Imports a private module: the setting is Spark's, and most of its cases need no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Run

import headwater as hw
from headwater import references, trust
from headwater.decode import decoder
from headwater.trust import Trust


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what is trusted, as Spark's configuration says it, for this test."""
    monkeypatch.setattr(trust, "current", trust.current)

    def set_conf(modules: str | None = None, folders: str | None = None) -> None:
        conf = {"spark.headwater.trusted.modules": modules, "spark.headwater.trusted.folders": folders}
        trust.use(Trust.from_conf(conf.get))

    return set_conf


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `trusted_app` and a module `trusted_application`, which notes that it was imported."""
    (tmp_path / "trusted_app").mkdir()
    (tmp_path / "trusted_app" / "__init__.py").write_text("import os\nfrom json import loads\n")
    code = "def upper(record):\n    return (record.decode().upper(),)\nclass Row:\n    parse = upper\n"
    (tmp_path / "trusted_app" / "decoders.py").write_text(code)
    note = "from pathlib import Path\nPath(__file__).with_suffix('.imported').touch()\n"
    (tmp_path / "trusted_application.py").write_text(note + code)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("trusted_app")]:
        del sys.modules[name]


def decode(function: str) -> Any:
    return list(decoder(function, "word STRING").rows([b"one"]))


def test_without_the_setting_options_may_name_any_module(modules: Path) -> None:
    assert decode("trusted_application:upper") == [("ONE",)]


@pytest.mark.parametrize("setting", ["trusted_app", "trusted_app.decoders", " other , trusted_app.decoders"])
@pytest.mark.parametrize("function", ["upper", "Row.parse"])
def test_a_function_of_a_trusted_module_is_called(
    modules: Path, trusting: Callable[..., None], setting: str, function: str
) -> None:
    trusting(modules=setting)
    assert decode(f"trusted_app.decoders:{function}") == [("ONE",)]


def test_another_module_is_refused_before_it_is_imported(
    modules: Path, trusting: Callable[..., None]
) -> None:
    trusting(modules="trusted_app")
    message = (
        r"^decode='trusted_application:upper' cannot be imported: ValueError: module 'trusted_application' "
        r"is not trusted: spark\.headwater\.trusted\.modules is 'trusted_app'$"
    )
    with pytest.raises(ValueError, match=message):
        decode("trusted_application:upper")
    with pytest.raises(hw.HeadwaterError, match="module 'trusted_application' is not trusted"):
        references.resolve("trusted_application:upper")
    with pytest.raises(hw.HeadwaterError, match=r"trusted_application\.py' is not trusted"):
        references.resolve(f"{modules}/trusted_application.py:upper")
    (modules / "trusted_app.py").write_text("raise AssertionError('this file was executed')")
    for file in ("trusted_app.py", "trusted_app./../trusted_application.py"):
        with pytest.raises(hw.HeadwaterError, match=f"file '{file}' is not trusted"):
            references.resolve(f"{file}:upper")
    assert not (modules / "trusted_application.imported").exists()


@pytest.mark.parametrize(
    "function",
    [
        "os.system",
        "loads",
        "__loader__.get_data",
        "os.environ.get",
        "decoders.upper.__globals__.get",
        "__name__.join",
    ],
)
def test_a_trusted_module_does_not_lead_to_others(
    modules: Path, trusting: Callable[..., None], function: str
) -> None:
    import trusted_app.decoders  # type: ignore[import-not-found]  # noqa: F401

    trusting(modules="trusted_app")
    with pytest.raises(ValueError, match="is not trusted"):
        decode(f"trusted_app:{function}")


def test_an_empty_setting_trusts_nothing(
    modules: Path, trusting: Callable[..., None], tmp_path: Path
) -> None:
    trusting(modules="", folders="")
    with pytest.raises(ValueError, match="is not trusted"):
        decode("trusted_app.decoders:upper")
    (tmp_path / "token").write_text("hush")
    with pytest.raises(hw.HeadwaterError, match="not in a trusted folder"):
        hw.Secret(f"file:{tmp_path}/token").reveal()


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """`inside`, with links that lead out of it, and beside it `outside` and `inside_too`."""
    for name in ("inside", "outside", "inside_too"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(f"hush {name}\n")
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside" / "token")
    (tmp_path / "inside" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "inside" / "alias").symlink_to("token")
    (tmp_path / "linked").symlink_to(tmp_path / "inside")
    return tmp_path


@pytest.mark.parametrize("path", ["inside/token", "inside/../inside/token", "inside/alias", "linked/token"])
@pytest.mark.parametrize("setting", ["inside", "linked"])
def test_a_secret_in_a_trusted_folder_is_read(
    folders: Path, trusting: Callable[..., None], setting: str, path: str
) -> None:
    trusting(folders=f"/nowhere,{folders}/{setting}")
    assert hw.Secret(f"file:{folders}/{path}").reveal() == "hush inside"


@pytest.mark.parametrize(
    "path",
    [
        "outside/token",
        "inside/../outside/token",
        "inside/link",
        "inside/folder/token",
        "inside_too/token",
        "none",
    ],
)
def test_a_secret_outside_of_the_trusted_folders_is_refused(
    folders: Path, trusting: Callable[..., None], path: str
) -> None:
    trusting(folders=f"{folders}/inside")
    with pytest.raises(hw.HeadwaterError) as caught:
        hw.Secret(f"file:{folders}/{path}").reveal()
    assert caught.value.what == (
        f"cannot read the secret 'file:{folders}/{path}': the file is not in a trusted folder: "
        f"spark.headwater.trusted.folders is '{folders}/inside'"
    )


def test_with_trusted_folders_no_environment_variable_is_read(
    folders: Path, trusting: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUST_TOKEN", "hush")
    assert hw.Secret("env:TRUST_TOKEN").reveal() == "hush"
    trusting(folders=str(folders))
    with pytest.raises(hw.HeadwaterError, match="only files in trusted folders are read"):
        hw.Secret("env:TRUST_TOKEN").reveal()


SCRIPT = """
    import io, logging, os, tempfile
    from headwater.spark import attach

    heard = io.StringIO()
    logging.basicConfig(level=logging.DEBUG, stream=heard)
    folder = tempfile.mkdtemp()
    conf = {"spark.headwater.trusted.modules": "app.decoders", "spark.headwater.trusted.folders": folder}
    with_conf = builder()
    for name, value in conf.items():
        with_conf = with_conf.config(name, value)
    spark = hw.session(with_conf)
    secret = attach._host._address.secret

    def error(action):
        try:
            action()
        except Exception as error:
            return str(error)

    def sse(**options):
        options = {"url": "https://localhost", "decode": "os:system", "schema": "n INT", **options}
        return error(lambda: spark.readStream.format("sse").options(**options).load())

    class Ranges(hw.PartitionedSource, name="ranges", schema="n INT"):
        def __init__(self, token: hw.Secret): self.token = token
        def partitions(self): return [0]
        def earliest(self, p): return 0
        def latest(self, p): return 1
        def read(self, p, start, end): yield len(self.token.reveal())

    def ranges(token):
        frame = spark.readStream.format("ranges").option("token", token).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp())
        return error(lambda: writer.trigger(availableNow=True).start().awaitTermination())

    with open(folder + "/token", "w") as file:
        file.write("hush")
    allowed = ranges("file:" + folder + "/token")
    refused = ranges("file:" + __file__)
    plain = sse()
    spark.sql("SET spark.headwater.trusted.modules=os")
    spark.conf.set("spark.headwater.trusted.folders", "/")
    tries = {
        "spark.headwater.trusted.modules": "os",
        "trusted.modules": "os",
        "trustedModules": "os",
    }
    report({
        "plain": plain,
        "after SET": sse(),
        "with options": [sse(**{name: value}) for name, value in tries.items()],
        "allowed": allowed,
        "refused": refused,
        "after SET, file": ranges("file:" + __file__),
        "answers": heard.getvalue().count("Answer received"),
        "masked": "secret" in heard.getvalue() and "***" in heard.getvalue(),
        "leaked": secret in heard.getvalue(),
    })
"""


def test_the_settings_hold_in_spark_and_py4j_does_not_log_the_bridges_secret(run: Run) -> None:
    said = run(SCRIPT)
    refusal = "module 'os' is not trusted: spark.headwater.trusted.modules is 'app.decoders'"
    assert refusal in said["plain"]
    assert refusal in said["after SET"]
    assert all(message is not None for message in said["with options"])
    assert said["allowed"] is None
    assert "not in a trusted folder" in said["refused"]
    assert "not in a trusted folder" in said["after SET, file"]
    assert said["answers"] > 0
    assert (said["masked"], said["leaked"]) == (True, False)
