//! The inputs that the fuzzer found worth keeping (`fuzz/corpus`), replayed on the stable compiler.

#[path = "../../../fuzz/promises.rs"]
mod promises;

use std::path::Path;

fn replay(target: &str, promise: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        promise(&std::fs::read(path).unwrap());
        count += 1;
    }
    assert!(count > 100, "{}: only {count} inputs", folder.display());
}

#[test]
fn the_corpus_of_capture_files_keeps_the_promises() {
    replay("capture_file", promises::capture_file);
}
