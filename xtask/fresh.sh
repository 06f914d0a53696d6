#!/bin/sh
# `make fresh`: tests the commands of the README on a bare system. Creates a bare Debian root,
# clones the last commit into it, and runs both commands of the README as an unprivileged user;
# then, as root, `make run` and the tests that need root. Requires root on Debian, and mmdebstrap;
# takes at most 45 minutes.
#
# To avoid downloads, the Rust toolchains and the caches of package managers are mounted read-only,
# and Debian packages come from the mirror of this machine. The boot time is one minute ago, by a
# time namespace, if the kernel supports it.
set -eu
cd "$(dirname "$0")/.."

suite=trixie
dir=/var/tmp/topdeck-fresh
root=$dir/root
steps=$dir/steps.txt
failed=0

main() {
    if [ "${1:-}" = inside ]; then
        inside
    fi
    check_tools
    mkdir -p "$dir"
    # A second run would delete the root of the first.
    exec 9>"$dir.lock"
    flock --nonblock 9 || fail "another make fresh runs, in $dir"
    rm -rf "$dir"
    mkdir -p "$dir"
    : >"$steps"
    started=$(date +%s)
    step "a bare Debian root ($suite)" make_root
    step "the commit $(git rev-parse --short HEAD), cloned" make_clone
    # In separate namespaces: mounts and processes always end with it.
    export TOPDECK_FRESH_INSIDE_ROOT="$root" TOPDECK_FRESH_STEPS="$steps"
    unshare --mount --pid --fork --kill-child --ipc --uts $(time_namespace) \
        sh "$0" inside || failed=1
    echo
    echo "make fresh: Debian $suite, $(date -u +%F), commit $(git rev-parse --short HEAD)"
    cat "$steps"
    echo "$(($(date +%s) - started)) s in total"
    exit "$failed"
}

check_tools() {
    [ "$(id -u)" = 0 ] || fail "make fresh makes namespaces and mounts: run it as root"
    command -v mmdebstrap >/dev/null ||
        fail "mmdebstrap is missing: apt-get install mmdebstrap debian-archive-keyring"
    [ -z "$(git status --porcelain)" ] ||
        echo "warning: uncommitted changes are ignored: make fresh tests the last commit" >&2
}

# The clock offset that sets the uptime to one minute.
time_namespace() {
    up=$(cut -d . -f 1 /proc/uptime)
    if unshare --time --boottime 0 true 2>/dev/null; then
        echo "--time --boottime $((60 - up)) --monotonic $((60 - up))"
    else
        echo "note: no time namespaces: the uptime is that of this machine" >&2
    fi
}

# Requirements of the README: Debian and a C compiler. git and make are needed to get the code.
make_root() {
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,gcc,git,libc6-dev,make \
        "$suite" "$root" || return 1
    # Name resolution and CA certificates of this machine.
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        [ -e "$file" ] && cp -L "$file" "$root$file"
    done
    chroot "$root" useradd --create-home --shell /bin/bash dev
}

make_clone() {
    git clone --quiet --no-hardlinks . "$root/home/dev/topdeck"
    chroot "$root" chown -R dev:dev /home/dev/topdeck
}

# The functions below run in the namespaces.

inside() {
    root=$TOPDECK_FRESH_INSIDE_ROOT
    steps=$TOPDECK_FRESH_STEPS
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t tmpfs -o mode=0755 tmpfs "$root/run"
    mount_caches
    note "uptime: $(cut -d ' ' -f 1 "$root/proc/uptime") s; processors: $(nproc)"
    step "as dev: make run, to the page that answers" run_and_ask dev
    step "as root: packages that the tests need" as root 'sh xtask/setup.sh test'
    step "as dev: make test" as dev 'make test'
    step "as root: make run, to the page that answers" run_and_ask root
    step "as root: the tests that need rights" as root 'cargo xtask ci build test timing'
    exit "$failed"
}

# Avoids downloads.
mount_caches() {
    cargo=${CARGO_HOME:-$HOME/.cargo}
    share "${RUSTUP_HOME:-$HOME/.rustup}" /opt/rustup
    share "$cargo/bin" /opt/cargo/bin
    # Without src: it contains files that only the owner can read, and cargo unpacks it again.
    for part in index cache; do
        share "$cargo/registry/$part" "/opt/cargo/registry/$part"
    done
    if command -v go >/dev/null; then
        share "$(go env GOMODCACHE)" /opt/go
    fi
    for user in dev root; do
        home=$(chroot "$root" sh -c "echo ~$user")
        mkdir -p "$root$home/.cargo/registry" "$root$home/go/pkg"
        ln -sfn /opt/cargo/bin "$root$home/.cargo/bin"
        for part in index cache; do
            ln -sfn "/opt/cargo/registry/$part" "$root$home/.cargo/registry/$part"
        done
        chroot "$root" chown -R "$user" "$home/.cargo" "$home/go"
    done
}

# share HERE THERE: a directory of this machine, read-only
share() {
    [ -d "$1" ] || return 0
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    mount -o remount,bind,ro "$root$2"
    note "not fresh, read-only: $2"
}

# as USER COMMAND: in the clone, with the environment of a first login
as() {
    user=$1
    home=$(chroot "$root" sh -c "echo ~$user")
    certificates=/etc/ssl/certs/ca-certificates.crt
    chroot --userspec="$user:$user" "$root" env -i HOME="$home" USER="$user" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        RUSTUP_HOME=/opt/rustup PIP_CERT=$certificates npm_config_cafile=$certificates \
        GOMODCACHE="$home/go/pkg/mod" GOPROXY="file:///opt/go/cache/download,$(go_proxy)" \
        GOFLAGS=-buildvcs=false sh -c "cd /home/dev/topdeck && export PATH=\$HOME/.cargo/bin:\$PATH && $2"
}

go_proxy() {
    if command -v go >/dev/null; then go env GOPROXY; else echo direct; fi
}

# run_and_ask USER: starts the server as in the README, waits until it responds, and stops it
run_and_ask() {
    user=$1
    if answers "$user"; then
        echo "a topdeck already listens on 127.0.0.1:7717; stop it first" >&2
        return 1
    fi
    # Root must not create files in the clone that the user cannot replace.
    as "$user" 'git config --global --add safe.directory /home/dev/topdeck; setsid make run >/tmp/run-'"$user"'.log 2>&1 & echo $! >/tmp/run-'"$user"'.pid'
    pid=$(cat "$root/tmp/run-$user.pid")
    deadline=$(($(date +%s) + 900))
    while kill -0 "$pid" 2>/dev/null && [ "$(date +%s)" -lt "$deadline" ]; do
        if answers "$user"; then
            kill -s TERM -- "-$pid"
            while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
            return 0
        fi
        sleep 0.5
    done
    kill -s KILL -- "-$pid" 2>/dev/null
    tail -n 50 "$root/tmp/run-$user.log"
    return 1
}

# answers USER: whether a server responds at the address of the README
answers() {
    as "$1" "bash -c 'exec 3<>/dev/tcp/127.0.0.1/7717 && printf \"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\" >&3 && head -n 1 <&3'" 2>/dev/null | grep -q ' 200 '
}

# step WHAT COMMAND…: runs it with its output here, and records outcome and duration
step() {
    what=$1
    shift
    echo "== $what"
    start=$(date +%s)
    if "$@"; then end=ok; else end=FAILED failed=1; fi
    printf '%-8s %5d s  %s\n' "$end" "$(($(date +%s) - start))" "$what" | tee -a "$steps"
}

note() {
    echo "$1" | tee -a "$steps"
}

fail() {
    echo "$1" >&2
    exit 2
}

main "$@"
