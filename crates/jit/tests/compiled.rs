//! The pages of `docs/compiled`: what the compiler makes of small pipelines, word for word.
//!
//! `PATHLAB_GOLDEN=1 cargo test -p jit --test compiled` writes them anew.

#![cfg(target_arch = "x86_64")]

use flow::Pipeline;
use flow::text::file;
use jit::explain::explain;
use std::path::Path;

#[test]
fn every_page_says_what_the_compiler_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compiled");
    let (mut pages, mut wrong) = (0, vec![]);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rules") {
            continue;
        }
        let mut pipeline = Pipeline::default();
        file::load(&mut pipeline, &std::fs::read_to_string(&path).unwrap()).unwrap();
        let text = explain(&pipeline).unwrap().to_string();
        let page = path.with_extension("txt");
        if std::env::var_os("PATHLAB_GOLDEN").is_some() {
            std::fs::write(&page, &text).unwrap();
        }
        if std::fs::read_to_string(&page).unwrap_or_default() != text {
            wrong.push(page);
        }
        pages += 1;
    }
    assert!(wrong.is_empty(), "these are out of date, see the head of this file: {wrong:?}");
    assert!(pages >= 20, "only {pages} pages");
}
