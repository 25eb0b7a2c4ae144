# `make demo` and `make test` set up all they need in .venv, from the lock file, and nothing outside it.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test test-postgres test-nodes lint format bench bench-full bench-quick soak interop wheel lock clean

demo: $(READY)
	@$(BIN)/muniment demo $(DEMO_OPTIONS)

# A file of tests runs in one process, so that what it sets up is set up once, and the files in their order: the last
# ones are short. Three processes, since a third of their time they wait for timers and for other processes.
SPREAD := -n 3 --dist loadfile --no-loadscope-reorder

test: $(READY)
	@$(BIN)/python -m pytest $(SPREAD) $(TEST_OPTIONS)

# With a real PostgreSQL and a real S3 server, which the tests start on loopback: storages, nodes killed and stopped at
# each step, storms.
test-nodes: $(READY)
	MUNIMENT_TEST_SERVERS=1 $(BIN)/python -m pytest $(TEST_OPTIONS) \
	  tests/tlog/test_storage.py tests/tlog/test_object_storage.py tests/memory/test_backup_places.py tests/nodes

# The tests that are of no one engine, on PostgreSQL: tests/memory/on_postgres.txt names them, and those that are not.
test-postgres: $(READY)
	MUNIMENT_TEST_ENGINE=postgres $(BIN)/python -m pytest $(SPREAD) $(TEST_OPTIONS) \
	  $$(sed -n 's/^run  *//p' tests/memory/on_postgres.txt)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# BENCH=quick runs each once and small, to see that it runs. A line that begins with - ends with 1 where something
# came out wrong, which is its result.
bench: $(if $(filter quick,$(BENCH)),bench-quick,bench-full)

bench-full: $(READY)
	$(BIN)/python benchmarks/chat_import.py
	-$(BIN)/python benchmarks/guard_cases.py
	-$(BIN)/python benchmarks/guard_sentences.py
	$(BIN)/python benchmarks/recall_notes.py > $(VENV)/notes.json
	$(BIN)/python benchmarks/recall.py --notes $(VENV)/notes.json
	$(BIN)/python benchmarks/recall_rates.py
	$(BIN)/python benchmarks/erase_rates.py
	$(BIN)/python benchmarks/log_rates.py
	$(BIN)/python benchmarks/log_hammer.py
	$(BIN)/python benchmarks/witness_rates.py
	$(BIN)/python benchmarks/surface_rates.py
	$(BIN)/python benchmarks/http_rates.py
	$(BIN)/python benchmarks/service_rates.py
	$(BIN)/python benchmarks/audit_rates.py
	$(BIN)/python benchmarks/write_rates.py
	$(BIN)/python benchmarks/scale_rates.py --facts 1000 10000
	$(BIN)/python benchmarks/shared_log_rates.py
	$(BIN)/python benchmarks/node_rates.py
	$(BIN)/python benchmarks/tenant_rates.py --tenants 100
	$(BIN)/python benchmarks/peers.py $(PEERS_OPTIONS)

bench-quick: $(READY)
	$(BIN)/python benchmarks/chat_import.py --conversations 1
	head -n 12 tests/vectors/guard_cases.jsonl > $(VENV)/cases.jsonl
	-$(BIN)/python benchmarks/guard_cases.py --alone $(VENV)/cases.jsonl
	-$(BIN)/python benchmarks/guard_sentences.py
	$(BIN)/python benchmarks/recall_styles.py diary > $(VENV)/notes.json
	$(BIN)/python benchmarks/recall_notes.py > /dev/null
	$(BIN)/python benchmarks/recall.py --conversations 1 --notes $(VENV)/notes.json
	$(BIN)/python benchmarks/recall_rates.py --sizes 300 --queries 20
	$(BIN)/python benchmarks/erase_rates.py --facts 400 --rounds 1 --batch 20
	$(BIN)/python benchmarks/log_rates.py --entries 300 --rounds 1 --seconds 1 --proofs 20 --only-ours
	$(BIN)/python benchmarks/log_hammer.py --seconds 15
	$(BIN)/python benchmarks/witness_rates.py --rounds 1 --seconds 1 --only-ours
	$(BIN)/python benchmarks/surface_rates.py --rounds 1 --calls 5 --alone
	$(BIN)/python benchmarks/http_rates.py --facts 30 --calls 5 --rounds 1
	$(BIN)/python benchmarks/service_rates.py --requests 30
	$(BIN)/python benchmarks/audit_rates.py --facts 100
	$(BIN)/python benchmarks/write_rates.py --clients 2 --rounds 1 --writes 20
	$(BIN)/python benchmarks/scale_rates.py --facts 100 --calls 5
	$(BIN)/python benchmarks/shared_log_rates.py --entries 2000 --batch 256 --publish-every 1000
	$(BIN)/python benchmarks/node_rates.py --facts 40 --tenants 4 --nodes 1 2
	$(BIN)/python benchmarks/tenant_rates.py --facts 20 --tenants 4 --nodes 1 2 --calls 8
	$(BIN)/python benchmarks/peers.py --facts 20 --calls 2 --rounds 1 --only

# On the disk, where the tests of `make test` write to memory.
soak: export TMPDIR := $(or $(TMPDIR),/tmp)
soak: $(READY)
	test $(or $(SOAK_MINUTES),30) -lt 10 || \
	  MUNIMENT_CRASH_ROUNDS=200 $(BIN)/python -m pytest tests/tlog/test_log_crash.py -k random
	test $(or $(SOAK_MINUTES),30) -lt 60 || \
	  MUNIMENT_ERASE_GRID=full $(BIN)/python -m pytest tests/memory/test_erase_grid.py tests/memory/test_erase_guess_force.py tests/memory/test_erase_residue.py
	test $(or $(SOAK_MINUTES),30) -lt 10 || \
	  HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -o timeout=1800 \
	    $(addprefix tests/memory/test_,stateful.py canon.py guard.py timeline.py http_document.py) \
	    tests/tlog/test_scrapi.py
	test $(or $(SOAK_MINUTES),30) -lt 30 || $(BIN)/python tests/soak_nodes.py --rounds 20
	$(BIN)/python tests/soak.py --minutes $$(awk 'BEGIN { print 0.6 * $(or $(SOAK_MINUTES),30) }')
	$(BIN)/python tests/soak_witness.py --minutes $$(awk 'BEGIN { print 0.4 * $(or $(SOAK_MINUTES),30) }')

interop: $(READY)
	$(BIN)/python tests/interop/run.py

wheel: $(READY)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --output-file requirements.lock

clean:
	rm -rf $(VENV) dist build *.egg-info

# Three tries: a network that fails once must not lose a set-up.
$(READY): requirements.lock pyproject.toml .ci/find-python
	@python=$$(sh .ci/find-python) || exit 1; \
	 echo "setting up $(VENV) with $$python (once)" >&2; \
	 "$$python" -m venv --clear $(VENV) || exit 1; \
	 for try in 1 2 3; do \
	   $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock && ok=1 && break; \
	   echo "install failed, try $$try of 3" >&2; sleep $$((try * 5)); \
	 done; \
	 [ "$$ok" = 1 ] || exit 1; \
	 $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable . || exit 1; \
	 touch $(READY)
