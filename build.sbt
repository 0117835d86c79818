// One jar for Spark 4.0, 4.1, 4.2 and 4.3: compiled against the lowest line, which has the fewest methods to call.
// `make matrix` runs that same jar on the newest release of each line.

val sparkVersion = "4.0.2"

// The lowest line with the interfaces of real-time mode. Only jvm/src/realtime is compiled against it.
val realTimeSparkVersion = "4.1.0"

// The one place where the version stands is the Python package.
val releaseVersion = {
  val file = IO.read(new File("python/headwater/_version.py"))
  """__version__ = "([^"]+)"""".r
    .findFirstMatchIn(file)
    .map(_.group(1))
    .getOrElse(sys.error("no version in _version.py"))
}

ThisBuild / version := releaseVersion
ThisBuild / organization := "headwater"
ThisBuild / scalaVersion := "2.13.16" // Spark 4.0's
ThisBuild / scalacOptions ++= Seq(
  "-release",
  "17",
  "-deprecation",
  "-feature",
  "-unchecked",
  "-Xlint",
  "-Xfatal-warnings"
)

// spark-connect-shims of this release is on no public repository, and only Connect's own build needs it.
val withoutShims = ExclusionRule("org.apache.spark", "spark-connect-shims_2.13")

val sparkProvided = "org.apache.spark" %% "spark-sql" % sparkVersion % Provided excludeAll withoutShims

// Two JVMs run the suites: one those that share a SparkSession, the other the rest. Within a JVM they run one after the
// other, because some of them check that no thread is left.
Global / concurrentRestrictions := Seq(
  Tags.limitAll(math.max(2, EvaluateTask.SystemProcessors)),
  Tags.limit(Tags.ForkedTestGroup, 2),
  Tags.exclusiveGroup(Tags.Clean)
)

lazy val jvm = (project in file("jvm"))
  .settings(
    name := "headwater",
    crossPaths := false,
    autoScalaLibrary := false, // Spark brings it
    libraryDependencies ++= Seq(
      sparkProvided,
      "org.scalatest" %% "scalatest" % "3.2.19" % Test,
      "org.scalatestplus" %% "scalacheck-1-18" % "3.2.19.0" % Test
    ) ++ Seq("sql", "catalyst", "core", "sql-api", "common-utils").map { module =>
      "org.apache.spark" %% s"spark-$module" % sparkVersion % Test classifier "tests" excludeAll withoutShims
    },
    Compile / packageBin / packageOptions +=
      Package
        .ManifestAttributes("Implementation-Title" -> name.value, "Implementation-Version" -> version.value),
    Compile / resourceGenerators += Def.task {
      val file = (Compile / resourceManaged).value / "headwater" / "version.properties"
      IO.write(file, s"version=${version.value}\n")
      val options = (Compile / resourceManaged).value / "headwater" / "options.json"
      IO.copyFile(new File("python/headwater/options.json"), options)
      Seq(file, options)
    }.taskValue,
    Compile / packageBin / mappings ++= (realtime / Compile / packageBin / mappings).value,
    Test / fork := true,
    Test / javaOptions ++= sparkModuleOptions ++ Seq(
      "-Xmx2g",
      "-Dspark.ui.enabled=false",
      "-Duser.timezone=UTC"
    ),
    Test / parallelExecution := true, // the two groups; the suites of a group run one after the other
    Test / testGrouping := {
      val options = (Test / forkOptions).value
      val classes = new java.net.URLClassLoader(
        (Test / fullClasspath).value.files.map(_.toURI.toURL).toArray,
        ClassLoader.getPlatformClassLoader
      )
      val sparkSuite = classes.loadClass("org.apache.spark.sql.test.SharedSparkSessionBase")
      val (withSpark, withoutSpark) = (Test / definedTests).value
        .partition(test => sparkSuite.isAssignableFrom(classes.loadClass(test.name)))
      Seq("with Spark" -> withSpark, "without Spark" -> withoutSpark).map { case (name, tests) =>
        Tests.Group(name, tests, Tests.SubProcess(options))
      }
    },
    Test / testOptions += Tests.Argument(TestFrameworks.ScalaTest, "-oDF")
  )

// What needs Spark 4.1's interfaces. Its classes are in the one jar, and are loaded only where these interfaces exist.
lazy val realtime = (project in file("jvm/src/realtime"))
  .settings(
    crossPaths := false,
    autoScalaLibrary := false,
    Compile / scalaSource := baseDirectory.value / "scala",
    Compile / unmanagedJars ++= Attributed.blankSeq((LocalProject("jvm") / Compile / products).value),
    libraryDependencies +=
      "org.apache.spark" %% "spark-sql" % realTimeSparkVersion % Provided excludeAll withoutShims
  )

// Applications that read headwater's sources from Scala; they need nothing of ours to compile.
lazy val examples = (project in file("examples/scala"))
  .settings(
    name := "headwater-examples",
    crossPaths := false,
    autoScalaLibrary := false,
    Compile / scalaSource := baseDirectory.value,
    libraryDependencies += sparkProvided
  )

// What headwater is measured against, where that is not in Spark.
lazy val bench = (project in file("bench/scala"))
  .settings(
    name := "headwater-bench",
    crossPaths := false,
    autoScalaLibrary := false,
    Compile / scalaSource := baseDirectory.value,
    Compile / resourceDirectory := baseDirectory.value / "resources",
    libraryDependencies += sparkProvided
  )

// What Spark's own launcher adds to every JVM it starts.
lazy val sparkModuleOptions = Seq(
  "lang",
  "lang.invoke",
  "lang.reflect",
  "io",
  "net",
  "nio",
  "util",
  "util.concurrent",
  "util.concurrent.atomic"
)
  .map(p => s"--add-opens=java.base/java.$p=ALL-UNNAMED") ++
  Seq("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar").map(p =>
    s"--add-opens=java.base/$p=ALL-UNNAMED"
  ) :+
  "-Djdk.reflect.useDirectMethodHandle=false"
