# The few verbs a person types. Each creates what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python

# Every verb below; none is a file.
.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help:                           ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip

$(VENV)/.base: $(BIN)/python setup.cfg
	$(BIN)/pip install -q -e '.[broker,faust]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@began=$$(date +%s); $(BIN)/pip install -q -e '.[dev]' && \
		echo "installed what the tests need in $$(($$(date +%s) - began)) s"
	@# As pip does with its packages: else each process of the first run compiles all tests anew.
	@$(PYTEST) --collect-only >/dev/null 2>&1 || true
	@touch $@

DEMO ?=
demo: $(VENV)/.base             ## real workers on the embedded broker, stock against ours; about two minutes on a quiet machine; DEMO=--exactly-once
	@rm -rf build/demo-ledger
	$(RUN) -m examples.orders.demo --ledger build/demo-ledger $(DEMO)

# Live tests mostly wait: three processes play them, and further ones compute meanwhile (tests/support/turns.py).
WORKERS ?= 4
# Bytecode is kept, whatever the environment says: else each process that a test starts compiles all it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --dist loadgroup --no-loadscope-reorder --durations 10
parts: $(VENV)/.dev
	@$(RUN) -m tests.support.parts

# Its live tests are short and compute little, so a fifth process fills the two cores.
test: WORKERS = 5
test: parts                     ## what people wait for: all rooms and the short live stories; Kafka and Spark where Java is
	@$(PYTEST) -n $(WORKERS) -m 'not slow'

test-all: parts                 ## all tests: every story on both brokers, all generated examples
	@FULL=1 $(PYTEST) -n $(WORKERS)

PYTHONS ?= python3.11 python3.12 python3.13
test-pythons:                   ## the unit tests on each of PYTHONS that is on PATH, each in its own environment
	@for python in $(PYTHONS); do \
		found=$$(command -v $$python) || { echo "$$python: not found"; continue; }; \
		home=build/pythons/$$($$found -c 'import sys; print(*sys.version_info[:2], sep=".")'); \
		echo "$$python: $$($$found --version)"; \
		{ test -x $$home/bin/pytest || { $$found -m venv $$home && \
			$$home/bin/pip install -q -e '.[dev]'; }; } && \
		$$home/bin/pytest -q -p no:cacheprovider tests/unit || exit 1; \
	done

check: $(VENV)/.dev             ## formatter, ruff, mypy --strict, import-linter, docs build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict

docs: $(VENV)/.dev              ## build the documentation into site/
	$(BIN)/mkdocs build --strict

dist: $(VENV)/.dev              ## sdist and wheel, checked, installed in a clean environment, the demo run from them
	$(RUN) -m tests.support.dist

kafka: $(VENV)/.base            ## fetch Apache Kafka with Maven, start it once, stop it
	$(RUN) -m faust_assigner.testing.kafka

SEEDS ?= 100000
sim-classic: $(VENV)/.dev       ## simulate SEEDS random lives of a classic group; a failure prints its seed and a short transcript
	$(RUN) -m tests.property.classic_sim --seeds $(SEEDS)

sim-consumer: $(VENV)/.dev      ## the same of a group that speaks KIP-848 and the classic protocol; first every life of a small group
	$(RUN) -m tests.property.consumer_sim --seeds $(SEEDS)
STORMS ?= 1000
sim-broker: $(VENV)/.dev        ## simulate STORMS storms on a whole broker with refused writes and restarts; a failure prints its seed and its last acts
	$(RUN) -m tests.property.broker_sim --seeds $(STORMS)
SERVICE_SEEDS ?= 10000
sim-service: $(VENV)/.dev       ## simulate SERVICE_SEEDS random lives of the assigner service; a failure prints its seed and its acts
	$(RUN) -m tests.property.service_sim --seeds $(SERVICE_SEEDS)

RUNS ?= 1
real-workers: $(VENV)/.dev kafka ## real workers on both brokers, ours beside stock; RUNS=20 for 20 runs in a row
	$(RUN) -m benchmarks.real_workers --runs $(RUNS)

faust-suite: $(VENV)/.dev       ## faust-streaming's own 2,585 tests with our assignor in the place of Faust's
	$(RUN) -m tests.suites.faust

