# omq: `make run` shows the whole at work, `make test` proves it. See README.md.
#
#   make setup              the environment in .venv, at the versions of constraints.txt; compiles
#                           the fast path if there is a C compiler (gcc, python3-dev)
#   make setup-dev          the same and what tests and lint need; make test does it
#   make run                real mail through an instance of its own; N=2000 CRASH=1 STANDBY=1, and
#                           OMQ_DEMO_MAIL=path (MAIL is the login shell's)
#   make test               the tests that a person waits for, in parts side by side, at most ten
#                           minutes on two free processors; ARGS="tests/unit -k names" to choose,
#                           ARGS=--collect-only to see what it would run
#   make quick              after an edit, at most 20 s of processor: ruff and the tests nearest to what
#                           changed, with and without the compiled fast path; SINCE=main
#   make test-all           all tests: Spark (JRE 17), whole machines and power cuts (root), too
#   make lint               ruff, mypy strict, the words (spelling, and the project's own list)
#   make check              the same, and the tidy tests
#   make analytics          a generated archive on Spark: tables, audit, report (needs a JRE 17)
#   make crash              the power-cut simulator with fresh seeds for HOURS=1, then storms, fuzzing
#                           and real file systems (root, loop devices); REPLAY="plain 7 120 all"
#   make bench              speed and memory, as a table and JSON
#   make setup-peers        Redis, PostgreSQL, RabbitMQ, beanstalkd and Postfix into build/peers,
#                           nothing into the system; what the next two need
#   make bench-peers        omq compared with them, in turns: tables, JSON, picture, PERFORMANCE.md
#   make bench-tasks        omq, Redis and RabbitMQ as brokers of Celery and dramatiq: rates, what faults lose
#   make bench-aims         every other aim of PERFORMANCE.md, with its peer where it has one
#   make bench-spark        speed of the analytics, as ratios within one run; LONG=1 for 10 M messages
#   make wheel              dist/omq_base-*.whl and omq_suite-*.whl, to be installed together
#   make wheels             omq-base with the fast path compiled, a manylinux wheel for each of
#                           PYTHONS (3.11 to 3.14 in PATH); needs gcc and python3-dev of each
#   make sdist              dist/omq_base-*.tar.gz (all of this) and omq_suite-*.tar.gz
#   make sbom               dist/omq-VERSION.cdx.json: what is in an installation (CycloneDX)
#   make bench-network      clients of AMQP compared with native ones, idle ones, and at RabbitMQ
#   make hashes             requirements.txt anew from constraints.txt, with hashes from the index
#   make deb                dist/omq_VERSION_ARCH.deb, for the machine's own Python; compiled;
#                           dist/omq-mta_VERSION_all.deb, for who wants omq to be the host's sendmail
#                           where make setup could
#   make dictionary         lib/omq/docs/DATA-DICTIONARY.md anew: the columns of the analytics
#   make manual             manual pages and completions in share/, anew from the parsers
#   make release            all of these into dist, with checksums, and a check of them; as root also
#                           in a bare Debian 12
#   make claims             every number of README, PERFORMANCE, SECURITY, NETWORK and its command
#   make docs               the site: build/docs/index.html, its links checked (groff)
#   make pictures           the pictures of the README anew: the console and omtop (chromium)
#   make clean              takes away what these made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
DEV_STAMP := $(VENV)/.setup-dev-done
SPARK_STAMP := $(VENV)/.setup-spark-done
FAST_STAMP := $(VENV)/.setup-fast-done
PEERS_STAMP := build/peers/.setup-done
ANALYTICS ?= build/analytics
# mypy takes the name of a module from its folder: it sees omqtools as it is installed.
TOOLS := build/typed/omqtools
TYPED := lib/omq $(TOOLS) tests examples
PERFORMANCE := lib/omq/docs/PERFORMANCE.md

.PHONY: claims quick setup setup-dev setup-spark setup-peers bench-peers bench-tasks bench-network bench-aims run test test-all lint check crash analytics manual dictionary bench bench-spark wheel wheels sdist release-tools sbom hashes deb release pictures docs clean

# What nobody needs is built quietly, and the end of make says in one line what could not be.
OPTIONAL := tools/optional $(VENV)
TOLD = code=$$?; $(OPTIONAL) told; exit $$code

setup: $(STAMP) $(FAST_STAMP)
	@$(OPTIONAL) told

