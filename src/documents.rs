//! What `--json` prints: the table in `docs/json.md` has every document, the commands that print it and its top-level fields.
//!
//! Tests see that every command of the command line is in it and that every field is described below it. In a build with debug
//! assertions a command that prints anything else ends at once, so every test with `--json` is a test of this table.

use serde_json::Value;

const DOCS: &str = include_str!("../docs/json.md");

/// The rows of the table: commands, schema, when it is printed, fields.
fn rows() -> impl Iterator<Item = [&'static str; 4]> {
    let table = DOCS.lines().skip_while(|line| !line.starts_with("| command |")).skip(2);
    table.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    })
}

/// The words of a cell that stand in backquotes.
fn quoted(cell: &'static str) -> impl Iterator<Item = &'static str> {
    cell.split('`').skip(1).step_by(2)
}

/// The fields of a cell and whether each is always there; `schema` is the first.
fn fields(cell: &'static str) -> impl Iterator<Item = (&'static str, bool)> {
    let split = |field: &'static str| field.strip_suffix('?').map_or((field, true), |name| (name, false));
    std::iter::once(("schema", true)).chain(quoted(cell).map(split))
}

/// What is wrong with a document that is about to be printed; `None` when it is as the table says.
pub fn fault(document: &Value) -> Option<String> {
    let Some(object) = document.as_object() else { return Some("it is not an object".into()) };
    let schema = object.get("schema").and_then(Value::as_str).unwrap_or_default();
    let Some([.., cell]) = rows().find(|row| quoted(row[1]).next() == Some(schema)) else {
        return Some(format!("its schema '{schema}' is not in the table"));
    };
    let unknown = object.keys().find(|key| !fields(cell).any(|(name, _)| name == *key));
    let absent = fields(cell).find(|(name, always)| *always && !object.contains_key(*name));
    unknown
        .map(|key| format!("{schema} has a field '{key}' that is not in the table"))
        .or_else(|| absent.map(|(name, _)| format!("{schema} lacks the field '{name}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
        let known: Vec<&str> = rows().flat_map(|row| quoted(row[0])).collect();
        let missing: Vec<&String> = all.iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "commands without a document: {missing:?}");
        for name in known {
            // A flag after the command chooses another document.
            let words = name.split(" --").next().unwrap_or_default();
            assert!(all.iter().any(|command| command == words), "there is no command '{name}'");
        }
    }

    #[test]
    fn every_row_of_the_table_is_whole() {
        let mut schemas = vec![];
        for row @ [commands, schema, printed, cell] in rows() {
            assert!(quoted(commands).count() > 0 && !printed.is_empty(), "{row:?}");
            match quoted(schema).next() {
                Some(name) => {
                    assert!(name.starts_with("pathlab/") && quoted(cell).count() > 0, "{row:?}");
                    schemas.push(name);
                }
                None => assert_eq!((schema, cell), ("–", ""), "{row:?}"),
            }
        }
        let all = schemas.len();
        schemas.sort_unstable();
        schemas.dedup();
        assert!(all > 40 && schemas.len() == all, "{schemas:?}");
    }

    /// Behind the table each document is described: its section, or its row of a table, has every field.
    #[test]
    fn every_field_of_every_document_is_described() {
        let behind = DOCS.lines().skip_while(|line| !line.starts_with("| command |"));
        let lines: Vec<&str> = behind.skip_while(|line| line.starts_with('|')).collect();
        for [_, name, _, cell] in rows().filter(|row| quoted(row[1]).next().is_some()) {
            let heads = |line: &str| line.starts_with('#') && line.contains("`pathlab/");
            let text = match lines.iter().position(|line| line.starts_with('#') && line.contains(name)) {
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
            for (field, _) in fields(cell) {
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
