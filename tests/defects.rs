//! Known defects of other tools, B1 to B20, and the test that shows that pathlab does not have each.
//!
//! **What.** [`DEFECTS`] is the list: what the defect is, and either the test, with the file that it stands in beside the code, or why pathlab has
//! nothing that could have it. The tests of this file see that the list is whole and that the tests exist.

use std::fs;
use std::path::{Path, PathBuf};

/// What stands against a defect.
enum Against {
    /// A test: file and name.
    Test(&'static str, &'static str),
    /// Nothing in pathlab could have it, for this reason.
    Nothing(&'static str),
}
use Against::{Nothing, Test};

/// Number, what it is and where it was seen, and what stands against it.
const DEFECTS: &[(u8, &str, Against)] = &[
    (
        1,
        "a formula for line rate with preamble and gap in the wrong place (netmap's README)",
        Test(
            "crates/study/src/watch/tests.rs",
            "b01_b08_line_rate_has_preamble_fcs_and_gap_once_at_any_speed",
        ),
    ),
    (
        2,
        "RPS read from columns of softnet_stat that are always 0 (netutils-linux)",
        Test(
            "crates/linux/src/observe/cpus.rs",
            "b02_rps_and_the_flow_limit_are_read_where_the_kernel_writes_them",
        ),
    ),
    (
        3,
        "the largest ring parsed out of the text of ethtool -g, wrongly (fasterdata-tuning.sh)",
        Test("tests/defects.rs", "b03_b18_no_text_of_ethtool_is_read"),
    ),
    (
        4,
        "what is put back is a guess where it was not understood (fasterdata-tuning.sh: pfifo_fast)",
        Test("tests/switch/queues.rs", "what_cannot_have_queues_is_said"),
    ),
    (
        5,
        "a status that is the wrong way round; 2.5 GT/s read as 2 (mlnx_tune)",
        Nothing("pathlab reads neither CPU frequency nor PCI speed to judge them"),
    ),
    (
        6,
        "old settings of TCP given as advice (sysctl_perf_tuning)",
        Nothing("pathlab sets no sysctl of the host: its knobs are in linux::tune::KNOBS"),
    ),
    (
        7,
        "counts since boot told as if they were now (xsos)",
        Test("crates/study/src/watch/tests.rs", "b07_what_was_counted_before_the_interval_is_not_told"),
    ),
    (
        8,
        "a condition that cannot be true; classes of links that end at 10 Gb/s (NDT)",
        Test(
            "crates/study/src/watch/tests.rs",
            "b01_b08_line_rate_has_preamble_fcs_and_gap_once_at_any_speed",
        ),
    ),
    (
        9,
        "busy, receiver window and send buffer added up (ndt7)",
        Test("crates/study/src/tcp.rs", "b09_busy_contains_the_window_and_the_buffer"),
    ),
    (
        10,
        "a minimum that is always 0; counting that ends (LING's llstat)",
        Test(
            "crates/record/src/buckets.rs",
            "b10_the_minimum_is_a_value_that_was_seen_and_counting_has_no_end",
        ),
    ),
    (
        11,
        "drops of several places in one number (libtrace)",
        Test(
            "crates/study/src/capturing.rs",
            "b11_b20_losses_of_the_interface_stand_beside_those_of_the_socket_each_at_its_place",
        ),
    ),
    (
        12,
        "events thrown away without a count (pwru)",
        Test("tests/system/drops.rs", "under_a_flood_what_is_seen_and_what_is_lost_are_what_was_dropped"),
    ),
    (
        13,
        "fewer frames than asked for, without a word (trafgen)",
        Test(
            "crates/study/src/sending.rs",
            "b13_what_was_asked_for_and_did_not_leave_has_a_name_or_is_the_residual",
        ),
    ),
    (
        14,
        "the last column of softnet_stat taken for the CPU (Red Hat's manual)",
        Test("crates/linux/src/observe/cpus.rs", "b14_the_cpu_is_column_13_wherever_the_row_ends"),
    ),
    (
        15,
        "flags of ethtool explained as something else (Suricata's manual)",
        Nothing("pathlab sets no pause and no coalescing, and explains no flag of ethtool"),
    ),
    (
        16,
        "numbers of drop reasons, which differ between kernels",
        Test(
            "crates/linux/src/observe/drops_program_tests.rs",
            "b16_reasons_have_the_names_of_the_running_kernel",
        ),
    ),
    (
        17,
        "UdpInDatagrams taken for arrivals",
        Test("crates/study/src/ledger/twin/units.rs", "b17_what_waits_to_be_read_is_queued_and_not_lost"),
    ),
    (
        18,
        "text scraped because a version has no JSON (ethtool 6.1)",
        Test("tests/defects.rs", "b03_b18_no_text_of_ethtool_is_read"),
    ),
    (
        19,
        "a buffer below the minimum ignored without a word (libpcap)",
        Test("crates/linux/tests/sockets.rs", "a_ring_that_cannot_be_says_why"),
    ),
    (
        20,
        "only the socket's drops shown beside an interface that lost millions (PF_RING)",
        Test(
            "crates/study/src/capturing.rs",
            "b11_b20_losses_of_the_interface_stand_beside_those_of_the_socket_each_at_its_place",
        ),
    ),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_defect_has_a_test_or_a_reason() {
    let numbers: Vec<u8> = DEFECTS.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    for (number, what, against) in DEFECTS {
        match against {
            Test(file, name) => {
                let text = fs::read_to_string(root().join(file)).unwrap();
                let is_test = text.contains(&format!("#[test]\nfn {name}("))
                    || text.contains(&format!("#[test]\n    fn {name}("));
                assert!(is_test, "B{number}, {what}: there is no test {name} in {file}");
            }
            Nothing(reason) => assert!(reason.len() > 40, "B{number}"),
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => rust_files(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// Settings of interfaces are asked for by netlink (whose family is `b"ethtool"`): nothing in the program starts ethtool, so no change of its text can mislead it.
#[test]
fn b03_b18_no_text_of_ethtool_is_read() {
    let mut files = vec![];
    rust_files(&root().join("src"), &mut files);
    rust_files(&root().join("crates"), &mut files);
    files.retain(|file| file.components().any(|part| part.as_os_str() == "src"));
    assert!(files.len() > 200, "the sources were not found");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in
            program.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            assert!(
                !line.replace("b\"ethtool\"", "").contains("\"ethtool\""),
                "{}:{}: {line}",
                file.display(),
                number + 1
            );
        }
    }
}
