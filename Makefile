# Thin: each line below is a command one could type. The work is in xtask/ (`cargo xtask --help`).

# rustup puts cargo here; a clean environment or a fresh login may not have it in PATH.
CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
ifeq ($(filter $(CARGO_BIN),$(subst :, ,$(PATH))),)
export PATH := $(CARGO_BIN):$(PATH)
endif

# As `cargo xtask`, with the features that all crates together request, so that `make test` compiles
# each dependency once.
XTASK := cargo run --quiet --locked --bin xtask --

# What `make run` gives to topdeck: `make run ARGS="hist --help"`.
ARGS ?= serve

# Parts of `make test`, `make system`, `make soak` or `make bench`; all if not given:
# `make test PART="fmt build"`.
PART ?=

.PHONY: help run test system soak fresh bench dist

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8

run: ## build topdeck and start it with ARGS
	@sh xtask/setup.sh run
	@# Without Node.js, xtask would be compiled only to say so.
	@if command -v node >/dev/null; then $(XTASK) page; else echo "the web UI is not built, and" \
		"topdeck will have none unless web/dist is there: Node.js 20.19 or newer is not" \
		"installed (Debian package nodejs)" >&2; fi
	[ -e web/dist/index.html ] || export TOPDECK_WITHOUT_PAGE=1; \
		cargo run --profile quick --locked -p topdeck -- $(ARGS)

test: ## install or name what is missing, then check everything; CI runs this
	@sh xtask/setup.sh test
	$(XTASK) ci $(PART)

system: ## real peers and clusters, minutes each: make system PART=prometheus
	@sh xtask/setup.sh system
	$(XTASK) system $(PART)

soak: ## the long checks, hours: ten minutes per fuzz target, loom without bound
	@sh xtask/setup.sh test
	$(XTASK) soak $(PART)

fresh: ## the README's two commands in a bare Debian root, as a user and as root
	sh xtask/fresh.sh

bench: ## comparisons with peers, side by side in one run: make bench PART=path
	@sh xtask/setup.sh run
	[ -e web/dist/index.html ] || export TOPDECK_WITHOUT_PAGE=1; \
		cargo build --release --locked -p topdeck
	cargo run --release --manifest-path bench/Cargo.toml --locked -- \
		$(if $(PART),--insert $(addprefix --only ,$(PART)))

dist: ## static binaries, completions, man pages and packages of them, into target/dist
	@sh xtask/setup.sh dist
	$(XTASK) dist
	$(XTASK) packages
