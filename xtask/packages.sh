#!/bin/sh
# Installs the packages in bare Debian roots, and uses them: `make system PART=packages` calls it.
#
#   packages.sh FIRST NEXT WORK   FIRST and NEXT have packages of two releases of one version
#
# Each root is made once and copied. What runs a server is in namespaces of its own (network,
# processes, mounts), so that the ports of this machine do not matter. Prints one line per test:
# `passed NAME`, `failed NAME`, or `skipped NAME: REASON`; other lines are output of the test above.
# Requires root, mmdebstrap and unshare.
set -u

here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" != inside ]; then
    export first="$1" next="$2" work="$3"
fi
suite=trixie
# Its systemd boots with cgroups of version 1 too.
systemd_suite=bookworm
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)

main() {
    mkdir -p "$work"
    run "a bare Debian root ($suite)" make_bare_root || exit 0
    run "deb: lintian" lint_deb
    run "deb: install, measure, upgrade, downgrade, remove, purge" with_root deb_life
    run "deb: without systemd nothing is started" with_root deb_starts_nothing
    run "deb: systemd starts, restarts and stops the units" systemd_life
    run "rpm: rpm -K and -qp" read_rpm
    run "rpm: install, measure, upgrade, remove" with_root rpm_life
    run "archive: the commands of docs/install.md" with_root archive_life
    run "one command: install, wait for data, repeat, uninstall" with_root install_life
    run "oci: a read-only root answers /-/ready" with_root oci_life
    run "signature: minisign accepts it" verify_signature
}

# run NAME COMMAND…: a test; status 77 skips it, and the last line of its output is the reason
run() {
    name=$1
    shift
    start=$(date +%s)
    (set -e; "$@") >"$work/output" 2>&1
    status=$?
    seconds=$(($(date +%s) - start))
    case $status in
    0) echo "passed $name: $seconds s" ;;
    77) echo "skipped $name: $(tail -n 1 "$work/output")" ;;
    *)
        echo "failed $name: $seconds s"
        tail -n 40 "$work/output"
        ;;
    esac
    return "$status"
}

skip() {
    echo "$1"
    exit 77
}

need() {
    command -v "$1" >/dev/null || skip "$1 is not installed (Debian package $2)"
}

make_bare_root() {
    bare=$work/bare.tar
    [ -e "$bare" ] && return
    mmdebstrap --quiet --variant=minbase "$suite" "$bare.part" ||
        skip "mmdebstrap cannot make a root: is there a mirror?"
    mv "$bare.part" "$bare"
}

# with_root COMMAND: with a new root in $root, in namespaces; the root is removed afterwards
with_root() {
    root=$work/root
    rm -rf "$root"
    mkdir "$root"
    tar -xpf "$work/bare.tar" -C "$root" --exclude='./dev/*'
    mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/packages"
    export root
    status=0
    unshare --mount --pid --fork --kill-child --ipc --uts --net sh "$0" inside "$1" || status=$?
    rm -rf "$root"
    return "$status"
}

# The functions below run in the namespaces, up to the next such line.

inside() {
    set -eu
    mount --make-rprivate /
    ip link set lo up
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    for device in null zero full random urandom tty; do
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/packages/first" "$root/packages/next"
    mount --bind "$first" "$root/packages/first"
    mount --bind "$next" "$root/packages/next"
    "$1"
    exit 0
}

in_root() {
    (exec_in_root "$@")
}

