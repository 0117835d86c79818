# `make help` lists the targets. Each sets up what it needs first, which is quick the second time.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' python/headwater/_version.py)
JAR := python/headwater/jars/headwater-$(VERSION).jar

# The sbt launcher comes through Ivy, which is among pyspark's jars. Its hash belongs to the version in build.properties.
SBT_VERSION := $(shell sed -n 's/^sbt.version=//p' project/build.properties)
SBT_SHA256 := 18d4a733eae2f70fd4d71a46e9da21d2eb7c9bf6ee85a67be9a9800e7c01403e
SBT_LAUNCHER := .tools/sbt-launch-$(SBT_VERSION).jar
SBT := project/sbt $(SBT_LAUNCHER) $(SBT_SHA256)

CLASS_ARCHIVE := .tools/spark.jsa
KAFKA := .tools/kafka/.installed
EXAMPLES_JAR := examples/scala/target/headwater-examples-$(VERSION).jar
BENCH_JAR := bench/scala/target/headwater-bench-$(VERSION).jar

PYTEST := $(PY) -m pytest -c python/pyproject.toml --rootdir .
PYTHON_CODE := python tests bench examples

# Clusters and servers on this machine, drivers and executors that are killed: these take minutes each.
CLUSTER_TESTS := $(addprefix tests/test_,chaos.py cluster.py connect.py partitioned_cluster.py real_time_cluster.py)

# Whole applications, each as its users run it, and broken on purpose.
EXAMPLE_TESTS := $(addprefix tests/test_,demo.py examples.py)

# Feeds that read real servers, which are killed and restarted. The first three are about feeds in general.
SERVER_TESTS := $(filter-out $(addprefix tests/test_feed_,ends.py review.py types.py),$(wildcard tests/test_feed_*.py))

OTHER_TESTS := $(patsubst %,--ignore=%,$(CLUSTER_TESTS) $(EXAMPLE_TESTS) $(SERVER_TESTS)) tests

# `make test` runs the Scala suites beside the Python tests; their output goes here.
JVM_LOG := target/test-jvm.log

# pyspark 4.3 needs Python 3.11.
LEFT_OUT := $(shell $(PYTHON) -c 'import sys; print("4.3" if sys.version_info < (3, 11) else "")')
LINES := $(filter-out $(LEFT_OUT),4.0 4.1 4.2 4.3)

# Hashes, yes; where the packages come from is each machine's own affair.
LOCK := $(VENV)/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock"

SCALA_BUILD := build.sbt project/build.properties project/plugins.sbt python/headwater/_version.py \
  python/headwater/options.json

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.installed $(JAR) ## create the virtual environment, build the jar, install the package for development

.PHONY: demo
demo: setup ## run the demo: a live table, a query killed and restarted; about 40 seconds
	$(PY) examples/demo.py

.PHONY: test
test: setup servers $(CLASS_ARCHIVE) ## run every check and test except the process, example, server and cluster suites
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-scala check-python

.PHONY: test-fast
test-fast: setup lint-python ## check the Python code and run the tests that need no Spark; about a minute
	$(PYTEST) -n 2 -m "not spark and not process" $(OTHER_TESTS)

.PHONY: one
one: setup ## run one test: TEST=tests/test_http.py::NAME or a Scala suite, TEST=BufferSuite
	@[ -n "$(TEST)" ] || { echo 'name the test: make one TEST=tests/test_http.py, or make one TEST=BufferSuite' >&2; exit 2; }
ifneq ($(filter tests/%,$(TEST)),)
	$(PYTEST) $(TEST)
else
	$(SBT) "jvm/testOnly *.$(TEST)"
endif

.PHONY: lint
lint: lint-python lint-scala ## check formatting, style, types and imports

.PHONY: lint-python
lint-python: setup ## check the Python code only
	$(PY) -m ruff check --config python/pyproject.toml $(PYTHON_CODE)
	$(PY) -m ruff format --config python/pyproject.toml --check $(PYTHON_CODE)
	$(PY) -m mypy --config-file python/pyproject.toml python/headwater
	$(VENV)/bin/lint-imports --config python/pyproject.toml --no-cache

