#!/usr/bin/env bash
# Other people's crates: licences, bans and sources by `cargo deny`, and advisories where their database can be fetched.
# What could not be looked at is a visible skip.
set -uo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "SKIP: $1"
    [ -z "${PATHLAB_SKIPS:-}" ] || echo "$1" >>"$PATHLAB_SKIPS"
}

deny=$(command -v cargo-deny || ls target/peers/deny/bin/cargo-deny 2>/dev/null)
if [ -z "$deny" ]; then
    skip "audit of the dependencies: cargo-deny is not installed (cargo install cargo-deny --locked)"
    exit 0
fi
"$deny" --locked check licenses bans sources || exit 1

said=$(timeout 120 "$deny" --locked check advisories 2>&1)
code=$?
if [ $code != 0 ] && grep -q 'failed to fetch advisory database' <<<"$said"; then
    skip "audit of the dependencies: advisories were not looked up, their database cannot be fetched here"
    exit 0
fi
echo "$said"
exit $code