exec_in_root() {
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

expect() {
    "$@" || {
        echo "expected: $*"
        exit 1
    }
}

# All files of the root, without those that dpkg and rpm keep for themselves.
list_files() {
    (cd "$root" && find . -xdev \( -path ./packages -o -path ./tmp -o -path ./run -o -path ./root/.rpmdb \) -prune -o \
        -printf '%p %U %m\n' | grep -v '^\./var/lib/dpkg/\|^\./var/lib/rpm/\|^\./var/log/' |
        grep -v '^\./var/cache/\|^\./var/lib/systemd/\|^\./etc/[a-z]*-\? \|^\./etc/.*- ' | sort)
}

# start UNIT: the command of the unit, as its user, as systemd would start it
start() {
    unit=$root/$units/topdeck.service
    user=$(sed -n 's/^User=//p' "$unit")
    check=$(sed -n 's/^ExecStartPre=//p' "$unit")
    command=$(sed -n 's/^ExecStart=//p' "$unit")
    # shellcheck disable=SC2086 # words of the command
    in_root setpriv --reuid "$user" --regid "$user" --init-groups $check
    # shellcheck disable=SC2086
    exec_in_root setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs \
        --bounding-set=-all $command >>"$root/tmp/server.log" 2>&1 &
    server=$!
    await_ready
}

# Waits for the server of $server.
await_ready() {
    waited=0
    until request GET /-/ready | grep -q '^HTTP/1.1 200'; do
        kill -0 "$server" 2>/dev/null && [ "$waited" -lt 600 ] || {
            cat "$root/tmp/server.log"
            echo "the server does not get ready"
            exit 1
        }
        waited=$((waited + 1))
        sleep 0.1
    done
}

stop() {
    kill "$server"
    wait "$server" || {
        cat "$root/tmp/server.log"
        echo "the server does not stop well"
        exit 1
    }
}

# request METHOD PATH [BODY]
request() {
    body=${3:-}
    in_root bash -c "exec 3<>/dev/tcp/127.0.0.1/7717 && printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' '$1' '$2' ${#body} '$body' >&3 && cat <&3" 2>/dev/null
}

measure() {
    request POST '/v1/record?metric=took&unit=ms' "$1" | grep -q '"values":1' || {
        echo "the server does not accept a value"
        exit 1
    }
}

# expect_count N: values that the server has stored
expect_count() {
    waited=0
    until request GET '/v1/histogram?selector=took&above=1s' | grep -q "\"count\":$1[,}]"; do
        [ "$waited" -lt 300 ] || {
            request GET '/v1/histogram?selector=took&above=1s'
            echo "expected $1 values"
            exit 1
        }
        waited=$((waited + 1))
        sleep 0.1
    done
}

expect_owner() {
    found=$(in_root stat -c '%U:%G %a' "$1")
    [ "$found" = "$2" ] || {
        echo "$1: found $found, expected $2"
        exit 1
    }
}

# As if `topdeck crash install` had run in this root. Not on a machine whose kernel starts topdeck:
# the setting is that of the machine.
plant_former_pattern() {
    grep -q 'crash handle' /proc/sys/kernel/core_pattern ||
        echo core >"$root/etc/topdeck/core_pattern"
}

# What a package must leave as it is: data and a changed settings file.
expect_kept() {
    expect grep -q '^# changed' "$root/etc/topdeck/topdeck.toml"
    expect_owner /var/lib/topdeck "topdeck:topdeck 750"
}

deb_life() {
    units=usr/lib/systemd/system
    list_files >"$work/before"
    in_root dpkg --install "/packages/first/topdeck_$version-1_amd64.deb"
    expect_owner /var/lib/topdeck "topdeck:topdeck 750"
    expect_owner /etc/topdeck/topdeck.toml "root:root 644"
    expect in_root dpkg --verify topdeck
    wants=$root/etc/systemd/system/multi-user.target.wants
    expect test -L "$wants/topdeck.service"
    expect test ! -e "$wants/topdeck-agent.service"
    expect in_root sh -c 'topdeck --version | grep -q "^topdeck "'
    echo '# changed' >>"$root/etc/topdeck/topdeck.toml"
    start
    measure 1730
    expect_count 1
    stop
    in_root dpkg --install "/packages/next/topdeck_$version-2_amd64.deb"
    expect_kept
    start
    measure 1731
    expect_count 2
    stop
    in_root dpkg --install "/packages/first/topdeck_$version-1_amd64.deb"
    expect_kept
    start
    expect_count 2
    stop
    plant_former_pattern
    in_root dpkg --remove topdeck
    expect test ! -e "$root/usr/bin/topdeck"
    expect test ! -e "$root/etc/topdeck/core_pattern"
    expect_kept
    # An installation after a removal finds everything.
    in_root dpkg --install "/packages/first/topdeck_$version-1_amd64.deb"
    expect test -L "$wants/topdeck.service"
    start
    expect_count 2
    stop
    in_root dpkg --purge topdeck
    expect test ! -e "$root/var/lib/topdeck"
    expect in_root sh -c '! getent passwd topdeck'
    list_files >"$work/after"
    expect diff "$work/before" "$work/after"
}

deb_starts_nothing() {
    in_root dpkg --install "/packages/first/topdeck_$version-1_amd64.deb"
    expect in_root sh -c '! ls /proc/[0-9]*/exe -l 2>/dev/null | grep -q /usr/bin/topdeck'
}

rpm_life() {
    need rpm rpm
    units=usr/lib/systemd/system
    rpm="rpm --root $root --nodeps --nosignature"
    # Distributions with rpm have it.
    mkdir "$root/usr/share/licenses"
    list_files >"$work/before"
    $rpm --install "$first/topdeck-$version-1.x86_64.rpm"
    expect_owner /var/lib/topdeck "topdeck:topdeck 750"
    $rpm --verify --nouser --nogroup topdeck
    echo '# changed' >>"$root/etc/topdeck/topdeck.toml"
    start
    measure 1730
    expect_count 1
    stop
    $rpm --upgrade "$next/topdeck-$version-2.x86_64.rpm"
    expect [ "$(rpm --root "$root" --query topdeck)" = "topdeck-$version-2.x86_64" ]
    expect_kept
    start
    measure 1731
    expect_count 2
    stop
    $rpm --upgrade --oldpackage "$first/topdeck-$version-1.x86_64.rpm"
    expect_kept
    start
    expect_count 2
    stop
    plant_former_pattern
    $rpm --erase topdeck
    expect test ! -e "$root/etc/topdeck/core_pattern"
    expect test ! -e "$root/usr/bin/topdeck"
    expect test -d "$root/var/lib/topdeck"
    expect grep -q '^# changed' "$root/etc/topdeck/topdeck.toml.rpmsave"
    # What docs/install.md says to remove by hand.
    rm -r "$root/var/lib/topdeck" "$root/etc/topdeck"
    rm -rf "$root/var/lib/topdeck-agent"
    in_root userdel topdeck
    list_files >"$work/after"
    expect diff "$work/before" "$work/after"
}

# The first code block below `## Archive`, without the lines for systemctl.
# A host installs the agent from a server that runs in the same root; nothing is left afterwards.
install_life() {
    tar -xzf "$first/topdeck-$version-x86_64-linux.tar.gz" -C "$root/tmp" --strip-components 1
    list_files >"$work/before"
    exec_in_root /tmp/topdeck serve --data-dir /tmp/data >>"$root/tmp/server.log" 2>&1 &
    server=$!
    await_ready
    install_agent /tmp/topdeck
    expect_owner /etc/topdeck/agent-token "root:topdeck 640"
    expect_owner /var/lib/topdeck-agent "topdeck:topdeck 750"
    agent=$(in_root sh -c "grep -lx 'Name:	topdeck' /proc/[0-9]*/status | xargs grep -l '^Uid:	[1-9]'")
    expect [ -n "$agent" ]
    # Nothing to do, and no enrollment token needed.
    in_root /tmp/topdeck install --server http://127.0.0.1:7717 --no-listen >"$work/again"
    expect grep -q 'keep the agent running: nothing changed' "$work/again"
    in_root topdeck uninstall
    expect in_root sh -c '! grep -q ^topdeck: /etc/passwd'
    list_files >"$work/after"
    expect diff "$work/before" "$work/after"
    stop
}

# install_agent PROGRAM: in the root, from the server on port 7717
install_agent() {
    code=$(in_root "$1" token /tmp/data enroll | sed -n "s/.*Bearer \(td_[0-9a-f]*\).*/\1/p")
    began=$(date +%s)
    in_root env TOPDECK_ENROLLMENT_TOKEN="$code" "$1" install --server http://127.0.0.1:7717 --no-listen
    seconds=$(($(date +%s) - began))
    echo "installed after $seconds s"
    expect [ "$seconds" -le 60 ]
}

archive_life() {
    units=etc/systemd/system
    commands=$(sed -n '/^## Archive/,/^## /p' "$here/../docs/install.md" |
        sed -n '/^```console/,/^```/p' | sed '1d;/^```/,$d' | grep -v '^systemctl')
    expect [ -n "$commands" ]
    echo "$commands" >"$root/tmp/commands"
    expect grep -q "topdeck-$version-x86_64-linux" "$root/tmp/commands"
    in_root sh -euc 'cd /packages/first && cp *x86_64-linux.tar.gz /tmp && cd /tmp && . /tmp/commands'
    in_root install -d -m 0750 -o topdeck -g topdeck /var/lib/topdeck
    expect test -e "$root/usr/local/share/man/man1/topdeck.1"
    start
    measure 1730
    expect_count 1
    stop
}

# digest_of FIELD: the digest in the first descriptor of standard input that has FIELD
digest_of() {
    tr '}' '\n' | sed 's/"platform":{/ /' | grep -- "$1" | head -n 1 |
        sed 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/'
}

# The image of this architecture, whose file system is the root, mounted read-only; its volume is a
# temporary file system. A token comes first, as docs/install.md says.
oci_life() {
    layout=$work/oci
    image=$work/image
    rm -rf "$layout" "$image"
    mkdir "$layout" "$image"
    tar -xf "$first/topdeck-$version-oci.tar" -C "$layout"
    blobs=$layout/blobs/sha256
    index=$(digest_of image.index <"$layout/index.json")
    manifest=$(digest_of '"amd64"' <"$blobs/$index")
    layer=$(digest_of layer.v1 <"$blobs/$manifest")
    tar --numeric-owner -xpzf "$blobs/$layer" -C "$image"
    if ldd "$image/usr/bin/topdeck" >/dev/null 2>&1; then
        case $(ldd "$image/usr/bin/topdeck") in
        *ld-linux*) skip "the program is not static: make dist builds one" ;;
        esac
    fi
    mkdir -p "$image/proc" "$image/dev/shm"
    mount --bind "$image" "$image"
    mount -t proc proc "$image/proc"
    mount -t tmpfs -o mode=1777 tmpfs "$image/dev/shm"
    mount -t tmpfs -o mode=0750,uid=65532,gid=65532 tmpfs "$image/var/lib/topdeck"
    mount -o remount,bind,ro "$image"
    expect sh -c "! touch $image/etc/x 2>/dev/null"
    # Without a token, it says what to do, and does not start.
    run_image serve --config /etc/topdeck/topdeck.toml >"$work/refusal" 2>&1 && exit 1
    expect grep -q 'without tokens' "$work/refusal"
    token=$(run_image token /var/lib/topdeck add test read ingest | grep -o 'td_[0-9a-f]*')
    exec_image serve --config /etc/topdeck/topdeck.toml >"$work/image.log" 2>&1 &
    server=$!
    waited=0
    until ask GET /-/ready | grep -q '^HTTP/1.1 200'; do
        kill -0 "$server" 2>/dev/null && [ "$waited" -lt 300 ] || {
            cat "$work/image.log"
            echo "the image does not get ready"
            exit 1
        }
        waited=$((waited + 1))
        sleep 0.1
    done
    expect [ "$(grep '^Uid:' "$image/proc/$server/status" | cut -f 2)" = 65532 ]
    ask POST '/v1/record?metric=took&unit=ms' 1730 | grep -q '"values":1' || {
        echo "the image does not accept a value"
        exit 1
    }
    kill "$server"
    wait "$server" || {
        cat "$work/image.log"
        exit 1
    }
    cat "$work/image.log"
    umount -R "$image"
    rm -rf "$image" "$layout"
}

