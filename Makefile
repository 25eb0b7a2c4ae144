# `make demo` and `make test` set up all they need in .venv, from the lock file, and nothing outside it.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.PHONY: demo test test-postgres test-nodes lint format bench soak interop wheel lock clean

demo: $(READY)
	@$(BIN)/muniment demo $(DEMO_OPTIONS)

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(TEST_OPTIONS)

# With a real PostgreSQL and a real S3 server, which the tests start on loopback: storages, nodes killed and stopped at
# each step, storms.
test-nodes: $(READY)
	MUNIMENT_TEST_SERVERS=1 $(BIN)/python -m pytest $(TEST_OPTIONS) \
	  tests/tlog/test_storage.py tests/tlog/test_object_storage.py tests/nodes

# The tests that are of no one engine, on PostgreSQL: tests/memory/on_postgres.txt names them, and those that are not.
test-postgres: $(READY)
	MUNIMENT_TEST_ENGINE=postgres $(BIN)/python -m pytest -n 2 --dist loadgroup $(TEST_OPTIONS) \
	  $$(sed -n 's/^run  *//p' tests/memory/on_postgres.txt)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/chat_import.py
	$(BIN)/python benchmarks/guard_cases.py
	$(BIN)/python benchmarks/guard_sentences.py
	$(BIN)/python benchmarks/erase_rates.py
	$(BIN)/python benchmarks/log_rates.py
	$(BIN)/python benchmarks/log_hammer.py
	$(BIN)/python benchmarks/witness_rates.py
	$(BIN)/python benchmarks/surface_rates.py
	$(BIN)/python benchmarks/audit_rates.py
	$(BIN)/python benchmarks/write_rates.py
	$(BIN)/python benchmarks/scale_rates.py --facts 1000 10000

soak: $(READY)
	test $(or $(SOAK_MINUTES),30) -lt 10 || \
	  MUNIMENT_CRASH_ROUNDS=200 $(BIN)/python -m pytest tests/tlog/test_log_crash.py -k random
	test $(or $(SOAK_MINUTES),30) -lt 60 || \
	  MUNIMENT_ERASE_GRID=full $(BIN)/python -m pytest tests/memory/test_erase_grid.py tests/memory/test_erase_guess_force.py
	test $(or $(SOAK_MINUTES),30) -lt 10 || \
	  HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -o timeout=1800 \
	    $(addprefix tests/memory/test_,stateful.py canon.py guard.py timeline.py)
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