WIRE_MEMBERS ?= 1024
WIRE_EXAMPLES ?= 50
wire: $(VENV)/.dev              ## Faust's four properties over the wire with WIRE_MEMBERS real apps
	WIRE_MEMBERS=$(WIRE_MEMBERS) WIRE_EXAMPLES=$(WIRE_EXAMPLES) $(BIN)/pytest -q -o timeout=7200 \
		--hypothesis-show-statistics tests/integration/app/test_assignor_wire.py

FUZZ_EXAMPLES ?= 20000
fuzz: $(VENV)/.dev              ## any bytes as user_data: FUZZ_EXAMPLES of each kind; Hypothesis prints a failing one
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/pytest -q -o timeout=14400 --hypothesis-show-statistics \
		tests/property/test_fuzz_userdata.py

SCENARIOS ?= 10000
simulate: $(VENV)/.dev          ## SCENARIOS churn scenarios on local[2] with the settings table; under build/simulate
	$(BIN)/faust-assigner simulate --scenarios $(SCENARIOS) --seed 1 --out build/simulate --master 'local[2]'

bench: bench-planner bench-assign ## the planner up to 1M partitions and Faust's assign(), beside stock and aiokafka

SPARKS ?=
spark-matrix: $(VENV)/.dev      ## history, stream and weights on each supported Spark, Connect and a cluster; SPARKS="3.5 connect"
	$(RUN) -m tests.support.spark_matrix $(SPARKS)

YEAR ?=
bench-history: $(VENV)/.dev     ## a year of history added day by day: the last day against day 10; YEAR="--days 30 --compare --seed 2"
	$(RUN) -m benchmarks.history_year $(YEAR)

bench-simulate: $(VENV)/.dev    ## scenarios through mapInPandas beside a pool of processes, both warm
	$(RUN) benchmarks/simulate.py

bench-assign: $(VENV)/.dev      ## Faust's assign() at up to 1,000 x 10,000, ours beside stock
	$(RUN) benchmarks/assign.py

KEYS ?= 1000000
recovery-bench: $(VENV)/.dev kafka ## recovery of a table: stock, batched, snapshot, local; KEYS=, BENCH="--broker embedded --direct"
	$(RUN) -m benchmarks.recovery --keys $(KEYS) $(BENCH)
	$(RUN) -m benchmarks.compaction --keys $(KEYS)
	$(RUN) -m benchmarks.replay --records $(KEYS)

CHAIN ?=
snapshot-bench: $(VENV)/.dev    ## 24 snapshots upon each other against whole ones: bytes, restore times, rows; CHAIN="--records 1000000 --keys 200000"
	$(RUN) -m benchmarks.snapshot_chain $(CHAIN)

NEWEST := build/host-newest
host-newest:                    ## the newest faust-streaming and aiokafka beyond our pins: what we touch, the app's unit tests; weekly
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/pip install -q '.[broker,faust]' confluent-kafka hypothesis pytest pytest-asyncio pytest-rerunfailures pytest-timeout
	$(NEWEST)/bin/pip install -q --upgrade faust-streaming aiokafka
	$(NEWEST)/bin/python -m faust_assigner.app.host.check
	$(NEWEST)/bin/python -m pytest -q tests/unit/app

BROKER ?= embedded
GUARANTEE ?= at_least_once
soak: ROUNDS = 20
soak: $(VENV)/.dev              ## random faults on real workers, tables and outputs against the model; BROKER=, ROUNDS=, SEED=, GUARANTEE=
	$(RUN) -m tests.soak.run --broker $(BROKER) --guarantee $(GUARANTEE) --rounds $(ROUNDS) --seed $(SEED)

EVENTS ?= 100
BUSY ?= 0
journals: BROKER = kafka
journals: $(VENV)/.dev kafka    ## EVENTS overlapping events on real workers, both guarantees, who processed what when; BROKER=, SEED=, BUSY= processes beside
	$(RUN) -m tests.soak.journals --broker $(BROKER) --events $(EVENTS) --seed $(SEED) --busy $(BUSY)

windows: BROKER = kafka
windows: $(VENV)/.dev kafka     ## EVENTS starts, SIGTERMs and SIGKILLs of workers that close windows, both guarantees, against a model; BROKER=, SEED=
	$(RUN) -m tests.soak.journals --windows --broker $(BROKER) --events $(EVENTS) --seed $(SEED)

