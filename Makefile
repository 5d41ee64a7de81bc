# `make run` and `make test` make .venv in the checkout; a second call finds it there.

PYTHON ?= $(shell for p in python3.11 python3; do \
    "$$p" -c 'import venv' >/dev/null 2>&1 && echo "$$p" && break; done)
BIN := .venv/bin
# `make run` needs ketal alone; the tests bring a broker and Spark, which are large.
INSTALLED := .venv/.installed
READY := .venv/.ready
PYTEST_ARGS ?=

# What is in the wheel, some of it compiled by mypyc (setup.py), and how to run with that.
SOURCES = $(shell find -L ketal -type f ! -name '*.pyc') setup.py
WITH_COMPILED = PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/build/compiled:$(CURDIR)"

.PHONY: run test long compiled test-compiled lint format bench chaos clean

# A bug in a replicated stack, found while it runs.
run: $(INSTALLED)
	$(BIN)/ketal demo

# Each worker and each child of a test loads ketal: from its bytecode, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	$(BIN)/python -m pytest -n 5 --dist loadgroup $(PYTEST_ARGS)

# All tests again, and whole what `make test` samples: many other random cases of each property, real
# logs in 200 random arrival orders, all executions in all five ways.
long: export KETAL_LONG = 1
long: test

# A wheel of ketal, compiled, in dist/; it needs a C compiler.
compiled: build/compiled

# What asks for answers of the engine, of the compiled one.
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

# The faults of a streaming job: so many kills of the process engine for each kind of output, a fifth
# as many of the Spark driver, and others in proportion; `make test` makes one or two of each. It
# ends with what was counted.
chaos: export KETAL_CHAOS ?= 50
chaos: $(READY)
	$(BIN)/python -m pytest tests/streaming/kafka/test_process_faults.py \
	    tests/streaming/spark/test_faults.py tests/streaming/kafka/test_poison.py \
	    tests/streaming/kafka/test_consumers.py $(PYTEST_ARGS)

# What is measured, by hand only; `make bench BENCH=table` writes the table of README.md, and
# BENCH_ARGS are the arguments of one of them (docs/benchmarks.md).
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

# The build runs in .venv too, so that constraints.txt holds for setuptools as well.
$(INSTALLED): pyproject.toml constraints.txt
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt pip setuptools
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e .
	touch $(INSTALLED)

$(READY): $(INSTALLED)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $(READY)
