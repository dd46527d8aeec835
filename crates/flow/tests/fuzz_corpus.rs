//! The inputs that the fuzzer found worth keeping (`fuzz/corpus`), replayed on the stable compiler.

#[path = "../../../fuzz/promises/channel.rs"]
mod channel;
#[path = "../../../fuzz/promises/openflow.rs"]
mod openflow;
#[path = "../../../fuzz/promises/text.rs"]
mod text;

use std::panic::AssertUnwindSafe;
use std::path::Path;

/// Every input of a corpus, which must not be gone.
fn replay(corpus: &str, promise: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        // Named only when it fails: a list of hundreds of files would hide what else the tests say.
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| promise(&input)));
        assert!(kept.is_ok(), "{}: the promise was broken (above)", path.display());
        count += 1;
    }
    assert!(count >= 100, "{}: only {count} inputs", folder.display());
}

#[test]
fn the_corpus_of_openflow_messages_keeps_the_promises() {
    replay("openflow_message", openflow::openflow_message);
}

#[test]
fn the_corpus_of_rules_as_text_keeps_the_promises() {
    replay("rule_text", text::rule_text);
}

#[test]
fn the_corpus_of_channels_keeps_the_promises() {
    replay("channel", channel::channel);
}
