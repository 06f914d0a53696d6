#!/bin/sh
# Checks the tools that cargo requires: lists missing ones with their Debian packages.
#
#   setup.sh run    tools of the build
#   setup.sh test   also tools of the tests; as root on Debian, missing packages are installed
#   setup.sh system also the servers of `make system`, likewise
#   setup.sh dist   also tools of release builds
#
# `cargo xtask ci` installs what cargo and rustup can install (nightly, Miri).
set -eu
cd "$(dirname "$0")/.."
# apt-get runs programs of /sbin, which a clean environment may not have in PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

mode=${1:-}
needed=
wanted=
failed=0

main() {
    case $mode in
    run) need_compiler ;;
    test | system)
        need_compiler
        need git git # lists the files for the tidy test
        want c++ g++ # libFuzzer; the part of `make soak` is skipped without it
        # Third-party clients, and the Prometheus module; the parts are skipped without them.
        want curl curl
        want go golang-go
        want_python
        # The web UI and its browser tests; skipped without them.
        want node nodejs
        want npm npm
        want chromium chromium
        want fio fio # generates block I/O
        # Targets of the load generator, and tools of the journal tests; skipped without them.
        want redis-server redis-server
        want_postgresql
        want strace strace
        # They read the packages that `cargo xtask packages` wrote; skipped without them.
        want rpm rpm
        want minisign minisign
        want mkfs.ext4 e2fsprogs
        [ "$mode" = test ] || want_observed_servers
        ;;
    dist)
        need_compiler
        need node nodejs # the web UI, which a released binary contains
        need npm npm
        # zig, the C compiler for both targets, is a package of PyPI.
        [ -n "${TOPDECK_ZIG:-}" ] || need_python
        want qemu-aarch64-static qemu-user-static # runs the aarch64 binary; skipped without it
        ;;
    *)
        echo "usage: $0 run|test|system|dist" >&2
        exit 2
        ;;
    esac
    provide_packages
    check_rust
    exit "$failed"
}

# need PROGRAM PACKAGE: required
need() {
    command -v "$1" >/dev/null || lack "$1" "$2"
}

# want PROGRAM PACKAGE: optional; something is skipped without it
want() {
    command -v "$1" >/dev/null && return
    echo "missing: $1 (Debian package $2)" >&2
    wanted="$wanted $2"
}

# Debian packages Python without the module venv.
want_python() {
    has_python && return
    echo "missing: python3 with venv (Debian package python3-venv)" >&2
    wanted="$wanted python3-venv"
}

# Servers that the part wire observes, and their clients; what lacks one is skipped.
want_observed_servers() {
    want mariadbd mariadb-server-core
    want mysqlslap mariadb-client
    want nginx nginx
    want wrk wrk
    want openssl openssl
}

is_testing() {
    [ "$mode" = test ] || [ "$mode" = system ]
}

# Debian installs PostgreSQL's programs outside PATH.
want_postgresql() {
    for program in /usr/lib/postgresql/*/bin/initdb $(command -v initdb); do
        [ -x "$program" ] && return
    done
    echo "missing: PostgreSQL (Debian package postgresql)" >&2
    wanted="$wanted postgresql"
}

has_python() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

need_python() {
    has_python || lack "python3 with venv" python3-venv
}

# A compiler may lack the headers and start files of the C library, so link a program.
need_compiler() {
    need cc gcc
    if ! can_link; then
        lack "the C library's headers" libc6-dev
    fi
}

can_link() {
    command -v cc >/dev/null && echo '#include <stdio.h>
int main(void) { return puts("") < 0; }' | cc -x c -o /dev/null - 2>/dev/null
}

# lack WHAT PACKAGE
lack() {
    echo "missing: $1 (Debian package $2)" >&2
    needed="$needed $2"
}

provide_packages() {
    packages="$needed$wanted"
    if [ -z "$packages" ]; then
        return
    fi
    if is_testing && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_packages
        return
    fi
    echo "install with: apt-get install$packages" >&2
    if [ -n "$needed" ]; then
        failed=1
    fi
}

# A package that the distribution lacks (chromium is a snap on Ubuntu) must not prevent the others.
install_packages() {
    # shellcheck disable=SC2086 # one word per package
    if apt_install $packages; then
        return
    fi
    apt-get update
    # shellcheck disable=SC2086
    if [ -n "$needed" ] && ! apt_install $needed; then
        failed=1
    fi
    for package in $wanted; do
        apt_install "$package" || echo "not installed: $package; dependent tests are skipped" >&2
    done
}

# The tests start the servers: policy-rc.d prevents packages from starting them.
apt_install() {
    echo "installing: $*" >&2
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=$policy
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
    status=$?
    [ -z "$made" ] || rm -f "$made"
    return "$status"
}

check_rust() {
    if ! command -v cargo >/dev/null && ! command -v rustup >/dev/null; then
        fail "missing: Rust; install it (https://rustup.rs; curl is in the Debian package curl) with:
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
  . \"\$HOME/.cargo/env\""
        return
    fi
    provide_toolchain && check_version && provide_components
}

# rustup may be installed without a toolchain.
provide_toolchain() {
    cargo --version >/dev/null 2>&1 && return
    if ! command -v rustup >/dev/null; then
        fail "cannot run cargo: $(cargo --version 2>&1)"
        return 1
    fi
    echo "installing: the stable toolchain" >&2
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt &&
        rustup default stable ||
        { fail "cannot install the stable toolchain with rustup"; return 1; }
}

# The minimum version is that of Cargo.toml.
check_version() {
    need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(rustc --version | cut -d ' ' -f 2)
    oldest=$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)
    if [ "$oldest" != "$need" ]; then
        if command -v rustup >/dev/null; then
            fail "Rust $have is too old; topdeck requires $need; update with: rustup update stable"
        else
            fail "Rust $have is too old; topdeck requires $need; install a newer one (https://rustup.rs)"
        fi
        return 1
    fi
}

# Formatter and linter are used by the tests only.
provide_components() {
    is_testing || return 0
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    if command -v rustup >/dev/null; then
        echo "installing: rustfmt and clippy" >&2
        rustup component add rustfmt clippy && return
    fi
    fail "missing: rustfmt or clippy; install with: rustup component add rustfmt clippy"
}

fail() {
    echo "$1" >&2
    failed=1
}

main