.PHONY: lint-scala
lint-scala: setup ## check the formatting of the Scala code only
	$(SBT) scalafmtCheckAll scalafmtSbtCheck

.PHONY: check-python
check-python: lint-python test-python ## check the Python code and run the Python tests

.PHONY: check-scala
check-scala: setup ## check the Scala code and run the Scala suites, with the output in target/test-jvm.log
	@mkdir -p $(dir $(JVM_LOG))
	$(SBT) scalafmtCheckAll scalafmtSbtCheck jvm/test >$(JVM_LOG) 2>&1 || { cat $(JVM_LOG); exit 1; }
	@grep -E 'Passed: Total|Total time' $(JVM_LOG)

.PHONY: test-jvm
test-jvm: setup ## run the Scala suites only
	$(SBT) jvm/test

.PHONY: test-python
test-python: setup servers $(CLASS_ARCHIVE) ## run the Python tests that need at most one Spark session
	$(PYTEST) -n 2 --dist loadfile -m "not process" $(OTHER_TESTS)

.PHONY: test-processes
test-processes: setup servers $(EXAMPLES_JAR) $(CLASS_ARCHIVE) ## run the tests that start Spark or install the wheel in processes of their own; about 8 minutes
	$(PYTEST) -n 3 --dist loadgroup -m process $(OTHER_TESTS)

.PHONY: test-examples
test-examples: setup servers $(EXAMPLES_JAR) $(CLASS_ARCHIVE) ## run every example, the notebook and the demo; about 4 minutes
	$(PYTEST) -n 3 --dist load $(EXAMPLE_TESTS)

.PHONY: test-cluster
test-cluster: setup $(EXAMPLES_JAR) $(CLASS_ARCHIVE) ## run standalone clusters, Spark Connect, kill -9; about 8 minutes
	$(PYTEST) -n 2 --dist loadfile $(CLUSTER_TESTS)

.PHONY: test-servers
test-servers: setup servers $(KAFKA) .venvs/spark-4.0/.installed $(CLASS_ARCHIVE) ## run the built-in feeds against real servers: mosquitto, Redis, Kafka and others
	$(PYTEST) -n 2 --dist loadfile $(SERVER_TESTS)

.PHONY: servers
servers: ## install Redis and mosquitto for the tests, where they are missing, from Debian's packages
	@project/install-servers

.PHONY: matrix
matrix: setup $(LINES:%=.venvs/spark-%/.installed) ## run the same jar on Spark 4.0, 4.1, 4.2 and 4.3
	$(PY) tests/matrix/run.py $(LINES)
	@[ -z "$(LEFT_OUT)" ] || { echo "Spark $(LEFT_OUT) was left out: its pyspark needs Python 3.11, and '$(PYTHON)' is older" >&2; [ "$$CI" != true ]; }

.PHONY: chaos
chaos: setup $(CLASS_ARCHIVE) ## kill and restart a driver 100 times, about 20 minutes; ARGS="--rounds 20" for fewer
	PYTHONPATH=tests $(PY) -m chaos.run $(ARGS)

.PHONY: fuzz
fuzz: export FUZZ_SECONDS ?= 300
fuzz: setup ## fuzz every parser of foreign bytes, 5 minutes in each language; FUZZ_SECONDS=30 for less, FUZZ_SEED=7 to repeat
	PYTHONPATH=tests $(PY) -m fuzz.run
	$(SBT) "jvm/testOnly *.ForeignBytesSuite"

.PHONY: format
format: setup ## format the code
	$(PY) -m ruff check --config python/pyproject.toml --fix $(PYTHON_CODE)
	$(PY) -m ruff format --config python/pyproject.toml $(PYTHON_CODE)
	$(SBT) scalafmtAll scalafmtSbt