# A package folder that appears later must be made known, hence the __init__ files.
# setuptools comes first and builds without isolation: then its version is pinned like all others.
$(STAMP): pyproject.toml setup.py lib/omq/cli/programs.py constraints.txt $(wildcard tools/*/__init__.py recovery/*/__init__.py spark/*/__init__.py)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "omq needs Python 3.11 or\
	 newer, this is " + sys.executable + " " + sys.version.split()[0] + "; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--no-build-isolation --editable '.[suite,web]'
	$(BIN)/python -W error -c 'import omq.base.checksum'
	touch $@

# The fast path as C where there is a compiler (Debian: gcc, python3-dev); else it runs interpreted.
# Neither Cython nor a compiler is needed for anything.
$(FAST_STAMP): $(STAMP) setup_compiled.py lib/omq/base/shim.py $(wildcard lib/omq/fast/*.py lib/omq/fast/*.pxd)
	@$(OPTIONAL) try 'the compiled fast path (apt-get install gcc python3-dev)' sh -ec \
		'$(BIN)/python -m pip install --quiet --constraint constraints.txt cython; \
		$(BIN)/python setup_compiled.py --required'
	touch $@

# What tests and lint need besides. No test imports most of it: what one does import is compiled then.
setup-dev: $(DEV_STAMP) $(FAST_STAMP)
	@$(OPTIONAL) told

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt \
		--no-build-isolation --editable '.[suite,dev]'
	@$(OPTIONAL) try 'python-qpid-proton, for clients of AMQP (apt-get install gcc python3-dev libssl-dev)' \
		$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt python-qpid-proton
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --no-deps axe-playwright-python
	touch $@

# What only the analytics of the archive needs: pyspark and what draws, about 1 GB.
setup-spark: $(SPARK_STAMP) $(FAST_STAMP)

$(SPARK_STAMP): $(DEV_STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--no-build-isolation --editable '.[suite,dev,spark]'
	touch $@

ifeq ($(origin MAIL),command line)
$(error your own mail is named by OMQ_DEMO_MAIL=$(MAIL): login shells set MAIL)
endif

run: $(STAMP) $(FAST_STAMP)
	@$(BIN)/python -m tests.demo; $(TOLD)

# Tests that are named run by themselves, whatever they take; tests/long.py has the rule for the rest.
test: $(DEV_STAMP) $(FAST_STAMP)
ifeq ($(ARGS),--collect-only)
	@OMQ_SHARE=$$($(BIN)/python -c 'from tests.long import SHARE; print(SHARE)') $(BIN)/python -m pytest -p tests.parts --only quick --collect-only -q; $(TOLD)
else ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS); $(TOLD)
else
	@$(BIN)/python -m tests.parts --only quick; $(TOLD)
endif

# ARGS=network: only those with this word.
claims: $(STAMP)
	@$(BIN)/python -m tests.claims $(ARGS)

SINCE ?= HEAD

quick: $(DEV_STAMP) $(FAST_STAMP)
	@$(BIN)/python -m tests.quick --since $(SINCE)

test-all: setup-spark
	@$(BIN)/python -m tests.parts $(ARGS); $(TOLD)

lint: setup-spark
	$(BIN)/ruff check .
	rm -rf $(TOOLS) && mkdir -p $(TOOLS)
	ln -s $(abspath lib/omqtools/__init__.py $(wildcard tools/omq* recovery/omq* spark/omq*)) $(TOOLS)
	$(BIN)/mypy $(TYPED)
	$(BIN)/python -m tests.words

check: lint
	$(BIN)/python -m pytest --quiet tests/tidy

# The planted faults must all be found, so the audit's exit code 1 is the right one here.
analytics: setup-spark
	rm -rf $(ANALYTICS)
	mkdir -p $(ANALYTICS)
	$(BIN)/python -m tests.made --to $(ANALYTICS)/made --messages 100000 --faults 2
	$(BIN)/omq-spark run --archive $(ANALYTICS)/made/archive --out $(ANALYTICS)/tables
	$(BIN)/omq-spark audit --archive $(ANALYTICS)/made/archive --out $(ANALYTICS)/tables \
		--pool $(ANALYTICS)/made; test $$? -eq 1
	$(BIN)/python -m tests.made.truth $(ANALYTICS)/made/truth.json $(ANALYTICS)/tables/audit.json
	$(BIN)/omq-spark report --out $(ANALYTICS)/tables

HOURS ?= 0.1

# Fresh seeds; see lib/omq/docs/CRASH-SAFETY.md. Ends with an error when the promise was broken.
crash: setup-dev
ifdef REPLAY
	$(BIN)/python -m tests.crash.sim.run --replay $(REPLAY)
else
	$(BIN)/python -m tests.crash.sim.run --hours $(HOURS)
	$(BIN)/python -m tests.model.lives
	$(BIN)/python -m tests.model.mutants
	$(BIN)/python -m tests.forms.mutants
	$(BIN)/python -m tests.forms.sanitized 10000000
	OMQ_AMQP_FRAMES=1000000 $(BIN)/python -m pytest tests/process/test_amqp_hostile.py tests/process/test_channel_fuzz.py -k mutated
	OMQ_CRASH_LONG=1 $(BIN)/python -m pytest -s tests/crash/daemons $(ARGS)
endif

manual: setup
	$(BIN)/python -m omq.cli.manual .

# The documents, the API and the manual pages as a site that needs no network.
# Only the packages of the extra: omq itself is not installed anew below tests that run.
EXTRA := -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]])'

docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python $(EXTRA) docs | sed 's/[<>][^ ]*//g')
	$(BIN)/python tools/docs/build_site.py build/docs

# The console and omtop as the README shows them; apt-get install chromium-headless-shell.
pictures: setup-dev
	$(BIN)/python -m tests.process.pictures lib/omq/docs/pictures

# Every column of the tables, its type and meaning, of the tables of a small run.
dictionary: setup-spark
	rm -rf build/dictionary
	mkdir -p build
	$(BIN)/python -m tests.made --to build/dictionary --messages 100 --stories 1 >/dev/null
	$(BIN)/omq-spark run --archive build/dictionary/archive --out build/dictionary/tables >/dev/null
	$(BIN)/python -m omqtools.omqspark.dictionary build/dictionary/tables >build/dictionary.md
	mv build/dictionary.md lib/omq/docs/DATA-DICTIONARY.md

# Clients of AMQP compared with native ones; needs python-qpid-proton.
bench-network: setup-peers
	$(BIN)/python -m tests.bench.network
	$(BIN)/python -m tests.bench.network_idle
	$(BIN)/python -m tests.bench.network_peers
	$(BIN)/python -m tests.bench.amqp091_peers

bench: setup-dev
	$(BIN)/python tests/bench/bench.py $(ARGS)

# Debian's packages are unpacked, not installed: no service starts, and root is not needed.
setup-peers: $(PEERS_STAMP) $(FAST_STAMP)

$(PEERS_STAMP): $(DEV_STAMP) tests/bench/peers/software.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--no-build-isolation --editable '.[suite,dev,peers]'
	$(BIN)/python -m tests.bench.peers.software
	touch $@

bench-peers: setup-peers
	$(BIN)/python -m tests.bench.peers.bench_peers --json build/bench-peers.json \
		--plot build/bench-peers.png --document $(PERFORMANCE) $(ARGS)

# Brokers of Celery; power is cut on a file system of our own: root, and FUSE.
bench-tasks: setup-peers
	$(BIN)/python -m tests.bench.tasks.bench_tasks --document $(PERFORMANCE) $(ARGS)
	$(BIN)/python -m tests.bench.tasks.bench_tasks --library dramatiq \
		--document $(PERFORMANCE) $(ARGS)

bench-aims: setup-peers
	$(BIN)/python -m tests.bench.aims.bench_aims --json build/bench-aims.json \
		--peers build/bench-peers.json --document $(PERFORMANCE) $(ARGS)

bench-spark: setup-spark
	$(BIN)/python -m tests.bench.analytics

wheel: setup
	rm -rf build/lib build/bdist.* tools/suite/build dist/omq_*.whl
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist . ./tools/suite

BACKEND := -c 'import sys, setuptools.build_meta as made; made.build_sdist(sys.argv[1])'

sdist: setup
	rm -f dist/omq_*.tar.gz
	mkdir -p dist
	$(BIN)/python $(BACKEND) dist
	cd tools/suite && $(CURDIR)/$(BIN)/python $(BACKEND) $(CURDIR)/dist

release-tools: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--no-build-isolation --editable '.[suite,release]'

# The same with the fast path compiled, for each of PYTHONS (those of 3.11 to 3.14 in PATH).
wheels: sdist release-tools
	tools/wheels $(BIN) dist $(PYTHONS)

sbom: wheel release-tools
	tools/sbom $(BIN) dist

hashes: release-tools
	tools/hashes $(BIN) requirements.txt

deb: wheel
	tools/debian/build $(BIN)/pip requirements.txt dist dist/omq_*.whl

# In this order: sbom and deb take the wheels for all. What is older in dist would be published with it.
release: setup-dev release-tools
	rm -rf dist
	$(MAKE) --no-print-directory sdist
	$(MAKE) --no-print-directory sbom deb
	tools/wheels $(BIN) dist $(PYTHONS)
	tools/release sums dist
	tools/release check dist
	tools/release bare dist || test $$? -eq 75

clean:
	rm -rf $(VENV) lib/omq/compiled build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis lib/*.egg-info *.egg-info tools/suite/*.egg-info tools/suite/build
	find lib tools tests recovery spark -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
