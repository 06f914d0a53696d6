#!/bin/sh
# `make fresh`: does the README hold on a machine that has nothing? Makes a bare Debian root, clones
# the last commit into it, and runs both commands of the README as a user without rights; then, as
# root, `make run` and the tests that need rights. As root, on Debian, with mmdebstrap; at most 45
# minutes.
#
# What is not fresh, because it would only be downloaded again: the Rust toolchains and the caches
# of package managers, mounted read-only; the packages of Debian come from this machine's mirror.
# The clock since boot says one minute, in a time namespace, if the kernel has them.
set -eu
cd "$(dirname "$0")/.."

suite=trixie
folder=/var/tmp/topdeck-fresh
root=$folder/root
steps=$folder/steps.txt
failed=0

main() {
    if [ "${1:-}" = inside ]; then
        inside
    fi
    check_tools
    mkdir -p "$folder"
    # A second one would remove the root of the first.
    exec 9>"$folder.lock"
    flock --nonblock 9 || fail "another make fresh runs, in $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    : >"$steps"
    started=$(date +%s)
    step "a bare Debian root ($suite)" make_root
    step "the commit $(git rev-parse --short HEAD), cloned" make_clone
    # In namespaces of its own: mounts and processes end with it, whatever happens in it.
    export TOPDECK_FRESH_INSIDE_ROOT="$root" TOPDECK_FRESH_STEPS="$steps"
    unshare --mount --pid --fork --kill-child --ipc --uts $(time_namespace) \
        sh "$0" inside || failed=1
    echo
    echo "make fresh: Debian $suite, $(date -u +%F), commit $(git rev-parse --short HEAD)"
    cat "$steps"
    echo "$(($(date +%s) - started)) s in all"
    exit "$failed"
}

check_tools() {
    [ "$(id -u)" = 0 ] || fail "make fresh makes namespaces and mounts: run it as root"
    command -v mmdebstrap >/dev/null ||
        fail "mmdebstrap is missing: apt-get install mmdebstrap debian-archive-keyring"
    [ -z "$(git status --porcelain)" ] ||
        echo "warning: there are changes that are not committed; make fresh looks at the last commit" >&2
}

# The offset that makes the clock since boot say one minute.
time_namespace() {
    up=$(cut -d . -f 1 /proc/uptime)
    if unshare --time --boottime 0 true 2>/dev/null; then
        echo "--time --boottime $((60 - up)) --monotonic $((60 - up))"
    else
        echo "note: no time namespaces here: the clock since boot is this machine's" >&2
    fi
}

# What the README asks for: a Debian, and a C compiler. git and make come with any way to get the
# code.
make_root() {
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,gcc,git,libc6-dev,make \
        "$suite" "$root" || return 1
    # The names of hosts, and whom to trust, are those of the network that this machine is in.
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        [ -e "$file" ] && cp -L "$file" "$root$file"
    done
    chroot "$root" useradd --create-home --shell /bin/bash dev
}

make_clone() {
    git clone --quiet --no-hardlinks . "$root/home/dev/topdeck"
    chroot "$root" chown -R dev:dev /home/dev/topdeck
}

# Below: in the namespaces.

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
    step "as root: packages that the tests want" as root 'sh xtask/setup.sh test'
    step "as dev: make test" as dev 'make test'
    step "as root: make run, to the page that answers" run_and_ask root
    step "as root: the tests that need rights" as root 'cargo xtask ci build test timing'
    exit "$failed"
}

# What would only be downloaded again.
mount_caches() {
    cargo=${CARGO_HOME:-$HOME/.cargo}
    share "${RUSTUP_HOME:-$HOME/.rustup}" /opt/rustup
    share "$cargo/bin" /opt/cargo/bin
    # Not src: it has files that only their owner may read, and cargo unpacks it anew.
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

# share HERE THERE: a folder of this machine, read-only
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

# run_and_ask USER: starts the server as the README says, waits until it answers, and stops it
run_and_ask() {
    user=$1
    if answers "$user"; then
        echo "a topdeck of this machine answers at 127.0.0.1:7717: stop it first" >&2
        return 1
    fi
    # Root must not leave files in the clone that the user cannot replace.
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

# answers USER: whether a server answers where the README says
answers() {
    as "$1" "bash -c 'exec 3<>/dev/tcp/127.0.0.1/7717 && printf \"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\" >&3 && head -n 1 <&3'" 2>/dev/null | grep -q ' 200 '
}

# step WHAT COMMAND…: runs it with its output here, and notes how it ended and how long it took
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
