#!/usr/bin/env bash
# Every check and every test, in the order in which a mistake is cheapest to find, but what mostly waits runs beside what mostly
# computes. Ends with the time of each stage, the retries, the skips, and with proof that nothing was left on the machine.
set -uo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

rcu=/sys/kernel/rcu_expedited # whether the kernel waits for its readers by interrupting them

# Each namespace and each program that goes waits for RCU, and labs come and go here by the hundred: 64 planted faults take 55 s in
# place of 68 when the kernel hurries. Set back at the end; a process of its own does it when this script is killed.
hurry() {
    { [ -w "$rcu" ] && [ "$(cat "$rcu")" = 0 ]; } || return 0
    echo 1 >"$rcu" || return 0
    setsid sh -c 'while kill -0 "$1" 2>/dev/null; do sleep 0.2; done; echo 0 >"$2"' sh $$ "$rcu" </dev/null >/dev/null 2>&1 &
    hurried=yes
}

traces() { # everything that a lab could leave behind; a state directory's lock is an empty file that stays, and so is the one of tune
    { ip netns list; ip -o link | cut -d: -f2; ls -d /run/pathlab/* /tmp/pathlab-*/* 2>/dev/null | grep -v -e '/lock$' -e '/tune.lock$'; sysctl -a 2>/dev/null | grep '^net\.core\.' | grep -v -e default_qdisc; grep -H . "$rcu" 2>/dev/null; ps -eo comm= | grep -x pathlab; } | sort
}

export PATHLAB_SKIPS="${PWD}/target/skips.txt"     # a line for each test that could not run, and why
export PATHLAB_RETRIES="${PWD}/target/retries.txt" # a line for each case that may be played again, and for each play more
export PATHLAB_TURNS="${PWD}/target/turns.txt"     # a line for each test that took its turn: seconds, how it ran, its name
mkdir -p target
: >"$PATHLAB_SKIPS"
: >"$PATHLAB_RETRIES"
: >"$PATHLAB_TURNS"
: >target/tests.log
once=target/once.txt # a line for each test that failed beside others and passed when it was begun again alone, and what it said first
: >"$once"
# Incremental compiling makes the first build a tenth longer and those after an edit shorter: whoever began with it stays with it.
[ -n "$(ls -A target/debug/incremental 2>/dev/null)" ] || export CARGO_INCREMENTAL=0
hurried=""
failed=0
failures=() # what failed: stages and checks of the whole
times=() # of each stage: its seconds and its name

# What failed is said where it happens and again as the last lines, which are what a person and a page of a CI run show.
fail() { # WHAT
    failed=1
    echo "== FAILED: $1"
    failures+=("$1")
}

stage() { # NAME COMMAND...
    local name=$1 began=$SECONDS
    shift
    echo "== $name"
    "$@" || fail "$name"
    times+=("$((SECONDS - began)) $name")
}

# A command that goes on beside others: what it says and how long it took stand in files until its end is waited for. It is a process
# group of its own, which an interrupt of this script ends, too.
begin() { # NAME COMMAND...
    local name=$1
    shift
    set -m
    (
        began=$SECONDS
        "$@" >"target/$name.log" 2>&1
        status=$?
        echo "$((SECONDS - began))" >"target/$name.seconds"
        exit "$status"
    ) &
    begun[$name]=$!
    set +m
}
end() { # NAME
    local status=0
    [ -n "${begun[$1]:-}" ] || { echo "$1: was not begun"; return 1; }
    wait "${begun[$1]}" || status=$?
    unset "begun[$1]"
    tee -a target/tests.log <"target/$1.log"
    return "$status"
}
declare -A begun=()
trap 'for group in "${begun[@]}"; do kill -- "-$group" 2>/dev/null; done' EXIT

# Lints, for the target of `make dist` where it is there: the static binary must go on compiling, musl's C types differ from glibc's.
lints() {
    local target; target=$(uname -m)-unknown-linux-musl
    if command -v musl-gcc >/dev/null && [ -d "$(rustc --print target-libdir --target "$target")" ]; then
        target="--target $target"
    else
        echo "static binary: not checked, no musl-gcc or no Rust target $target" >>"$PATHLAB_SKIPS"
        target=""
    fi
    # A folder of its own: in the other one it would wait for `cargo test`, and that for it.
    # shellcheck disable=SC2086 # words
    CARGO_TARGET_DIR=target/lints chrt --idle 0 cargo clippy --workspace --all-targets $target --locked --quiet -- -D warnings
}

