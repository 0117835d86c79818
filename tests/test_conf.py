"""The private part of `session` that finds the `spark.jars` in effect before there is a JVM to ask."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headwater.spark.session import append_jar, default_jars, read_properties, submit_jars, with_jars


@given(text=st.text(alphabet=" \t\f\r\n\\=:#!abu0041", max_size=60))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_properties_are_parsed_as_java_does(spark_session: SparkSession, text: str) -> None:
    jvm = spark_session._jvm
    java = jvm.java.util.Properties()
    try:
        java.load(jvm.java.io.StringReader(text))
    except Exception:  # a malformed \uXXXX stops Java, and with it spark-submit
        return
    expected = {str(key): java.getProperty(key).strip(" \t\f") for key in java.stringPropertyNames()}
    found = read_properties(text)
    for settings_read in (found, expected):  # a setting without a name is none of Spark's
        settings_read.pop("", None)
    assert found == expected


@pytest.mark.parametrize(
    ("args", "jars"),
    [
        ("pyspark-shell", None),
        ("--jars a.jar pyspark-shell", "a.jar"),
        ("--jars=a.jar,b.jar pyspark-shell", "a.jar,b.jar"),
        ("--jars a.jar --jars b.jar pyspark-shell", "b.jar"),
        ("--conf spark.jars=a.jar -c spark.jars=b.jar pyspark-shell", "b.jar"),
        ("--conf spark.jars=a.jar --jars b.jar pyspark-shell", "b.jar"),
        ("--verbose --name --jars pyspark-shell", None),
        ("--conf spark.jars.packages=x:y:1 pyspark-shell", None),
        ("app.py --jars a.jar", None),
        ("--jars 'a b.jar' pyspark-shell", "a b.jar"),
    ],
)
def test_the_jars_in_effect_are_found_in_submit_arguments(args: str, jars: str | None) -> None:
    assert submit_jars(args) == jars
    changed = with_jars(args, "x.jar,y z.jar")
    assert submit_jars(changed) == "x.jar,y z.jar"
    assert changed.count("--jars") == 1 + (jars is None and "--jars" in args)


def test_a_jar_is_appended_once() -> None:
    assert append_jar(None, "h.jar") == append_jar("", "h.jar") == append_jar("h.jar", "h.jar") == "h.jar"
    assert append_jar("a.jar, b.jar", "h.jar") == "a.jar,b.jar,h.jar"


def test_properties_files_have_the_precedence_of_spark_submit(tmp_path: Path) -> None:
    for name in ("spark-defaults.conf", "base", "one", "two"):
        (tmp_path / name).write_text(f"spark.jars {name}.jar\n")
    base, one, two = (f"{tmp_path}/{name}" for name in ("base", "one", "two"))
    assert default_jars("pyspark-shell", tmp_path) == "spark-defaults.conf.jar"
    assert default_jars(f"--properties-file {base} pyspark-shell", tmp_path) == "base.jar"
    extra = f"--extra-properties-file {one} --extra-properties-file {two}"
    assert default_jars(f"{extra} --properties-file {base} pyspark-shell", tmp_path) == "two.jar"
    (tmp_path / "base").write_text("spark.app.name x\n")
    assert default_jars(f"--properties-file {base} pyspark-shell", tmp_path) is None
    both = f"--properties-file {base} --load-spark-defaults pyspark-shell"
    assert default_jars(both, tmp_path) == "spark-defaults.conf.jar"
    assert default_jars("pyspark-shell", tmp_path / "none") is None
