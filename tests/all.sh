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
# The static binary of `make dist` must go on compiling: musl's C types differ from glibc's.
static_check() {
    local target; target=$(uname -m)-unknown-linux-musl
    if ! command -v musl-gcc >/dev/null || [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
        echo "static binary: not checked, no musl-gcc or no Rust target $target" >>"$PATHLAB_SKIPS"
        return
    fi
    cargo check --target "$target" --locked --quiet
}
step static_check
step tests/audit.sh
# Output of tests that passed is shown too: a skip that nobody sees would be a pass. One failure does not hide another.
tests() { cargo test --workspace --locked --quiet --no-fail-fast -- --show-output 2>&1 | tee target/tests.log; }

# These tests run kernels, daemons and clocks on machines that others use, too. At most three that failed are played a
# second time, each once and alone, and are counted below. What fails twice, or does not fail in a test, has failed.
again() {
    # Lines of "target <tab> test"; a target that failed without naming a test has a line without one.
    awk '/^failures:$/ { list = 1; count = 0; next }
         list && /^    / { names[count++] = $1; next }
         NF { list = 0 }
         /^test result: FAILED/ { named = count }
         /^error: test failed, to rerun pass `/ {
             split($0, part, "`")
             if (!named) print part[2] "\t"
             for (i = 0; i < named; i++) print part[2] "\t" names[i]
             named = 0
         }' target/tests.log >target/again.txt
    local count; count=$(grep -c . target/again.txt)
    [ "$count" -ge 1 ] && [ "$count" -le 3 ] || return 1
    local target name
    while IFS=$'\t' read -r target name; do
        [ -n "$name" ] || return 1
        echo "== again, alone: $name ($target)"
        # shellcheck disable=SC2086 # the target is several words
        cargo test --locked --quiet $target -- --show-output --exact "$name" </dev/null 2>&1 | tee target/again.log || return 1
        grep -q '^test result: ok\. 1 passed' target/again.log || return 1
        cat target/again.log >>target/tests.log
    done <target/again.txt
}
tests_with_a_second_chance() { tests || again; }
rm -f target/again.txt
step tests_with_a_second_chance
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
if [ $failed = 0 ] && [ -s target/again.txt ]; then
    echo "== failed once, passed when played again: $(grep -c . target/again.txt)"
    sed 's/^/   AGAIN: /' target/again.txt
fi
exit $failed
