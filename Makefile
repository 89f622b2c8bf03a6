# Everything runs in .venv, which is set up on first use by the target that needs it.
# Needs Python 3.11 or newer, make and the package index; no root, no Java. Tests that need Redis or
# PostgreSQL are skipped where there is none; SERVERS=install installs them, as root on Debian.

PYTHON ?= python3
# The path of uv; pip is used where there is none, or with UV= on the command line.
UV ?= $(shell command -v uv)
ARGS ?=
# One more than two cores: many tests wait for a server, a lock or a clock.
WORKERS ?= 3
RUN := .venv/bin/python -m
# The classes of Spark, which starts in half of the time with them.
CLASSES := .venv/spark-classes.jsa
SOURCES := src tests tools benchmarks examples
# Collecting all tests to find those few takes longer than some of them do.
WARM = $(if $(findstring tests,$(ARGS)),,$(shell grep -rl 'mark\.warm' tests --include='test_*.py'))

# Without compiled files each of the many processes of a test run compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# An environment that came along with a copied folder would run the code it was copied from.
ifneq ($(shell cat .venv/root 2>/dev/null),$(CURDIR))
$(shell rm -f .venv/*.stamp)
endif
ifneq ($(shell cat .venv-oldest/root 2>/dev/null),$(CURDIR))
$(shell rm -f .venv-oldest/*.stamp)
endif

# The stamp names the programs that were found; when one is gone, look again.
$(shell while read -r program; do test -x "$$program" || rm -f .venv/servers.stamp; done \
	2>/dev/null <.venv/servers.stamp)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-spark integration matrix chaos bench lint types docs docs-check notebooks format dist picture \
	constraints clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter of a new .venv; ARGS='-k name' goes to pytest."
	@echo "  SERVERS=install installs Redis and PostgreSQL for the tests, as root on Debian."

demo: .venv/demo.stamp ## kill a running pipeline, start it again, and count the rows
	@.venv/bin/seamark demo $(ARGS)

test: .venv/servers.stamp $(CLASSES) ## run the tests, also those in one warm Spark
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -m "not warm and not spark and not slow and not chaos and not integration" $(ARGS)
	@$(RUN) pytest -n 2 --dist loadfile -m "warm and not spark and not slow and not chaos" $(WARM) $(ARGS)

test-spark: .venv/servers.stamp $(CLASSES) ## run the long tests: crashes at every I/O, real kills, a cluster, the demo
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -m "(spark or slow) and not chaos and not integration" $(ARGS)

integration: .venv/integration.stamp $(CLASSES) ## run the tests against a real Kafka, HDFS and S3 server; needs Maven and Go
	@$(RUN) pytest -m "integration and not chaos" $(ARGS)

matrix: .venv-oldest/test.stamp .venv/servers.stamp ## run the tests in Spark on the oldest and newest
	@.venv-oldest/bin/python -m pytest -m "warm and not chaos" $(WARM) $(ARGS)
	@$(RUN) pytest -n 2 --dist loadfile -m "warm and not chaos" $(WARM) $(ARGS)

chaos: .venv/servers.stamp .venv/integration.stamp $(CLASSES) ## run random histories and kills, with a new seed each time
	@SEAMARK_SEED=$${SEAMARK_SEED:-random} $(RUN) pytest -n 2 --dist worksteal -rP \
		-m "chaos and not warm and not spark and not integration" $(ARGS)
	@SEAMARK_SEED=$${SEAMARK_SEED:-random} $(RUN) pytest -rP \
		-m "chaos and (warm or spark or integration)" $(ARGS)

bench: .venv/servers.stamp ## run the benchmarks; results are ratios
	@set -e; for file in benchmarks/bench_*.py; do .venv/bin/python "$$file" $(ARGS); done

lint: .venv/test.stamp ## check style and formatting
	@$(RUN) ruff check $(SOURCES)
	@$(RUN) ruff format --check $(SOURCES)

types: .venv/test.stamp ## check the types
	@$(RUN) mypy

format: .venv/test.stamp ## format the code and fix what can be fixed
	@$(RUN) ruff format $(SOURCES)
	@$(RUN) ruff check --fix $(SOURCES)

SITE = NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs

docs: .venv/test.stamp ## build the documentation site and serve it on this machine
	@$(RUN) tools.site_pages build/docs
	@$(SITE) serve --dev-addr 127.0.0.1:$(or $(PORT),8000)

docs-check: .venv/test.stamp ## build the documentation site; a dead link or anchor is an error
	@$(RUN) tools.site_pages build/docs
	@$(SITE) build --strict --quiet
	@$(RUN) tools.check_site build/site

notebooks: .venv/test.stamp ## run the notebooks of the documentation again, and store what they print
	@set -e; for file in docs/*/*.ipynb; do TMPDIR=/tmp $(RUN) tools.run_notebook "$$file"; done

picture: .venv/demo.stamp ## run the demo and draw its end again for the README
	@$(RUN) tools.demo_picture docs/images/demo.svg

dist: .venv/test.stamp ## build wheel and sdist in dist/, and check that they install
	@$(RUN) tools.check_dist --uv "$(UV)"

# No address is written, so that the files hold for any mirror of the package index.
COMPILE = $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make constraints' pyproject.toml

constraints: ## choose the newest versions of all packages again; needs uv
	@test -n "$(UV)" || { echo "error: this needs uv; 'pip install uv' brings it" >&2; exit 1; }
	$(COMPILE) --extra all --extra java --group dev -o constraints/dev.txt
	$(COMPILE) --extra cli --extra spark --extra java --extra rocksdb --group build \
		-c constraints/dev.txt -o constraints/demo.txt
	echo 'pyspark==4.0.*' | $(COMPILE) --extra all --extra java --group dev \
		-c - -o constraints/oldest.txt

clean: ## remove .venv, caches and what the demo left
	rm -rf .venv .venv-oldest .venv*.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist demo
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# Every package is installed by version and hash; 'make constraints' chooses newer versions.
SET_UP = sh tools/check_python.sh $(PYTHON) && $(PYTHON) -m tools.environment --uv "$(UV)"

.venv/demo.stamp: pyproject.toml constraints/demo.txt
	@$(SET_UP) .venv constraints/demo.txt
	@touch $@

.venv/test.stamp: pyproject.toml constraints/dev.txt
	@$(SET_UP) .venv constraints/dev.txt
	@touch .venv/demo.stamp $@

.venv-oldest/test.stamp: pyproject.toml constraints/oldest.txt
	@$(SET_UP) .venv-oldest constraints/oldest.txt
	@touch $@

$(CLASSES): .venv/test.stamp
	@echo "Preparing Spark for the tests …"
	@$(RUN) tests.support.spark_classes >/dev/null 2>.venv/spark-classes.log || \
		echo "note: .venv/spark-classes.log says why Spark is not prepared; the tests take longer"

# What the tests need besides: Redis and PostgreSQL. Without them there is no stamp, so that each
# run says what it skips.
.venv/servers.stamp: | .venv/test.stamp
	@SERVERS="$(SERVERS)" $(RUN) tools.servers --stamp $@

# Kafka, HDFS, an S3 server, a browser and Prometheus. If one cannot be fetched there is no stamp, and each run
# says what it skips. The jar of HDFS follows the installed PySpark.
.venv/integration.stamp: tools/browser.py tools/kafka.py tools/hdfs.py tools/iceberg.py tools/prometheus.py \
		tools/versitygw.py .venv/test.stamp
	@SERVERS="$(SERVERS)" $(RUN) tools.integration --stamp $@
