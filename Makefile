# Thin calls of scripts/*; everything lives in .venv at the root.
#
#   make run                 install, start the bundled model on port 8080, send one sample request
#   make run ARGS=--once     the same, then exit
#   make test                quick tier (<= 10 min on 2 cores)
#   make test-slow           full counts, fuzzing, packaging (<= 30 min)
#   make check               lint, format, types, import rules, docs drift
#   make oracle              parity with outside implementations, in environments of their own
#   make bench               writes benchmarks/latest.json
#   make proof               full counts, by hand; figures go to docs/log.md
#
# PyTorch: TORCH names the requirement and TORCH_INDEX, when set, the package index it is taken from.
# The default index may hand out a CUDA build of several GB; the index for CPU builds is on PyTorch's
# own "get started" page:   make run TORCH_INDEX=<that index>
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PORT ?= 8080
ARGS ?=
export PYTHON TORCH TORCH_INDEX PORT

.PHONY: run test test-slow proof check docs bench oracle clean

run:
	@scripts/install run
	@scripts/run $(ARGS)

test:
	@scripts/install dev
	@scripts/test $(ARGS)

test-slow:
	@scripts/install dev
	@scripts/test-slow $(ARGS)

proof:
	@scripts/install dev
	@scripts/proof $(ARGS)

check:
	@scripts/install dev
	@scripts/check

docs:
	@scripts/install dev
	@scripts/docs $(ARGS)

bench:
	@scripts/install dev
	@scripts/bench $(ARGS)

oracle:
	@scripts/install dev
	@scripts/oracle $(ARGS)

clean:
	rm -rf .venv .oracle build .pytest_cache .ruff_cache .hypothesis
