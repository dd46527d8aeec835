//! The inputs that the fuzzer found worth keeping (`fuzz/corpus`), replayed on the stable compiler.

#[path = "../../../fuzz/promises/openflow.rs"]
mod promises;

use std::path::Path;

#[test]
fn the_corpus_of_openflow_messages_keeps_the_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/openflow_message");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        promises::openflow_message(&std::fs::read(path).unwrap());
        count += 1;
    }
    assert!(count >= 100, "{}: only {count} inputs", folder.display());
}