.PHONY: bench
bench: setup $(BENCH_JAR) ## compare sources with their alternatives, about 50 minutes; ARGS=--quick for a short run
	$(PY) bench/run.py $(ARGS)

.PHONY: figures
figures: setup ## write the tables of README and wiki from bench/results.md
	$(PY) bench/figures.py

.PHONY: reference
reference: setup ## write the wiki's API reference from the docstrings, and its tables of options
	$(PY) project/api_reference.py
	$(PY) project/option_tables.py

.PHONY: build
build: setup ## build the wheel and the sdist, in dist/
	rm -rf dist
	$(PY) -m build --no-isolation --outdir dist python

.PHONY: lock
lock: setup ## update the lock files of python/ and tests/matrix/
	$(LOCK) --python-version 3.10 --extra dev python/pyproject.toml -o python/requirements-dev.lock
	for line in 4.0 4.1 4.2; do \
	  $(LOCK) --python-version 3.10 tests/matrix/spark-$$line.in -o tests/matrix/spark-$$line.lock || exit 1; done
	$(LOCK) --python-version 3.11 tests/matrix/spark-4.3.in -o tests/matrix/spark-4.3.lock

.PHONY: clean
clean: ## remove everything that was built or installed here
	rm -rf $(VENV) .venvs .tools dist target project/target project/project python/headwater/jars
	find jvm examples bench -name target -type d -prune -exec rm -rf {} +
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: python/requirements-dev.lock python/pyproject.toml
	@project/require-java >/dev/null
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "headwater needs Python 3.10 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Set PYTHON, as in: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --require-hashes -r python/requirements-dev.lock
	$(PY) -m pip install --quiet --no-deps --no-build-isolation -e python
	@touch $@

.venvs/spark-%/.installed: tests/matrix/spark-%.lock
	@rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --require-hashes -r $<
	@touch $@

$(SBT_LAUNCHER): $(VENV)/.installed project/build.properties
	@mkdir -p $(@D)
	"$$(project/require-java)" -jar $(VENV)/lib/python3*/site-packages/pyspark/jars/ivy-*.jar \
	  -dependency org.scala-sbt sbt-launch $(SBT_VERSION) -types jar -confs default -warn \
	  -retrieve "$(@D)/[artifact]-[revision].[ext]"
	@$(SBT)
	@touch $@

$(JAR): $(SBT_LAUNCHER) $(SCALA_BUILD) $(shell find jvm/src/main jvm/src/realtime/scala -type f)
	$(SBT) jvm/package
	@rm -rf $(@D) && mkdir -p $(@D)
	cp jvm/target/headwater-$(VERSION).jar $@
	@sha256sum $@ | cut -d ' ' -f 1 > $@.sha256

# A broker for the tests, and Spark's Kafka connector, of the newest line for which all that it needs can be had.
$(KAFKA): $(VENV)/.installed
	@rm -rf $(@D)
	"$$(project/require-java)" -jar $(VENV)/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -types jar bundle \
	  -dependency org.apache.kafka kafka_2.13 4.2.0 -confs default -warn \
	  -retrieve "$(@D)/broker/[artifact]-[revision].[ext]"
	"$$(project/require-java)" -jar $(VENV)/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -types jar bundle \
	  -dependency org.apache.spark spark-sql-kafka-0-10_2.13 4.0.0 -confs default -warn \
	  -retrieve "$(@D)/connector/[artifact]-[revision].[ext]"
	@touch $@

# Halves the start of the tests' JVMs. Where it cannot be made, they do without.
$(CLASS_ARCHIVE): $(VENV)/.installed tests/class_archive.py | $(JAR)
	@rm -f $@
	-$(PY) tests/class_archive.py $@

$(EXAMPLES_JAR): $(SBT_LAUNCHER) $(SCALA_BUILD) $(wildcard examples/scala/*.scala)
	$(SBT) examples/package

$(BENCH_JAR): $(SBT_LAUNCHER) $(SCALA_BUILD) $(shell find bench/scala -path '*/target' -prune -o -type f -print)
	$(SBT) bench/package