JOINS ?= 25
joins: $(VENV)/.dev             ## JOINS joins of a second worker beside ten busy processes, dynamic and static: 0 frozen; BROKER=, SEED=
	$(RUN) -m tests.soak.joins --broker $(BROKER) --joins $(JOINS) --seed $(SEED)

POINTS ?= 50
SPARK_KILLS ?= 10
history-kills: $(VENV)/.dev     ## SIGKILL of history at POINTS random steps and SPARK_KILLS times on Spark; its store against a run from nothing; SEED=
	$(RUN) -m tests.soak.history_kills --points $(POINTS) --spark $(SPARK_KILLS) --seed $(SEED)

KILLS ?= 200
kills: $(VENV)/.dev             ## KILLS times SIGKILL of the embedded broker under three client libraries, with compaction, against a model; SEED=
	$(RUN) -m tests.soak.kills --kills $(KILLS) --seed $(SEED)

shrink: $(VENV)/.dev            ## 1,000,000 updates of 10,000 keys: a compacted topic shrinks beside a reader and heartbeats; SEED=
	$(RUN) -m tests.soak.shrink --seed $(SEED)

CHAOS_S ?= 600
chaos: $(VENV)/.dev             ## CHAOS_S seconds of faults on the assigner service, etcd and consumers; a sink compares epochs; SEED=
	$(RUN) -m tests.soak.chaos --seed $(SEED) --seconds $(CHAOS_S)

SEED ?= 1
INSTANCES ?= 10000
exactness: $(VENV)/.dev         ## the planner's target against the oracles on random instances; INSTANCES=, SEED=
	$(RUN) -m tests.property.exactness $(INSTANCES) $(SEED)

ROUNDS ?= 1000000
walk: $(VENV)/.dev              ## random lives of a group, every promise checked each round; ROUNDS=, SEED=
	$(RUN) -m tests.property.walk $(ROUNDS) $(SEED)

ROOM ?=
COUNT ?= 30
mutate: $(VENV)/.dev            ## draw faults at random by SEED and plant them; ROOM=app/recovery COUNT=30, or BASE=main for changed files; LIVE=--live for stories too
	$(RUN) -m tests.mutants.generated $(addprefix --room ,$(ROOM)) $(addprefix --changed ,$(BASE)) --count $(COUNT) --seed $(SEED) $(LIVE)

bench-planner: $(VENV)/.dev     ## plan() up to 1M partitions x 2,000 members, beside its core and aiokafka
	$(RUN) benchmarks/planner.py

bench-standbys: $(VENV)/.dev    ## standbys: time, evenness, restores, worst deaths; fresh, join, leave
	$(RUN) benchmarks/standbys.py --large

bench-rebalance: $(VENV)/.dev kafka ## rebalances of both protocols beside Apache Kafka: 10 to 1,000 members, slow sockets, records a second
	$(RUN) -m benchmarks.rebalance --records --crowd

bench-broker: $(VENV)/.dev kafka ## the embedded broker beside Apache Kafka: records a second, rebalance times, latencies
	$(RUN) -m benchmarks.broker

SUITE ?= confluent
PROTOCOL ?= classic
suites: BROKER = ours
suites: $(VENV)/.dev kafka      ## a client's own tests on our broker or Kafka; SUITE=, SOURCES=its checkout, PROTOCOL=, BROKER=ours|kafka
	$(RUN) -m tests.suites.run $(SUITE) --sources $(SOURCES) --protocol $(PROTOCOL) --broker $(BROKER)

bench-service: $(VENV)/.dev     ## the assigner service: memory, latency; one of three instances ends at 1k, 20k, 100k partitions; SCALE="--sizes ..."
	$(RUN) -m benchmarks.service
	$(RUN) -m benchmarks.service_scale $(SCALE)
	$(RUN) -m benchmarks.service_turns

GAPS ?=
bench-gaps: $(VENV)/.dev kafka  ## what each change of a group costs: stock, eager, cooperative, Kafka Streams; 15 minutes; GAPS="--rounds 3 ..."
	$(RUN) -m benchmarks.gaps $(GAPS)

BEFORE ?=
attack-broker: $(VENV)/.dev kafka ## what strangers can do to a broker: ours, BEFORE=CHECKOUT of it, Apache Kafka
	$(RUN) -m benchmarks.broker_attacks $(if $(BEFORE),--before $(BEFORE))
