//! What `--json` prints: one table of the documents, their commands and their top-level fields.
//!
//! The table in `docs/json.md` is made of this one, and tests hold the two together, see that every command of the command line is
//! here, and that what a command prints has these fields. In a build with debug assertions a command that prints anything else ends
//! at once, so every test with `--json` is a test of this table.

/// One kind of document.
pub struct Document {
    /// Its name and version.
    pub schema: &'static str,
    /// The commands that print it.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/json.md is made of it"))]
    pub commands: &'static [&'static str],
    /// How many, and when.
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/json.md is made of it"))]
    pub form: &'static str,
    /// Its fields but for `schema`; one with a question mark may be absent.
    pub fields: &'static str,
}

/// One object, when the command ends.
const END: &str = "at the end";
/// One object a line.
const LINES: &str = "a line each";

const fn of(
    schema: &'static str,
    commands: &'static [&'static str],
    form: &'static str,
    fields: &'static str,
) -> Document {
    Document { schema, commands, form, fields }
}

/// Every document.
pub const DOCUMENTS: &[Document] = &[
    of("pathlab/lab-up/1", &["lab up"], END, "lab milliseconds topology"),
    of("pathlab/lab-down/1", &["lab down"], END, "down inhabitants"),
    of("pathlab/lab-list/1", &["lab list"], END, "labs"),
    of("pathlab/lab-check/1", &["lab check"], END, "lab interfaces differing tenants"),
    of("pathlab/lab-show/1", &["lab show"], END, "file topology"),
    of("pathlab/undo/1", &["undo"], END, "undone"),
    of(
        record::run::SCHEMA,
        &["run", "show"],
        END,
        "id begun ended label? host plan_name topology_name plan topology seed command way? tests findings invalid",
    ),
    of("pathlab/ways/1", &["run --path"], END, "group seed ways notes criteria findings"),
    of("pathlab/runs/1", &["runs"], END, "directory total runs"),
    of("pathlab/runs-delete/1", &["runs delete"], END, "directory deleted"),
    of("pathlab/report/1", &["report"], END, "file bytes runs"),
    of("pathlab/serve/1", &["serve"], "as soon as tests are answered", "listening"),
    of("pathlab/test/1", &["test"], END, "host spec sender receiver warm ports clock summary"),
    of(
        record::capture::SECOND,
        &["capture"],
        "a line each second, not with `--quiet`",
        "second duration_ns frames bytes frames_per_s rate_bps total_frames drops freezes",
    ),
    of(
        record::capture::SCHEMA,
        &["capture"],
        "a line, at the end",
        "port filter? begun_ns duration_ns ended captured bytes frames_per_s rate_bps cut filtered after threads drops freezes \
         account? written? recorded? census settings notes?",
    ),
    of(
        record::send::SCHEMA,
        &["send"],
        END,
        "port source filled replay rate threads settings frames bytes seconds frames_per_second bits_per_second schedule \
         full_waits thread_cpu_ns stamps? interrupted notes",
    ),
    of("pathlab/frame/1", &["send --print"], LINES, "number line hex"),
    of(
        "pathlab/calibration/1",
        &["send --calibrate"],
        END,
        "source port program_per_second port_per_second limit settings",
    ),
    of(
        record::half::JOIN_SCHEMA,
        &["join"],
        END,
        "sending capturing numbering flows one_clock missing reordered delay_ns delay_unknown passed why record run",
    ),
    of("pathlab/null/1", &["null"], END, "duration_ns spin ports ways"),
    of("pathlab/switch/1", &["switch"], END, "switches"),
    of("pathlab/flow-trace/1", &["flow trace"], END, "steps sent packet_ins"),
    of(
        "pathlab/flow-change/1",
        &["flow add", "flow mod", "flow del"],
        END,
        "switch openflow sent removed refused",
    ),
    of("pathlab/flow-dump/1", &["flow dump"], END, "switch openflow rules packet_ins"),
    of(
        "pathlab/flow-monitor/1",
        &["flow monitor"],
        LINES,
        "switch openflow at_ns event reason? rule? table? priority? cookie? transaction? port? name? config? state? \
         total_bytes? hex?",
    ),
    of("pathlab/flow-diff/1", &["flow diff"], END, "switch openflow same missing extra"),
    of("pathlab/flow-packet-out/1", &["flow packet-out"], END, "switch bytes"),
    of("pathlab/flow-groups/1", &["flow groups"], END, "switch openflow groups"),
    of("pathlab/flow-meters/1", &["flow meters"], END, "switch openflow meters"),
    of("pathlab/flow-ports/1", &["flow ports"], END, "switch openflow ports"),
    of("pathlab/flow-queues/1", &["flow queues"], END, "switch openflow queues"),
    of("pathlab/flow-tables/1", &["flow tables"], END, "switch openflow tables"),
    of(
        "pathlab/flow-show/1",
        &["flow show"],
        END,
        "switch openflow dpid tables buffers capabilities fragments miss_send_bytes manufacturer hardware software serial \
         description ports",
    ),
    of("pathlab/controller/1", &["controller"], END, "scenario switches"),
    of("pathlab/shims/1", &["shims"], END, "folder program links"),
    of(
        "pathlab/bench-peers/1",
        &["bench peers"],
        END,
        "topology rounds seconds kernel cpu_model offloads placement contests",
    ),
    of(record::bench::CAPTURE, &["bench capture"], END, "directory head results versus"),
    of(record::bench::SEND, &["bench send"], END, "directory head results versus"),
    of(
        "pathlab/bench-null/1",
        &["bench null"],
        END,
        "rounds milliseconds frame_bytes kernel cpu_model cpus placement contract pairings absent",
    ),
    of("pathlab/completions/1", &["completions"], END, "shell script"),
    of("pathlab/man/1", &["man"], END, "folder pages"),
];

