//! The inputs that the fuzzer found worth keeping (`fuzz/corpus`), replayed on the stable compiler.

#[path = "../../../fuzz/promises/mod.rs"]
mod promises;

use std::panic::AssertUnwindSafe;
use std::path::Path;

/// Keeps the promise for each of at least so many inputs.
fn replay(target: &str, least: u32, promise: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        // Named only when it fails: a list of hundreds of files would hide what else the tests say.
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| promise(&input)));
        assert!(kept.is_ok(), "{}: the promise was broken (above)", path.display());
        count += 1;
    }
    assert!(count >= least, "{}: only {count} inputs", folder.display());
}

#[test]
fn the_corpus_of_capture_files_keeps_the_promises() {
    replay("capture_file", 300, promises::capture_file);
}

#[test]
fn the_corpus_of_filters_keeps_the_promises() {
    replay("filter", 30, promises::filter);
}

#[test]
fn the_corpus_of_offloads_keeps_the_promises() {
    replay("offload", 50, promises::offload);
}

#[test]
fn the_corpus_of_edits_keeps_the_promises() {
    replay("edit", 50, promises::edit);
}