# As a container runtime: the user and the environment of the image, no capabilities. A user other
# than root loses all that chroot had.
run_image() {
    (exec_image "$@")
}

exec_image() {
    exec env -i PATH=/usr/bin /usr/sbin/chroot --userspec=65532:65532 --groups= "$image" /usr/bin/topdeck "$@"
}

# ask METHOD PATH [BODY]: from outside of the image, by its address on the network, with the token
ask() {
    body=${3:-}
    bash -c "exec 3<>/dev/tcp/127.0.0.1/7717 && printf '%s %s HTTP/1.1\r\nHost: image\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' '$1' '$2' '$token' ${#body} '$body' >&3 && cat <&3" 2>/dev/null
}

# The functions below run outside of the namespaces.

# systemd of a container starts the units with all that they restrict.
systemd_life() {
    need systemd-nspawn systemd-container
    need nsenter util-linux
    [ -e "$work/systemd.tar" ] || {
        mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus \
            "$systemd_suite" "$work/systemd.part.tar" || skip "mmdebstrap cannot make a root"
        mv "$work/systemd.part.tar" "$work/systemd.tar"
    }
    booted=$work/booted
    rm -rf "$booted"
    mkdir "$booted"
    tar -xpf "$work/systemd.tar" -C "$booted"
    cp "$first/topdeck_$version-1_amd64.deb" "$next/topdeck_$version-2_amd64.deb" "$booted/root/"
    systemd-nspawn --directory "$booted" --private-network --register=no --keep-unit --quiet \
        --capability=all --system-call-filter="bpf perf_event_open" --boot \
        >"$work/boot.log" 2>&1 </dev/null &
    container=$!
    status=0
    (set -e; in_systemd) || status=$?
    # The first process of the container; all others end with it.
    leader=$(cut -d ' ' -f 1 "/proc/$container/task/$container/children" 2>/dev/null || true)
    [ -z "$leader" ] || kill -s KILL "$leader"
    wait "$container" 2>/dev/null || true
    rm -rf "$booted"
    return "$status"
}