/// Commands without a document, and why.
#[cfg(test)]
pub const WITHOUT: &[(&str, &str)] = &[("lab exec", "its output is the program's own")];

impl Document {
    /// Its fields and whether each is always there; `schema` is the first.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let split = |field: &'static str| field.strip_suffix('?').map_or((field, true), |name| (name, false));
        std::iter::once(("schema", true)).chain(self.fields.split_whitespace().map(split))
    }
}

/// What is wrong with a document that is to be printed; none when it is as the table says.
pub fn fault(document: &serde_json::Value) -> Option<String> {
    let Some(object) = document.as_object() else { return Some("it is not an object".into()) };
    let schema = object.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
    let Some(known) = DOCUMENTS.iter().find(|document| document.schema == schema) else {
        return Some(format!("its schema '{schema}' is not in the table"));
    };
    let fields: Vec<(&str, bool)> = known.fields().collect();
    let unknown = object.keys().find(|key| !fields.iter().any(|(name, _)| name == key));
    let absent = fields.iter().find(|(name, always)| *always && !object.contains_key(*name));
    unknown
        .map(|key| format!("{schema} has a field '{key}' that is not in the table"))
        .or_else(|| absent.map(|(name, _)| format!("{schema} lacks the field '{name}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::fmt::Write;

    /// The table as `docs/json.md` has it.
    fn markdown() -> String {
        let mut text = "| command | schema | printed | top-level fields |\n|---|---|---|---|\n".to_owned();
        for document in DOCUMENTS {
            let commands: Vec<String> = document.commands.iter().map(|name| format!("`{name}`")).collect();
            let fields: Vec<String> =
                document.fields.split_whitespace().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(
                text,
                "| {} | `{}` | {} | {} |",
                commands.join(", "),
                document.schema,
                document.form,
                fields.join(" ")
            );
        }
        for (command, why) in WITHOUT {
            let _ = writeln!(text, "| `{command}` | – | {why} | |");
        }
        text
    }

    fn docs() -> String {
        std::fs::read_to_string("docs/json.md").unwrap()
    }

    /// Every command that can be given, but for the hidden ones: words from the command line.
    fn commands(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            let name = format!("{before}{}", sub.get_name());
            if !sub.has_subcommands() || !sub.is_subcommand_required_set() {
                found.push(name.clone());
            }
            commands(sub, &format!("{name} "), found);
        }
    }

    #[test]
    fn every_command_has_a_document_and_every_document_a_command() {
        let mut all = vec![];
        commands(&crate::cli::Cli::command(), "", &mut all);
        assert!(all.len() > 30, "{all:?}");
        let known = |name: &str| {
            DOCUMENTS.iter().any(|document| document.commands.contains(&name))
                || WITHOUT.iter().any(|(command, _)| *command == name)
        };
        let missing: Vec<&String> = all.iter().filter(|name| !known(name)).collect();
        assert!(missing.is_empty(), "commands without a document: {missing:?}");
        for name in DOCUMENTS.iter().flat_map(|document| document.commands) {
            // A flag behind the command chooses another document.
            let words = name.split(" --").next().unwrap_or_default();
            assert!(all.iter().any(|command| command == words), "there is no command '{name}'");
        }
    }

    #[test]
    fn the_documentation_has_the_table() {
        let (docs, table) = (docs(), markdown());
        assert!(docs.contains(&table), "docs/json.md must contain this table:\n{table}");
    }

    /// Behind the table each document is described: its section, or its row of a table, has every field.
    #[test]
    fn every_field_of_every_document_is_described() {
        let docs = docs().replace(&markdown(), "");
        let lines: Vec<&str> = docs.lines().collect();
        for document in DOCUMENTS {
            let name = format!("`{}`", document.schema);
            let heads = |line: &str| line.starts_with('#') && line.contains("`pathlab/");
            let text = match lines.iter().position(|line| line.starts_with('#') && line.contains(&name)) {
                Some(first) => {
                    let rest = lines[first + 1..].iter().take_while(|line| !heads(line));
                    rest.copied().collect::<Vec<_>>().join("\n")
                }
                None => {
                    let row = lines.iter().find(|line| line.starts_with(&format!("| {name}")));
                    let common = " `schema` `switch` `openflow`"; // said once above these rows
                    row.unwrap_or_else(|| panic!("{name} has no section and no row")).to_string() + common
                }
            };
            for (field, _) in document.fields() {
                assert!(text.contains(&format!("`{field}`")), "{name}: `{field}` is not described");
            }
        }
    }

    #[test]
    fn another_document_is_a_fault() {
        let fault = |json: serde_json::Value| fault(&json).unwrap_or_default();
        assert_eq!(fault(serde_json::json!({"schema": "pathlab/man/1", "folder": "x", "pages": []})), "");
        assert!(
            fault(serde_json::json!({"schema": "pathlab/man/1", "folder": "x"}))
                .contains("lacks the field 'pages'")
        );
        let more = serde_json::json!({"schema": "pathlab/undo/1", "undone": [], "more": 1});
        assert!(fault(more).contains("'more'"));
        assert!(fault(serde_json::json!({"schema": "pathlab/other/1"})).contains("not in the table"));
        assert!(fault(serde_json::json!([])).contains("not an object"));
    }
}
