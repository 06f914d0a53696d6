#!/bin/sh
# Installs the topdeck agent on this host, from the server that served this script. As root:
#
#   curl … | sh                    install, or update what is installed
#   curl … | sh -s -- --dry-run    print each step, change nothing
#   curl … | sh -s -- uninstall    remove all of it
#
# It fetches the program for this host from the server, verifies its SHA-256, and runs
# `topdeck install`, which does the rest; other options are passed to it. All commands are in
# functions, and the last line calls them: a script that was cut does nothing.
set -eu

server='@SERVER@'
pin='@PIN@'
token='@TOKEN@'
sha256sums='@SHA256SUMS@'

main() {
    case "${1:-}" in
    uninstall)
        shift
        uninstall "$@"
        ;;
    *) install_agent "$@" ;;
    esac
}

die() {
    echo "topdeck: $1" >&2
    exit 1
}

# The directory of --root.
root_of() {
    while [ $# -gt 0 ]; do
        case "$1" in
        --root=*)
            echo "${1#--root=}"
            return
            ;;
        --root)
            echo "${2:-}"
            return
            ;;
        esac
        shift
    done
}

uninstall() {
    program=$(root_of "$@")/usr/local/bin/topdeck
    [ -x "$program" ] || die "cannot uninstall: $program does not exist; nothing is installed"
    "$program" uninstall "$@" </dev/null
}

install_agent() {
    [ "$(uname -s)" = Linux ] || die "cannot install on $(uname -s): topdeck runs on Linux only"
    needs_root=yes
    for argument in "$@"; do
        case "$argument" in
        --dry-run | --root | --root=* | --help) needs_root=no ;;
        esac
    done
    if [ "$needs_root" = yes ] && [ "$(id -u)" != 0 ]; then
        die "cannot install without root; put sudo before sh: curl … | sudo sh"
    fi
    machine=$(uname -m)
    case "$machine" in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    esac
    sum=$(echo "$sha256sums" | sed -n "s/  topdeck-$machine\$//p")
    [ -n "$sum" ] || die "cannot install on $machine: the server $server has no program for it; \
build one with \`make dist\` and name its directory as \`binaries\` in [install] of the server"

    directory=$(mktemp -d) || die "cannot make a directory for temporary files; set TMPDIR"
    trap 'rm -rf "$directory"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    program=$directory/topdeck
    fetch "$server/v1/install/topdeck-$machine" "$program"
    verify "$sum" "$program"
    chmod 755 "$program"
    "$program" --version >/dev/null 2>"$directory/error" || explain_start

    set -- install --server "$server" "$@"
    [ -z "$pin" ] || set -- "$@" --pin "$pin"
    if [ -n "$token" ]; then
        TOPDECK_ENROLLMENT_TOKEN=$token
        export TOPDECK_ENROLLMENT_TOKEN
    fi
    status=0
    "$program" "$@" </dev/null || status=$?
    exit "$status"
}

# fetch URL FILE: the checksum, not the connection, proves that the file is the server's.
fetch() {
    status=0
    if command -v curl >/dev/null 2>&1; then
        set -- "$1" "$2" curl -fsS --connect-timeout 20 -o "$2"
        [ -z "$pin" ] || set -- "$@" -k --pinnedpubkey "$pin"
    elif command -v wget >/dev/null 2>&1; then
        set -- "$1" "$2" wget -q -O "$2"
        # That of busybox has no --tries, and 1.35 crashes with -T.
        case "$(wget --version 2>/dev/null)" in
        GNU*) set -- "$@" -T 20 --tries=2 ;;
        esac
        [ -z "$pin" ] || set -- "$@" --no-check-certificate
    else
        die "cannot fetch the program: neither curl nor wget is installed; install one of them"
    fi
    url=$1
    file=$2
    shift 2
    "$@" "$url" 2>"$directory/error" || status=$?
    [ "$status" = 0 ] && return
    error=$(tail -n 1 "$directory/error" 2>/dev/null || true)
    # Statuses of an error response, and of a file that cannot be written.
    case "$1 $status" in
    'curl 22' | 'wget 8')
        die "cannot fetch $url: ${error:-error response}; the server says why at this address"
        ;;
    'curl 23' | 'wget 3') explain_space "$error" ;;
    esac
    rm -f "$file"
    echo 0123456789abcdef 2>/dev/null >"$file" && [ -s "$file" ] || explain_space "$error"
    die "cannot fetch $url: ${error:-$1 failed with status $status}; \
check that this host reaches $server"
}

explain_space() {
    die "cannot write to $directory: ${1:-no space}; free space there, or set TMPDIR to a \
directory on another disk"
}

# verify SUM FILE
verify() {
    if command -v sha256sum >/dev/null 2>&1; then
        found=$(sha256sum <"$2")
    elif command -v openssl >/dev/null 2>&1; then
        found=$(openssl dgst -sha256 -r <"$2")
    else
        die "cannot verify the program: neither sha256sum nor openssl is installed; install one"
    fi
    found=${found%% *}
    [ "$found" = "$1" ] || die "cannot install: the program from $server has the SHA-256 $found, \
expected $1; the download was damaged, or the server was updated meanwhile: run the command again"
}

explain_start() {
    error=$(head -n 1 "$directory/error")
    die "cannot run the program of the server here: ${error:-it ends with an error}; \
if it was built for another C library, name the directory of \`make dist\` as \`binaries\` in \
[install] of the server; if $directory is mounted noexec, set TMPDIR to another directory"
}

main "$@"