# Output of tests that passed is shown too: a skip that nobody sees would be a pass. One failure does not hide another.
tests() {
    cargo test --workspace --locked --quiet --no-fail-fast "$@" -- --show-output 2>&1 | tee target/stage.log | tee -a target/tests.log && return
    once_more "$@"
}

# One that waits beside hundreds misses its moment when the machine gets no CPU for a while. Of a whole run at most two may try once
# more, each alone. What they said the first time stays in the log, and the end of this script shows it and counts them.
once_more() { # what of the last stage was asked for
    local names name said
    mapfile -t names < <(awk '
        /^failures:$/ { n = 0; next }
        /^    [A-Za-z0-9_:]+$/ { list[n++] = $1 }
        /^test result: FAILED/ { for (i = 0; i < n; i++) print list[i] }
        /^test result: / { n = 0 }
    ' target/stage.log)
    [ "${#names[@]}" -ge 1 ] && [ "$(($(wc -l <"$once") + ${#names[@]}))" -le 2 ] || return 1
    cp target/stage.log target/failed.log
    for name in "${names[@]}"; do
        echo "== failed, and tries once more alone: $name"
        said=$(cargo test --workspace --locked --quiet "$@" -- --exact "$name" --show-output 2>&1)
        tee -a target/tests.log <<<"$said"
        grep -q '^test result: ok\. 1 passed' <<<"$said" && ! grep -q '^test result: FAILED' <<<"$said" || return 1
        echo "$name: $(grep -A 3 "^thread '$name' .*panicked" target/failed.log | tr -s ' \n' ' ' | cut -c 1-400)" >>"$once"
    done
}

# All but the tests of the whole program, which stand in tests/. Chosen by name: with a package left out, cargo would choose other
# features for the dependencies, and compile them again.
names=()
for file in crates/*/tests/*.rs; do names+=("$(basename "$file" .rs)"); done
for file in crates/*/tests/*/main.rs; do names+=("$(basename "$(dirname "$file")")"); done
# Frames between two ports are mostly waited for: 143 tests of that take 37 s two at a time, 15 s six at a time.
waiting=ports
crates() {
    local status=0 name others=()
    for name in "${names[@]}"; do [ "$name" = "$waiting" ] || others+=(--test "$name"); done
    tests --lib --bins "${others[@]}" || status=1
    RUST_TEST_THREADS=6 tests --test "$waiting" || status=1
    cargo test --workspace --locked --quiet --doc && return "$status"
}

# Tests of the whole program mostly wait, for labs and for slow frames; those that measure are alone. tests/support/turn.rs says which
# run beside each other, in the system suite for all of them.
system() { RUST_TEST_THREADS=1000 tests --test system | grep -v 'has been running for over 60 seconds'; }
switch() { RUST_TEST_THREADS=4 tests --test switch; }

# os-ken's switch suite sleeps between the frames of its rates. It begins as soon as it is compiled; the other compilers, which give
# way to it (nice), and the tests that measure nothing fill its pauses. The rest waits for its end.
# Its program is started and not `cargo test`, which would wait for the compilers that begin next.
compile_osken() {
    local said
    said=$(cargo test --workspace --locked --no-run --test openflow 2>&1) || { echo "$said"; return 1; }
    osken_program=$(sed -n 's|.*Executable tests/openflow.rs (\(.*\))|\1|p' <<<"$said")
}
osken() { "${osken_program:?not compiled}"; }

stage "formatting" cargo fmt --check
begin peers tests/peers.sh
stage "compile os-ken's suite, beside the installation of the peers" compile_osken
stage "waiting for the peers" end peers
before=$(traces)
hurry
begin osken osken
stage "compile the tests" nice cargo test --workspace --locked --quiet --no-run
# The planted faults and many tests of the crates mostly wait: lints, which get what they leave of the CPUs, run beside them.
begin lints lints
stage "audit" tests/audit.sh
stage "tests of the crates" crates
stage "waiting for os-ken's suite" end osken
times+=("$(cat target/osken.seconds) os-ken's suite, beside the stages from its compilation to here")
stage "tests: faults" tests --test faults
stage "waiting for clippy" end lints
times+=("$(cat target/lints.seconds) clippy, as a static binary, beside the tests of the crates and the planted faults")
for file in tests/*.rs; do
    name=$(basename "$file" .rs)
    case " openflow faults ${names[*]} " in *" $name "*) continue ;; esac # has run, by itself or with its namesake of a crate
    case $name in
        system | switch) stage "tests: $name" "$name" ;;
        *) stage "tests: $name" tests --test "$name" ;;
    esac
done
sed -n 's/^SKIP: //p' target/tests.log >>"$PATHLAB_SKIPS"

# What was there before and has gone since was left by somebody who was killed: the next command undoes that, and so did one of these.
[ -z "$hurried" ] || echo 0 >"$rcu"
# A process that was told to end may need a moment to do so, on a busy machine a few.
for _ in $(seq 100); do
    after=$(traces)
    left=$(comm -13 <(echo "$before") <(echo "$after"))
    [ -n "$left" ] || break
    sleep 0.1
done
gone=$(comm -23 <(echo "$before") <(echo "$after"))
[ -z "$gone" ] || { echo "== undone by the tests, left by others before them:"; echo "$gone"; }
if [ -z "$left" ]; then
    echo "== nothing left behind: namespaces, interfaces, processes, state and net.core settings are as before"
else
    fail "the tests left traces on this machine"
    echo "$left"
    ps -eo pid,ppid,etimes,stat,args | grep '[p]athlab'
fi

# Of each kind of case that may be played again (tests/support/again.rs): how often it was. More than one play in four cases is no
# longer a moment that was missed.
retries() {
    awk -F '\t' '
        $1 == "first" { cases[$2]++ }
        $1 == "again" { again[$2]++; lines[$2] = lines[$2] "   AGAIN: " $3 ": " $4 "\n" }
        END {
            for (kind in cases) {
                printf "   %s: %d of %d cases again (%.0f %%)\n%s", kind, again[kind], cases[kind], 100 * again[kind] / cases[kind], lines[kind]
                if (again[kind] > 2 && 4 * again[kind] > cases[kind]) { bad = 1; print "   too many: " kind }
            }
            exit bad
        }' "$PATHLAB_RETRIES"
}
echo "== played again: $(grep -c ^again "$PATHLAB_RETRIES")"
again=$(retries) || fail "more than one case in four was played again: $(sed -n 's/^   too many: //p' <<<"$again" | paste -sd ';')"
echo "$again"

echo "== failed once and passed alone: $(wc -l <"$once")"
sed 's/^/   ONCE: /' "$once"

skips=$(sort -u "$PATHLAB_SKIPS" | grep -c . || true)
echo "== skipped: $skips"
sort -u "$PATHLAB_SKIPS" | sed 's/^/   SKIP: /'
echo "== seconds of each stage: $SECONDS in all"
printf '%s\n' "${times[@]}" | while read -r seconds name; do printf '   %5d  %s\n' "$seconds" "$name"; done
echo "== slowest tests of those that take turns: seconds, how, name"
sort -rn "$PATHLAB_TURNS" | head -15 | sed 's/^/   /'
if [ "$failed" = 1 ]; then
    # Of each test its name and its panic, not what it printed before nor the successes between; of a planted fault its line and why.
    awk '
        /^  MISSED / { print "   " substr($0, 1, 400); left = 1 }
        /^failures:$/ { inside = 1; next }
        /^test result: / { inside = 0 }
        inside && /^---- .* ----$/ { left = 1 }
        inside && / panicked at / { left = 12 }
        (inside || /^          /) && NF && left-- > 0 { print "   " substr($0, 1, 400) }
    ' target/tests.log | tail -60
    printf '== FAILED: %s\n' "${failures[@]}"
fi
exit $failed
