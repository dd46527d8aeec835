#!/usr/bin/env bash
# `make dist`: a static binary, packed to take along (dist/package.sh), in target/dist. It needs a C compiler for musl and
# Rust's musl target and says how to get what is missing; it installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -m)
target=$machine-unknown-linux-musl

missing() { printf 'make dist: %s\n' "$1" >&2; exit 3; }
command -v "${CC_MUSL:-musl-gcc}" >/dev/null || missing "there is no musl-gcc; install it (Debian: apt-get install musl-tools)"
command -v objcopy >/dev/null || missing "there is no objcopy; install binutils"
[ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] \
    || missing "Rust has no target $target here; add it with: rustup target add $target"

cargo build --release --locked --target "$target"

# The line tables are four fifths of the binary: they go into a file of their own, which a backtrace finds beside it.
rm -rf target/dist
mkdir -p target/dist
objcopy --only-keep-debug --compress-debug-sections=zlib "target/$target/release/pathlab" target/dist/pathlab.debug
objcopy --strip-debug --add-gnu-debuglink=target/dist/pathlab.debug "target/$target/release/pathlab" target/dist/pathlab
dist/package.sh target/dist/pathlab target/dist