in_systemd() {
    waited=0
    until leader=$(cut -d ' ' -f 1 "/proc/$container/task/$container/children" 2>/dev/null) &&
        [ -n "$leader" ] && booted systemctl is-system-running 2>/dev/null |
        grep -q 'running\|degraded'; do
        [ "$waited" -lt 90 ] || skip "systemd does not boot in a container of this machine"
        waited=$((waited + 1))
        sleep 1
    done
    booted dpkg --install "/root/topdeck_$version-1_amd64.deb"
    expect_units active inactive
    ready 7717
    expect [ "$(rights topdeck)" = 0000000000000000 ]
    # An agent beside the server, with the drop-in for packets.
    booted sh -euc 'topdeck token /var/lib/topdeck add agent ingest >/etc/topdeck/token
        chown root:topdeck /etc/topdeck/token && chmod 640 /etc/topdeck/token
        cat >>/etc/topdeck/agent.toml <<END
[http]
listen = ["127.0.0.1:7800"]
[wire]
interfaces = ["lo"]
[[remote]]
name = "server"
url = "http://127.0.0.1:7717"
token_file = "/etc/topdeck/token"
END
        mkdir /etc/systemd/system/topdeck-agent.service.d
        cp /usr/share/topdeck/drop-ins/wire.conf /etc/systemd/system/topdeck-agent.service.d/
        systemctl daemon-reload && systemctl enable --now topdeck-agent'
    expect_units active active
    ready 7800
    booted journalctl -u topdeck-agent -o cat --no-pager
    expect booted sh -c 'journalctl -u topdeck-agent | grep -q "wire: capturing"'
    expect booted sh -c '! journalctl -u topdeck-agent | grep -q "Operation not permitted"'
    # An upgrade restarts both, and a disabled unit stays so.
    before="$(main_pid topdeck) $(main_pid topdeck-agent)"
    booted dpkg --install "/root/topdeck_$version-2_amd64.deb"
    expect_units active active
    after="$(main_pid topdeck) $(main_pid topdeck-agent)"
    expect [ "${before% *}" != "${after% *}" ]
    expect [ "${before#* }" != "${after#* }" ]
    booted systemctl disable --now topdeck
    booted dpkg --install "/root/topdeck_$version-1_amd64.deb"
    expect_units inactive active
    booted dpkg --remove topdeck
    expect_units inactive inactive
    booted dpkg --purge topdeck
    expect booted sh -c '! systemctl list-unit-files | grep -q topdeck'
    # The same agent by one command, with its unit. The server is a process of the container.
    booted sh -euc 'cd /tmp && dpkg-deb --extract "$1" unpacked && cp unpacked/usr/bin/topdeck program
        rm -r unpacked && mkdir data
        systemd-run --quiet --unit server /tmp/program serve --data-dir /tmp/data' \
        sh "/root/topdeck_$version-1_amd64.deb"
    ready 7717
    booted sh -euc 'code=$(/tmp/program token /tmp/data enroll | sed -n "s/.*Bearer \(td_[0-9a-f]*\).*/\1/p")
        TOPDECK_ENROLLMENT_TOKEN=$code /tmp/program install --server http://127.0.0.1:7717 --no-listen'
    expect booted systemctl --quiet is-active topdeck-agent
    expect booted systemctl --quiet is-enabled topdeck-agent
    expect [ "$(rights topdeck-agent)" != 0000000000000000 ]
    booted topdeck uninstall
    expect booted sh -c '! systemctl list-unit-files | grep -q topdeck && [ ! -e /etc/topdeck ]'
}

