"""`hw.session` and `hw.attach` on classic Spark. Tests that need a new JVM start a new process."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from processes import Run, program, run_command, wait_until

import headwater as hw
from headwater.spark.attach import _check_spark
from headwater.spark.jar import find_java, verified_jar

COLUMNS = ["timestamp", "value"]

ONE_CONNECT_SERVER = pytest.mark.xdist_group("connect")
"""PySpark starts a local Connect server on its default port, so one at a time."""


@pytest.fixture
def other_jar(tmp_path: Path) -> Path:
    """Some jar of the user's own, with one resource in it by which to find it."""
    file = tmp_path / "other one.jar"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("other.txt", "here")
    return file


def rewritten(jar: Path, to: Path, replace: dict[str, str | None]) -> Path:
    """A copy of the jar with some entries replaced, or left out where the replacement is None."""
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(to, "w") as new:
        assert set(replace) <= set(old.namelist())
        for name in old.namelist():
            content = replace.get(name, "")
            if content is not None:
                new.writestr(name, content if name in replace else old.read(name))
    return to


@pytest.mark.parametrize(
    "place", ["nowhere", "builder", "defaults", "submit --jars", "submit --conf", "file"]
)
def test_session_appends_to_spark_jars_wherever_they_are_set(
    run: Run, tmp_path: Path, jar: Path, other_jar: Path, place: str
) -> None:
    env, setting = {}, ""
    if place == "builder":
        setting = f'.config("spark.jars", {str(other_jar)!r})'
    elif place == "defaults":
        (tmp_path / "spark-defaults.conf").write_text(f"# ours\nspark.jars   {other_jar}\n")
        env["SPARK_CONF_DIR"] = str(tmp_path)
    elif place == "submit --jars":
        env["PYSPARK_SUBMIT_ARGS"] = f"--name x --jars '{other_jar}' pyspark-shell"
    elif place == "submit --conf":
        env["PYSPARK_SUBMIT_ARGS"] = f"--conf 'spark.jars={other_jar}' pyspark-shell"
    elif place == "file":
        (tmp_path / "some.properties").write_text(f"spark.jars={other_jar}\n")
        env["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {tmp_path / 'some.properties'} pyspark-shell"
    found = run(
        f"""
        import os
        before = os.environ.get("PYSPARK_SUBMIT_ARGS")
        spark = hw.session(builder(){setting})
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        report({{
            "format": in_other_thread(lambda: loads(spark)),
            "executors": jars_of_executors(spark),
            "other": loader.getResource("other.txt") is not None,
            "conf": spark.sparkContext.getConf().get("spark.jars"),
            "restored": os.environ.get("PYSPARK_SUBMIT_ARGS") == before,
        }})
        """,
        env=env,
    )
    others = [] if place == "nowhere" else [str(other_jar)]
    listed = [re.sub("^file:/*", "/", entry).replace("%20", " ") for entry in found["conf"].split(",")]
    assert listed == [*others, str(jar)]
    assert found["executors"] == sorted([jar.name, *(["other%20one.jar"] if others else [])])
    assert found["other"] == bool(others)
    assert found["format"] == COLUMNS
    assert found["restored"]


def test_after_attach_a_running_session_has_the_format_in_every_thread(run: Run, jar: Path) -> None:
    found = run(
        """
        from concurrent.futures import ThreadPoolExecutor
        spark = builder().getOrCreate()
        before = loads(spark)
        with ThreadPoolExecutor(4) as pool:
            same = [s is spark for s in pool.map(hw.attach, [spark] * 8)]
        report({
            "before": before,
            "same": same,
            "here": loads(spark),
            "there": in_other_thread(lambda: loads(spark)),
            "executors": jars_of_executors(spark),
            "rows": rows_of_a_query(spark),
            "second": hw.session() is spark,
        })
        """
    )
    assert found["before"] == "not found"
    assert found["same"] == [True] * 8
    assert found["here"] == found["there"] == COLUMNS
    assert found["executors"] == [jar.name]
    assert found["rows"] > 0
    assert found["second"]


def test_attach_after_add_jar_reaches_the_threads_that_add_jar_did_not(run: Run, jar: Path) -> None:
    found = run(
        f"""
        spark = builder().getOrCreate()
        spark.sql("ADD JAR '{jar}'").collect()
        before = in_other_thread(lambda: loads(spark))
        hw.attach(spark)
        there = in_other_thread(lambda: loads(spark))
        report([before, loads(spark), there, jars_of_executors(spark), rows_of_a_query(spark) > 0])
        """
    )
    assert found == ["not found", COLUMNS, COLUMNS, [jar.name], True]


def test_under_spark_submit_the_jar_is_found_and_not_added_again(run: Run, jar: Path, tmp_path: Path) -> None:
    import pyspark

    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    script = """
        spark = hw.session(SparkSession.builder)
        report([loads(spark), jars_of_executors(spark), spark.sparkContext.getConf().get("spark.jars")])
        """
    options = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    columns, executors, conf = run(script, command=[submit, *options, "--jars", str(jar)])
    assert (columns, executors) == (COLUMNS, [jar.name])
    assert conf.count("headwater") == str(jar).count("headwater")
    without = run(
        script.replace('.get("spark.jars")', '.get("spark.jars", "none")'), command=[submit, *options]
    )
    assert without == [COLUMNS, [jar.name], "none"]


@ONE_CONNECT_SERVER
def test_a_local_connect_session_starts_with_the_jar(run: Run) -> None:
    found = run(
        """
        spark = hw.session(SparkSession.builder.remote("local[2]"))
        same, kind = hw.attach(spark) is spark, type(spark).__module__
        report([kind, same, loads(spark), tasks_see_the_class(spark), rows_of_a_query(spark)])
        spark.stop()
        """
    )
    assert found[:4] == ["pyspark.sql.connect.session", True, COLUMNS, [hw.__version__]]
    assert found[4] > 0


@ONE_CONNECT_SERVER
def test_a_connect_server_reports_a_wrong_option_at_first_analysis(run: Run) -> None:
    found = run(
        """
        from headwater.sources import random_alpha
        spark = hw.session(SparkSession.builder.remote("local[2]"))
        words = hw.stream(spark, random_alpha(len=0))

        def refusal(action):
            try:
                action()
            except Exception as error:
                return str(error)

        report([refusal(lambda: words.schema), refusal(words.writeStream.format("noop").start)])
        spark.stop()
        """
    )
    assert all("'len' of source 'random_alpha' is '0'" in message for message in found)


ATTACH = """
    spark = builder().config("spark.jars", {jar!r}).getOrCreate()
    try:
        hw.attach(spark)
        report("attached")
    except hw.HeadwaterError as error:
        report(str(error))
    """


def test_another_version_of_the_jar_is_an_error_with_both_versions(
    run: Run, jar: Path, tmp_path: Path
) -> None:
    other = rewritten(jar, tmp_path / "old.jar", {"headwater/version.properties": "version=0.0.7\n"})
    message = run(ATTACH.format(jar=str(other)))
    assert f"headwater for Python is {hw.__version__}" in message
    assert f"the jar in the session is 0.0.7 (from {other})" in message
    assert "pip install headwater==0.0.7" in message


def test_a_jar_that_lost_its_services_file_is_named_with_the_remedy(
    run: Run, jar: Path, tmp_path: Path
) -> None:
    service = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    message = run(ATTACH.format(jar=str(rewritten(jar, tmp_path / "fat.jar", {service: None}))))
    assert f"(from {tmp_path / 'fat.jar'}), but the format random_alpha cannot be loaded" in message
    assert service in message


def test_a_broken_class_is_named_with_the_remedy(run: Run, jar: Path, tmp_path: Path) -> None:
    broken = rewritten(jar, tmp_path / "broken.jar", {"headwater/Version.class": "no class"})
    message = run(ATTACH.format(jar=str(broken)))
    assert "ClassFormatError" in message
    assert "headwater jar" in message


def test_a_loader_that_cannot_be_added_to_is_named_with_the_remedy(
    run: Run, clean_env: dict[str, str], tmp_path: Path, jar: Path
) -> None:
    """A gateway that spark-submit did not start has Java's own loader, as some notebook servers do."""
    import pyspark

    info = tmp_path / "gateway"
    classpath = str(Path(pyspark.__file__).parent / "jars" / "*")
    opens = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
    ]
    opens += ["--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.net=ALL-UNNAMED"]
    main = "org.apache.spark.api.python.PythonGatewayServer"
    java = subprocess.Popen(
        [find_java().program, *opens, "-cp", classpath, main],
        env={**clean_env, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(info.exists, lambda: f"no {info}, java ended: {java.poll()}")
        content = info.read_bytes()
        env = {
            "PYSPARK_GATEWAY_PORT": str(int.from_bytes(content[:4], "big")),
            "PYSPARK_GATEWAY_SECRET": content[8:].decode(),
        }
        message = run(
            """
            try:
                hw.session(builder().appName("gateway"))
                report("attached")
            except hw.HeadwaterError as error:
                report(str(error))
            """,
            env=env,
        )
    finally:
        assert java.stdin is not None
        java.stdin.close()  # it ends when its input does
        try:
            java.wait(60)
        finally:
            java.kill()
    assert "AppClassLoader) does not accept jars" in message
    assert f"spark-submit --jars {jar}" in message


def test_a_changed_jar_is_an_error_with_both_hashes(copy_of_package: Path) -> None:
    folder = copy_of_package / "headwater" / "jars"
    jar = verified_jar(folder)
    expected = (folder / f"{jar.name}.sha256").read_text().strip()
    content = bytearray(jar.read_bytes())
    content[len(content) // 2] ^= 1
    jar.write_bytes(content)
    with pytest.raises(hw.HeadwaterError, match="install headwater again") as caught:
        verified_jar(folder)
    assert str(jar) in str(caught.value)
    assert expected in str(caught.value)
    assert len(set(re.findall(r"\b[0-9a-f]{64}\b", str(caught.value)))) == 2


NO_JAVA = """
    try:
        hw.session(builder())
    except hw.HeadwaterError as error:
        report(str(error))
    """


def test_a_session_without_java_is_an_error_with_a_remedy(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = run(NO_JAVA, env={"JAVA_HOME": "", "PATH": str(tmp_path / "empty")})
    assert "there is no java on the PATH" in message
    assert "install a JDK 17" in message


def test_a_session_with_an_old_java_is_an_error_with_a_remedy(run: Run, tmp_path: Path) -> None:
    java = program(tmp_path / "bin" / "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    message = run(NO_JAVA, env={"JAVA_HOME": str(tmp_path)})
    assert f"Java 11.0.2 ({java}) is too old for Spark 4" in message
    assert "install a JDK 17" in message


def test_a_java_chosen_by_spark_env_is_not_checked(run: Run, tmp_path: Path) -> None:
    found = find_java()
    (tmp_path / "spark-env.sh").write_text(f"PATH='{Path(found.program).parent}':$PATH\nunset JAVA_HOME\n")
    env = {"JAVA_HOME": str(tmp_path / "nowhere"), "SPARK_CONF_DIR": str(tmp_path)}
    assert run("report(loads(hw.session(builder())))", env=env) == COLUMNS


@pytest.mark.parametrize("suffix", [".jar", ".jar.sha256"])
def test_a_missing_file_is_named_with_the_remedy(copy_of_package: Path, suffix: str) -> None:
    folder = copy_of_package / "headwater" / "jars"
    gone = folder / f"headwater-{hw.__version__}{suffix}"
    gone.unlink()
    with pytest.raises(hw.HeadwaterError, match=re.escape(str(gone)) + ".*make setup"):
        verified_jar(folder)


def test_attach_rejects_what_is_not_a_session() -> None:
    with pytest.raises(TypeError, match="takes a SparkSession, not 'spark' of type str"):
        hw.attach("spark")  # type: ignore[arg-type]


@ONE_CONNECT_SERVER
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_attach_rejects_a_stopped_session_attached_before_or_not(run: Run, kind: str) -> None:
    messages = run(
        f"""
        def refusal(spark):
            spark.stop()
            try:
                hw.attach(spark)
            except hw.HeadwaterError as error:
                return str(error)

        make = SparkSession.builder.remote("local[2]") if {kind!r} == "connect" else builder()
        attached = refusal(hw.session(make))
        report([attached, refusal(make.getOrCreate())])
        """
    )
    assert messages[0] == messages[1]
    assert "this session is stopped" in messages[0]
    assert "hw.session()" in messages[0]


def test_spark_3_is_an_error_and_a_newer_spark_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(hw.HeadwaterError, match=r"Spark 3\.5\.8 is not supported.*pip install"):
        _check_spark("3.5.8")
    _check_spark("4.3.0")
    assert not caplog.records
    _check_spark("4.4.0")
    assert "Spark 4.4.0 is newer" in caplog.text


@pytest.mark.parametrize(
    ("module", "loaded"), [("headwater", []), ("headwater.sources", ["pyarrow", "requests"])]
)
def test_importing_headwater_imports_no_pyspark(
    module: str, loaded: list[str], clean_env: dict[str, str], tmp_path: Path
) -> None:
    looked_for = "{'pyspark', 'py4j', 'pyarrow', 'requests'}"
    script = f"import sys, {module}; print(sorted({looked_for} & set(sys.modules)))"
    assert run_command([sys.executable, "-c", script], clean_env, tmp_path).strip() == str(loaded)
    assert os.path.exists(verified_jar())


def test_tasks_that_load_the_jar_once_more_get_their_rows(run: Run) -> None:
    """Rows can be handed over within the JVM only where tasks and driver share our classes."""
    script = """
    spark = hw.session(builder().config("spark.executor.userClassPathFirst", "true"))
    report(rows_of_a_query(spark))
    """
    assert run(script) > 0
