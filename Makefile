# Every target does its own set-up, once, into .venv. Nothing needs to be activated.

VENV  := .venv
STAMP := $(VENV)/.set-up
BIN   := $(VENV)/bin

# Spark starts its Python workers with PYSPARK_PYTHON, and Java from JAVA_HOME as found by the set-up.
# Another Spark or other packages on the machine must not shine through.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
unexport SPARK_HOME PYTHONPATH PYTHONHOME PYSPARK_DRIVER_PYTHON
WITH_JAVA = JAVA_HOME="$$(cat $(VENV)/java_home)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak check bench figures clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## make .venv with the locked dependencies (needs Python 3.11+ and Java 17+; installs them as root on Debian)

demo: $(STAMP)  ## join live streams on this machine and show what happens
	$(WITH_JAVA) $(BIN)/watersmeet demo

test: $(STAMP)  ## run all tests, in three processes side by side
	$(WITH_JAVA) bash scripts/test.sh $(BIN)/python

soak: $(STAMP)  ## thousands of generated scenarios, long runs and drivers killed at random, about an hour; WATERSMEET_EXAMPLES=2000
	$(WITH_JAVA) bash scripts/soak.sh $(BIN)/python

check: $(STAMP)  ## formatting, lint, types and import layers, as CI does before the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## time us against Spark's own stream-stream joins
	$(WITH_JAVA) $(BIN)/python -m benchmarks.native_spark

figures: $(STAMP)  ## draw the papers' figures anew, with their claims checked (about 20 minutes on two cores)
	$(BIN)/python -m benchmarks.figures.spill_throughput --jobs 2
	$(WITH_JAVA) $(BIN)/python -m benchmarks.figures.on_spark
	$(BIN)/python -m benchmarks.figures.relocation --jobs 2
	$(BIN)/python -m benchmarks.figures.optimizer_settings --jobs 2
	$(BIN)/python -m benchmarks.figures.resource_settings --jobs 2
	$(BIN)/python -m benchmarks.figures.migration_lengths --jobs 2
	$(BIN)/python -m benchmarks.figures.migration_output --jobs 2
	$(BIN)/python -m benchmarks.figures.migration_at_run_time --jobs 2

clean:  ## remove .venv, caches and build products
	rm -rf $(VENV) build dist src/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock scripts/setup.sh
	@bash scripts/setup.sh
