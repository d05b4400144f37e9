# Every entry point of the project. Each target sets up what it needs; a second run starts at once.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := src tests bench conformance tools

.DEFAULT_GOAL := help
.PHONY: help demo test check broker gateway package lint docs format reference screenshots bench conformance lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="..."    passes options on: make demo ARGS="--seconds 30"'

demo: $(READY) ## See events flow: embedded PostgreSQL, NATS and Spark; Ctrl-C ends it
	@$(BIN)/headgate demo $(ARGS)

# Three at a time on two cores: servers that start and stop are waited for, and leave them idle.
test: $(READY) ## Run every test, with real servers
	@$(BIN)/pytest --cache-clear -n 3 --dist loadfile --no-loadscope-reorder $(ARGS) || $(BIN)/python -m tests.again $$?

check: lint ## Lint and the tests that need no server: for the inner loop
	@$(BIN)/pytest -q -n 2 -m "not spark" tests/unit $(ARGS)

# Those of a version that is neither Debian's 15 nor embedded (16, 18) are fetched with Maven: 14 and 17.
broker: $(READY) ## Run the broker's tests on one server: make broker SERVER=14 (to 18), or SERVER=/usr/lib/postgresql/17
	@export HEADGATE_TEST_BROKER=$(or $(SERVER),15); $(BIN)/pytest --cache-clear -n 2 --dist loadfile \
		--no-loadscope-reorder tests/integration/broker $(ARGS) || $(BIN)/python -m tests.again $$?

gateway: $(READY) ## Run the gateway's tests on one server: make gateway SERVER=14 (to 18), or a directory, or a URL
	@export HEADGATE_TEST_POSTGRES=$(or $(SERVER),15); $(BIN)/pytest --cache-clear -n 2 --dist loadfile \
		--no-loadscope-reorder $(patsubst %,tests/integration/%,commitlog gateway_store gateway groups log shadow) $(ARGS) \
		|| $(BIN)/python -m tests.again $$?

package: $(READY) ## Install the wheel into empty environments, one for each extra, and use it there
	@$(BIN)/python -m tests.package $(ARGS)

lint: $(READY) ## Check style, types and the boundaries between packages
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy $(CODE)
	@$(BIN)/lint-imports
	@! grep -n '://' requirements.lock
	@$(MAKE) --no-print-directory docs

# With --quiet, warnings would be neither shown nor counted.
docs: $(READY) ## Build the site of the documentation in site/; a link that leads nowhere ends it
	@said=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$said"; exit 1; }

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

reference: $(READY) ## Write the reference pages in docs/reference anew, from the code
	@$(BIN)/python -m tools.reference

screenshots: $(READY) ## Take the pictures of the dashboard in docs/img anew, from a demo; needs chromium
	@$(BIN)/python -m tools.screenshots

bench: $(READY) ## Measure; for one of them: make bench ARGS="pipeline --quick"
	@$(BIN)/python -m bench $(ARGS)

conformance: $(READY) ## Run other projects' test programs against the gateway; the first time takes half an hour
	@$(BIN)/python -m conformance $(ARGS)

lock: $(READY) ## Pin the dependencies anew, with hashes
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --extra all --group dev pyproject.toml -o requirements.lock

clean: ## Remove the virtual environment, the demo's data and caches
	@rm -rf $(VENV) site .headgate .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# The lock is complete, so nothing is resolved: pip asks for the newest release of what it names with an extra.
$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "headgate needs Python 3.11 or newer: apt-get install python3 python3-venv"; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version) (once; about three minutes)"
	@$(PYTHON) -m venv $(VENV) || { echo "Python lacks venv: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/headgate warm 2>/dev/null || true
	@touch $(READY)
