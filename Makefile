# The two commands of the README, and what they are made of.
CARGO ?= cargo
ARGS ?=

.PHONY: run test build dist peers check faults bench fuzz clean

run: build          ## build the release binary and measure the default plan
	./target/release/pathlab run $(ARGS)

build:
	$(CARGO) build --release --locked

dist:               ## a static binary with man pages and completions: tarball, .deb, container file, in target/dist
	dist/build.sh

test:               ## install what the tests need (peers, below) and run them all
	tests/all.sh

peers:              ## the programs that the tests talk to (Debian packages, only what is missing)
	tests/peers.sh

check:              ## what must be clean before a commit: formatting, lints, the pure crates' tests, no root
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --locked -p wire -p record -p bpf -p flow -p study --test tidy --test defects -p pathlab

faults:             ## only the planted faults and their scoreboard
	$(CARGO) test --locked --test faults

bench: build        ## pathlab against netperf and iperf3, interleaved
	./target/release/pathlab bench peers $(ARGS)

# Needs a nightly compiler and `cargo install cargo-fuzz --locked`; the new inputs that it finds go to fuzz/found.
fuzz:               ## feed capture files, filters, offloads, edits, OpenFlow messages, rules as text and channels any bytes, ten minutes each
	for target in capture_file filter offload edit openflow_message rule_text channel; do \
	  mkdir -p fuzz/found/$$target && \
	  RUSTUP_TOOLCHAIN=nightly $(CARGO) fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- -max_total_time=600 -max_len=4096 $(ARGS) || exit 1; \
	done

clean:
	$(CARGO) clean
