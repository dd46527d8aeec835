#!/usr/bin/env bash
# Every check and every test, in the order in which a mistake is cheapest to find. Ends with the list of skips and
# with proof that nothing was left on the machine.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

traces() { # everything that a lab could leave behind
    { ip netns list; ip -o link | cut -d: -f2; ls -d /run/pathlab/* /tmp/pathlab-*/* 2>/dev/null; sysctl -a 2>/dev/null | grep '^net\.core\.' | grep -v -e default_qdisc; ps -eo comm= | grep -x pathlab; } | sort
}

export PATHLAB_SKIPS="${PWD}/target/skips.txt"
mkdir -p target
: >"$PATHLAB_SKIPS"
before=$(traces)
failed=0
step() {
    echo "== $*"
    "$@" || { failed=1; echo "== FAILED: $*"; }
}

step cargo fmt --check
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# Output of tests that passed is shown too: a skip that nobody sees would be a pass. One failure does not hide another.
tests() { cargo test --workspace --locked --quiet --no-fail-fast -- --show-output 2>&1 | tee target/tests.log; }
step tests
sed -n 's/^SKIP: //p' target/tests.log >>"$PATHLAB_SKIPS"

after=$(traces)
if [ "$before" = "$after" ]; then
    echo "== nothing left behind: namespaces, interfaces, processes, state and net.core settings are as before"
else
    failed=1
    echo "== FAILED: the tests left traces on this machine"
    diff <(echo "$before") <(echo "$after")
fi

skips=$(sort -u "$PATHLAB_SKIPS" | grep -c . || true)
echo "== skipped: $skips"
sort -u "$PATHLAB_SKIPS" | sed 's/^/   SKIP: /'
exit $failed
