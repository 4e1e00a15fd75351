# Every target sets up what it needs. `make demo` and `make test` work on a fresh clone; `make help` lists the rest.

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
LOWEST := $(CURDIR)/.venv-lowest
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONFIG := $(CURDIR)/dizoo/classic_control/cartpole/config/cartpole_dqn_config.py

# Stamps: .full is the whole development set-up, .demo only what training and pictures need.
FULL := $(VENV)/.full
DEMO := $(VENV)/.demo

.DEFAULT_GOAL := help
.PHONY: help setup demo test check smoke fix package bench gate stale lines mutate simulate learn learn-short fuzz fuzz-seed chaos chaos-short test-slow test-lowest test-learning test-chaos ray-short test-ray test-gpu test-namespaces browser docs docs-serve clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(FULL) ## make .venv with everything that developing needs

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(FULL): setup.py constraints.txt | $(BIN)/pip
	$(PIP) install -q -c constraints.txt -e ".[classic,viz,ray,seed,robotics,offline,profile,docs,notebook,test]"
	@touch $(DEMO) $(FULL)

$(DEMO): setup.py constraints.txt | $(BIN)/pip
	$(PIP) install -q -c constraints.txt -e ".[classic,viz]"
	@touch $(DEMO)

demo: $(DEMO) ## train CartPole to the end
	$(BIN)/ding -m serial -c $(CONFIG) -s 0

test: $(FULL) ## run the suite that CI runs
	$(BIN)/pytest -n 2

check: $(FULL) ## lint, format and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

smoke: $(FULL) ## one short run of each pipeline, in a temporary folder
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cd "$$folder" && \
	$(BIN)/ding -m serial -c $(CONFIG) -s 0 --env-step 2000 --exp-name smoke && \
	test -s smoke/result.json && echo "smoke: serial ok" && \
	$(BIN)/ding -m serial_onpolicy -e cartpole -p ppo -s 0 --env-step 2000 --exp-name smoke_onpolicy && \
	test -s smoke_onpolicy/result.json && echo "smoke: serial_onpolicy ok"

package: $(FULL) ## build the sdist and the wheel, and train with the wheel in an empty environment
	$(BIN)/pytest -m slow tests/packages

fix: $(FULL) ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(FULL) ## measure the package
	$(BIN)/python -m benchmarks

gate: $(FULL) ## measure the speed beside the last released commit, for some minutes; fails below 0.85 of it
	$(BIN)/python -m benchmarks.gate

stale: $(FULL) ## list recordings that are old beside what they depend on, and how to make them again
	$(BIN)/python -m benchmarks.stale

lines: $(FULL) ## count the lines of code and the wording faults of each room
	$(BIN)/python -m tests.architecture.lines ding_like && $(BIN)/python -m tests.architecture.lines tests

# In a clone: Cosmic Ray writes each mutant into the sources that it tests.
mutate: $(FULL) ## mutate a file and run tests on each mutant: make mutate FILE=ding_like/rl_utils/td.py TESTS=tests/rl_utils
	$(PIP) install -q "cosmic-ray>=8.4,<9"
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git clone -q . "$$folder" && cd "$$folder" && \
	export PATH="$(BIN):$$PATH" PYTHONPATH="$$folder" && \
	printf '[cosmic-ray]\nmodule-path = "%s"\ntimeout = 300.0\nexcluded-modules = []\ntest-command = "%s"\n[cosmic-ray.distributor]\nname = "local"\n' \
	    "$(FILE)" "python -m pytest -q -x $(TESTS)" > mutate.toml && \
	cosmic-ray init mutate.toml mutate.sqlite && cosmic-ray exec mutate.toml mutate.sqlite && cr-report --show-diff --surviving-only mutate.sqlite

learn-short: $(FULL) ## train DQN and PPO on CartPole for a minute
	$(BIN)/pytest -n 2 -m learning_short --timeout 900

learn: $(FULL) ## train what docs/results.md shows and is not recorded yet, for hours; ONLY="hopper_*" names what
	$(BIN)/python -m tests.learning.learn $(ONLY)

test-lowest: ## run the suite with the oldest versions that setup.py allows (torch apart), in a .venv-lowest of its own
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -c constraints-lowest.txt -e ".[viz,server,ray,seed,profile,notebook,test]"
	$(LOWEST)/bin/pytest -n 2

test-slow: $(FULL) ## tests over a second; TESTS="tests/policy tests/envs" names those that concern a change (CONTRIBUTING.md)
	$(BIN)/pytest -n 2 -m "slow and not ray and not namespaces" --timeout 600 $(TESTS)

test-learning: $(FULL) ## training until a recorded band is reached
	$(BIN)/pytest -m learning --timeout 3600

test-chaos: $(FULL) ## kills, hangs and torn files at random
	$(BIN)/pytest -m chaos --timeout 3600

chaos-short: $(FULL) ## kill, pause, spoil and garble parallel runs for some minutes
	$(BIN)/python -m tests.chaos --short

chaos: $(FULL) ## the same for an hour, with partitions and full disks (root); writes docs/reports/chaos_*.json
	$(BIN)/python -m tests.chaos

fuzz: $(FULL) ## made-up requests to a coordinator, for ten minutes
	$(BIN)/python -m tests.comm.rest.hostile.test_fuzz

fuzz-seed: $(FULL) ## malformed messages to the sockets of central inference, for five minutes; writes docs/reports/seed_fuzz.json
	$(BIN)/python -m tests.comm.zmq.hostile.test_fuzz

simulate: $(FULL) ## a million simulated operations with faults of all kinds, by seeds; about a quarter of an hour
	$(BIN)/python -m tests.simulation --operations 1000000

ray-short: $(FULL) ## what needs a Ray cluster and takes seconds; .ci/run does
	$(BIN)/pytest -m "ray and not slow" --timeout 120

test-ray: $(FULL) ## all that needs a Ray cluster
	$(BIN)/pytest -m ray --timeout 600

test-namespaces: $(FULL) ## runs over several hosts, as network namespaces; needs root and iproute2
	$(BIN)/pytest -m namespaces --timeout 600

test-gpu: $(FULL) ## on a CUDA device
	$(BIN)/pytest -m gpu --timeout 600

browser: $(FULL) ## the page of a run in Chromium, which is to be installed (apt-get install chromium)
	$(PIP) install -q "playwright>=1.49,<2"
	$(BIN)/pytest -m slow --timeout 300 tests/entry/test_page_browser.py

# mkdocs-material tells of a successor of mkdocs at every build; the pin in setup.py is where that is decided.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(FULL) ## build the site of the docs into site/; every warning is an error
	$(BIN)/mkdocs build --strict

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: $(FULL) ## show the site on http://127.0.0.1:8000 while it is written
	$(BIN)/mkdocs serve

clean: ## remove .venv and caches
	rm -rf $(VENV) $(LOWEST) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