booted() {
    nsenter --target "$leader" --mount --pid --net --uts --ipc --cgroup --root --wd=/ \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# expect_units SERVER AGENT: states
expect_units() {
    found=$(booted systemctl is-active topdeck topdeck-agent | tr '\n' ' ')
    [ "$found" = "$1 $2 " ] || {
        booted journalctl -u topdeck -u topdeck-agent -o cat --no-pager | tail -n 30
        echo "server and agent: found $found, expected $1 $2"
        exit 1
    }
}

main_pid() {
    booted systemctl show --property MainPID --value "$1"
}

# Effective capabilities of a unit.
rights() {
    booted sed -n 's/^CapEff:[[:space:]]*//p' "/proc/$(main_pid "$1")/status"
}

# ready PORT
ready() {
    waited=0
    until booted bash -c "exec 3<>/dev/tcp/127.0.0.1/$1 && printf 'GET /-/ready HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 && head -n 1 <&3" 2>/dev/null | grep -q ' 200 '; do
        [ "$waited" -lt 60 ] || {
            echo "port $1 does not get ready"
            exit 1
        }
        waited=$((waited + 1))
        sleep 1
    done
}

verify_signature() {
    need minisign minisign
    (cd "$first" && minisign -V -p topdeck.pub -m SHA256SUMS && sha256sum --check --strict SHA256SUMS)
    cp "$first/SHA256SUMS.minisig" "$work/changed.minisig"
    sed 's/^./x/' "$first/SHA256SUMS" >"$work/changed"
    ! minisign -V -p "$first/topdeck.pub" -m "$work/changed" -x "$work/changed.minisig"
}

lint_deb() {
    need lintian lintian
    # Manual pages and texts of the program are checked elsewhere.
    lintian --allow-root --no-user-dirs --fail-on error,warning \
        "$first/topdeck_$version-1_amd64.deb"
}

read_rpm() {
    need rpm rpm
    package=$first/topdeck-$version-1.x86_64.rpm
    rpm --nosignature -K "$package" | grep -q 'digests OK'
    rpm -qpl "$package" | grep -qx /usr/bin/topdeck
    rpm -qp --scripts "$package"
    rpm -qpi "$package"
    # A flipped bit is found.
    cp "$package" "$work/damaged.rpm"
    printf 'x' | dd of="$work/damaged.rpm" bs=1 seek=20000 conv=notrunc 2>/dev/null
    ! rpm --nosignature -K "$work/damaged.rpm"
}

if [ "$1" = inside ]; then
    inside "$2"
fi
main
