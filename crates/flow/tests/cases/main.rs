//! Every file of `tests/cases`, run by the interpreter.

mod runner;

use runner::run;
use std::path::Path;

#[test]
fn every_case_holds_for_the_interpreter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut cases, mut wrong) = (0, String::new());
    for file in files.iter().filter(|path| path.extension().is_some_and(|e| e == "case")) {
        match run(&std::fs::read_to_string(file).unwrap()) {
            Ok(count) => cases += count,
            Err(failures) => {
                for failure in failures {
                    let name = file.file_name().unwrap().display();
                    wrong += &format!("{name}:{}: {}: {}\n", failure.line, failure.case, failure.what);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(cases >= 60, "only {cases} cases were found");
    println!("{cases} cases");
}
