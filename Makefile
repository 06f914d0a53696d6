# Thin: each line below is a command one could type. The work is in xtask/ (`cargo xtask --help`).

# rustup puts cargo here; a clean environment or a fresh login may not have it in PATH.
CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
ifeq ($(filter $(CARGO_BIN),$(subst :, ,$(PATH))),)
export PATH := $(CARGO_BIN):$(PATH)
endif

# What `make run` gives to topdeck: `make run ARGS="hist --help"`.
ARGS ?= serve

.PHONY: help run test ci conformance bench soak dist

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8

run: ## build topdeck and start it with ARGS
	@sh xtask/setup.sh run
	@cargo xtask page
	cargo run --release --locked -p topdeck -- $(ARGS)

test: ## install or name what is missing, then check everything; CI runs this
	@sh xtask/setup.sh test
	cargo xtask ci

ci: test ## the same as test

conformance: ## what Prometheus answers, held against what topdeck does
	@sh xtask/setup.sh test
	cargo xtask conformance

bench: ## comparisons with other libraries, side by side in one run
	@sh xtask/setup.sh run
	cargo run --release --manifest-path bench/Cargo.toml --locked

soak: ## the long checks: ten minutes per fuzz target, loom without bound
	@sh xtask/setup.sh test
	cargo xtask soak

dist: ## static binaries with debug information, completions and man pages, into target/dist
	@sh xtask/setup.sh dist
	cargo xtask dist
