# `make help` lists the targets. Everything runs in .venv, which is made from the pinned, hashed lists in requirements/
# on a machine that has Python 3.11 or newer, make and a C compiler. PYTHON=… chooses another interpreter.

VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
INTERPRETERS := python3.13 python3.12 python3.11 python3
JOBS := 1
IN_PARALLEL = $(if $(filter-out 1,$(JOBS)),-n $(JOBS))
# `make run` installs the broker alone; where the development packages are already there, it keeps them up to date.
SERVES := $(or $(wildcard $(VENV)/ready),$(VENV)/serves)
AT_LEAST := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check bench bench-kafka bench-amqp bench-rocketmq bench-client bench-cross bench-spark compat browser differential fuzz audit example lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(SERVES) ## start the broker; data in ./trimq-data; more flags: ARGS="--flush async"
	@exec $(BIN)/trimq serve --data-dir trimq-data $(ARGS)

test: $(VENV)/ready ## run the tests; on two processes: JOBS=2; more flags: ARGS="-k journal"
	$(BIN)/python -m pytest -m "not external" $(if $(IN_PARALLEL),$(IN_PARALLEL) --dist loadgroup) $(ARGS)

check: $(VENV)/ready ## ruff, mypy --strict, the layers and the shape of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py tests/test_shape.py

bench: $(VENV)/ready ## measure: one JSON line per figure, then a table
	$(BIN)/python -m bench $(ARGS)

bench-kafka: $(VENV)/ready ## measure beside a genuine Apache Kafka (Java, Maven; 20 minutes); see that it runs: ARGS=--quick
	$(BIN)/python -m bench.kafka $(ARGS)

bench-amqp: $(VENV)/ready ## measure beside a genuine RabbitMQ (from Debian's packages; 30 minutes); see that it runs: ARGS=--quick
	$(BIN)/python -m bench.amqp $(ARGS)

bench-rocketmq: $(VENV)/ready ## measure beside a genuine RocketMQ (Java, Maven; 30 minutes); see that it runs: ARGS=--quick
	$(BIN)/python -m bench.rocketmq $(ARGS)

bench-cross: $(VENV)/ready ## measure messages that cross from one protocol to another (1 minute); see that it runs: ARGS=--quick
	$(BIN)/python -m bench.cross $(ARGS)

bench-client: $(VENV)/ready ## measure our client beside confluent-kafka, pika and RocketMQ's C++ client; see that it runs: ARGS=--tiny
	$(BIN)/python -m bench.client $(ARGS)

bench-spark: $(VENV)/ready ## measure our source for Spark beside Spark's own Kafka connector (Java, Maven; 15 minutes); see that it runs: ARGS=--quick
	$(BIN)/python -m bench.spark $(ARGS)

# What these tests fetch and build stays in the user's cache folder (~/.cache/trimq), which make clean leaves alone.
compat: $(VENV)/ready ## run the tests that need Java with Maven, Node, Go, Rust or a Debian package; JOBS=2 as with test
	$(BIN)/python -m pytest -m external $(if $(IN_PARALLEL),$(IN_PARALLEL) --dist loadfile) $(ARGS)

browser: $(VENV)/ready ## run the tests of the console in Chromium (Debian's packages chromium, fonts-noto-cjk); part of compat
	$(BIN)/python -m pytest -m browser $(ARGS)

differential: $(VENV)/ready ## compare generated requests with the other brokers, a minute each: ARGS="kafka --seconds 3600"
	PYTHONPATH=tests $(BIN)/python -m differential $(ARGS)

fuzz: $(VENV)/ready ## send mutated client streams to each port, a minute each: ARGS="kafka http --seconds 3600 --seed 7"
	PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

audit: $(VENV)/ready ## look for known vulnerabilities of the pinned packages, and write bills of materials to build/
	$(BIN)/python -m tools.supply_chain $(ARGS)

example: $(VENV)/ready ## run examples/NAME.py against a broker of its own: NAME=e08_send_and_wait
	@$(BIN)/python -m examples.run $(NAME)

lock: $(UV) ## compile requirements/ anew
	$(LOCK) requirements/bootstrap.in --output-file requirements/bootstrap.txt
	$(LOCK) pyproject.toml $(SERVED_EXTRAS:%=--extra %) --output-file requirements/runtime.txt
	$(LOCK) pyproject.toml --all-extras requirements/dev.in --output-file requirements/dev.txt \
		--constraints requirements/bootstrap.txt --constraints requirements/runtime.txt

clean: ## remove what make made, except the broker's data
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Extras that `trimq serve` uses.
SERVED_EXTRAS := grpc oauth speed tls

# No index, link or host may enter a lock file: tests/test_locks.py looks.
LOCK = $(UV) pip compile --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# pip, which every virtual environment has, installs uv; uv, which is ten times faster, installs the rest.
$(UV): requirements/bootstrap.txt
	@python=$(PYTHON); \
	for name in $(INTERPRETERS); do \
		[ -n "$$python" ] && break; \
		if $$name -c '$(AT_LEAST)' 2>/dev/null; then python=$$name; fi; \
	done; \
	if [ -z "$$python" ] || ! $$python -c '$(AT_LEAST)' 2>/dev/null; then \
		echo "TriMQ needs Python 3.11 or newer: install it, or name it with make PYTHON=/path/to/python3." >&2; exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$python cannot make virtual environments: install its venv package (Debian: python3-venv)." >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$($$python --version)"; \
	$$python -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $(UV)

INSTALL_TRIMQ = $(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .

# Packages of the broker. Installs and never removes, so that it cannot undo $(VENV)/ready.
$(VENV)/serves: $(UV) requirements/runtime.txt pyproject.toml
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/runtime.txt
	@$(INSTALL_TRIMQ)
	@touch $@

# Those and the packages of tests, checks, benchmarks and examples (1.6 GB).
$(VENV)/ready: $(UV) requirements/dev.txt pyproject.toml
	@$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt requirements/bootstrap.txt
	@$(INSTALL_TRIMQ)
	@touch $@
