# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed

.PHONY: demo test fuzz sweep score bench lint clean

demo: $(SETUP)
	$(BIN)/python examples/train_digits.py

test: $(SETUP)
	$(BIN)/python -m pytest -n 2 tests

# Random programs for SECONDS, from SEED, or on from where the last run ended.
SECONDS ?= 60
fuzz: $(SETUP)
	cd tests && ../$(BIN)/python -m fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Every sample in every element type: between others that fuse with it, and beside forbidden memory.
sweep: $(SETUP)
	SWEEP=whole $(BIN)/python -m pytest -n 2 tests/sweep/test_sweep_surrounded.py tests/sweep/test_sweep_guarded.py

# Twenty faults planted one by one: which the suite sees, and which random programs see.
score: $(SETUP)
	$(BIN)/python tests/tools/score.py

bench: $(SETUP)
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m benchmarks
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m benchmarks.ops
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m benchmarks.derivatives
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m benchmarks.compile_times

lint: .venv/.linted
	$(BIN)/ruff check .
	$(BIN)/mypy rlx_py examples benchmarks

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(SETUP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test,examples]"
	touch $@

.venv/.linted: $(SETUP)
	$(BIN)/python -m pip install --quiet --editable ".[lint]"
	touch $@
