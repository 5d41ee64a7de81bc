# `make run` and `make test` create .venv in the checkout and reuse it.

PYTHON ?= $(shell for p in python3.11 python3; do \
    "$$p" -c 'import venv' >/dev/null 2>&1 && echo "$$p" && break; done)
BIN := .venv/bin
# `make run` installs only ketal; the tests also install a Kafka broker and Spark, which are large.
INSTALLED := .venv/.installed
READY := .venv/.ready
PYTEST_ARGS ?=

# The sources of the compiled wheel (setup.py), and the environment that runs it.
SOURCES = $(shell find -L ketal -type f ! -name '*.pyc') setup.py
WITH_COMPILED = PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/build/compiled:$(CURDIR)"

.PHONY: run test long compiled test-compiled lint format bench chaos clean

# Find a bug in a replicated stack while the stack runs.
run: $(INSTALLED)
	$(BIN)/ketal demo

# Write bytecode even if the environment forbids it: every worker and child process imports ketal.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	$(BIN)/python -m pytest -n 5 --dist loadgroup $(PYTEST_ARGS)

# All tests, without the sampling of `make test`: many more random cases of each property, real logs
# in 200 random arrival orders, all executions evaluated in all five ways.
long: export KETAL_LONG = 1
long: test

# Build a compiled wheel of ketal in dist/; this requires a C compiler.
compiled: build/compiled

# Run the tests that evaluate the engine with the compiled engine.
test-compiled: build/compiled
	$(WITH_COMPILED) KETAL_COMPILED=1 $(BIN)/python -m pytest -n 5 --dist loadgroup \
	    -o pythonpath="build/compiled ." tests/test_compiled.py tests/test_corpus.py \
	    tests/test_real_logs.py tests/test_semantics.py tests/engine tests/operators \
	    tests/property tests/runtime tests/explanation \
	    --deselect tests/engine/test_planted_faults.py $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Inject faults into streaming jobs: KETAL_CHAOS kills of the process engine for each kind of output,
# a fifth as many of the Spark driver, and other faults in proportion; `make test` injects one or two
# of each. The run ends with a report of what was injected.
chaos: export KETAL_CHAOS ?= 50
chaos: $(READY)
	$(BIN)/python -m pytest tests/streaming/kafka/test_process_faults.py \
	    tests/streaming/spark/test_faults.py tests/streaming/kafka/test_poison.py \
	    tests/streaming/kafka/test_consumers.py $(PYTEST_ARGS)

# Run the benchmarks; `make bench BENCH=table` writes the table of README.md. BENCH_ARGS are the
# arguments of a single benchmark (docs/benchmarks.md).
BENCH ?= table clocks tracing domains finds hold_back long_run process_engine saved_state several_consumers spark_engine
bench: build/compiled
	for name in $(BENCH); do \
	    $(WITH_COMPILED) $(BIN)/python -m "benchmarks.$$name" $(BENCH_ARGS) || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache

build/compiled: $(READY) $(SOURCES)
	rm -rf build dist/ketal-*.whl
	KETAL_COMPILED=1 $(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps -w dist .
	$(BIN)/python -m pip install --quiet --no-deps --target build/compiled dist/ketal-*.whl

# The build also runs in .venv, so that constraints.txt applies to setuptools too.
$(INSTALLED): pyproject.toml constraints.txt
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt pip setuptools
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e .
	touch $(INSTALLED)

$(READY): $(INSTALLED)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $(READY)
