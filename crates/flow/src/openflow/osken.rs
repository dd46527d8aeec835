//! The codec against os-ken: its recorded messages, random messages of ours that it reads, and random messages of its own that we
//! read. Every field is compared by name and value, in both directions: a field that only one side has is a failure unless it is in
//! one of the short lists here.

use super::bytes::{Tagged, Version};
use super::message::{Body, Message};
use super::sample::Sampler;
use super::tree::Tree;
use crate::text::hex;
use serde_json::{Map, Value};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The interpreter that `tests/peers.sh` makes; `None`, with a line that says so, when it is not there.
fn osken(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/peers/osken/bin/python");
    if python.exists() {
        return Some(python);
    }
    println!("SKIP: {test}: os-ken 3.1.0 is not in target/peers/osken (tests/peers.sh puts it there)");
    None
}

fn run(python: &Path, arguments: &[&str], input: Vec<u8>) -> Vec<Map<String, Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/osken/codec.py");
    let mut child = Command::new(python)
        .arg(script)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "codec.py {arguments:?} failed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![];
    for four in text.as_bytes().chunks(4) {
        let digits = four.iter().take_while(|c| **c != b'=');
        let values: Option<Vec<u32>> =
            digits.map(|c| DIGITS.iter().position(|d| d == c).map(|at| at as u32)).collect();
        let values = values?;
        let number = values.iter().fold(0, |sum, value| sum << 6 | value) << (6 * (4 - values.len()));
        bytes.extend_from_slice(&number.to_be_bytes()[1..values.len().max(1)]);
    }
    Some(bytes)
}

/// os-ken wraps a structure into the name of its class.
fn unwrap(value: &Value) -> (&str, &Value) {
    match value.as_object() {
        Some(object) if object.len() == 1 => {
            let (class, inner) = object.iter().next().unwrap();
            let is_class = class.starts_with(|c: char| c.is_ascii_uppercase());
            if is_class { (class, inner) } else { ("", value) }
        }
        _ => ("", value),
    }
}

/// What os-ken calls our field. The first name that it has counts.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("matching", &["match"]),
    ("kind", &["type"]),
    ("port_no", &["port"]),
    ("actions", &["actions", "action_ids"]),
    ("body", &["body", "mask", "instruction_ids", "action_ids", "oxm_ids", "table_ids"]),
    ("ttl", &["nw_ttl", "mpls_ttl"]),
    ("code", &["exp_type"]),
];

/// What os-ken says and we do not: what follows from the rest, or is in the header.
const THEIRS_ALONE: &[&str] =
    &["len", "length", "type", "event", "property", "actions_len", "experimenter_type"];

/// What we say and os-ken does not.
const OURS_ALONE: &[&str] = &["version", "xid", "importance", "elements"];

struct Compared {
    fields: usize,
    wrong: Vec<String>,
}

impl Compared {
    fn fail(&mut self, path: &str, ours: &Tree, theirs: &Value) {
        self.wrong.push(format!("{path}: ours {ours}, theirs {theirs}"));
    }

    fn compare(&mut self, path: &str, ours: &Tree, theirs: &Value) {
        let (class, theirs) = unwrap(theirs);
        // Experimenters' structures that os-ken knows by name are bytes here.
        if ["NX", "Nicira", "ONF"].iter().any(|who| class.starts_with(who)) {
            return;
        }
        self.fields += 1;
        let same = match (ours, theirs) {
            (Tree::Part("oxm", _), Value::Object(theirs)) => return self.oxm(path, ours, theirs),
            (Tree::Part(name, fields), Value::Object(theirs)) => {
                return self.part(path, name, fields, theirs);
            }
            (Tree::List(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                for (index, (one, other)) in ours.iter().zip(theirs).enumerate() {
                    self.compare(&format!("{path}[{index}]"), one, other);
                }
                true
            }
            (Tree::Number(number) | Tree::Code(number, _), Value::Number(other)) => {
                other.as_u64() == Some(*number)
            }
            (Tree::Text(text), Value::Object(id)) => {
                let masked = id.get("hasmask").and_then(Value::as_u64) == Some(1);
                let name = id.get("type").and_then(Value::as_str).unwrap_or_default();
                *text == if masked { format!("{name}/mask") } else { name.to_owned() }
            }
            // The data of a refused hello are text here.
            (Tree::Text(text), Value::String(other)) if path == "error.data" => base64(other)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .is_some_and(|other| other.trim_end_matches('\0') == text),
            (Tree::Text(text), Value::String(other)) => text == other,
            (Tree::Bytes(bytes), Value::String(other)) => base64(other).as_ref() == Some(bytes),
            // os-ken takes an experimenter's data for numbers of 32 bits, in 1.3's queues of 8.
            (Tree::Bytes(bytes), Value::Array(words)) => {
                let size = if words.len() == bytes.len() { 1 } else { 4 };
                let word = |word: &Value| (word.as_u64().unwrap_or_default() as u32).to_be_bytes();
                words.iter().flat_map(|one| word(one)[4 - size..].to_vec()).collect::<Vec<_>>() == *bytes
            }
            // A frame that os-ken took apart; that it comes back is checked by its bytes.
            (Tree::Bytes(_), Value::Object(packet)) => packet.contains_key("protocols"),
            (Tree::Part(..), Value::Array(one)) if one.len() == 1 => {
                return self.compare(path, ours, &one[0]);
            }
            (Tree::Bytes(bytes), Value::Null) => bytes.is_empty(),
            (Tree::List(all), Value::Null) => all.is_empty(),
            _ => false,
        };
        if !same {
            self.fail(path, ours, theirs);
        }
    }

    /// A field of a match: text on our side, what Python has on the other.
    fn oxm(&mut self, path: &str, ours: &Tree, theirs: &Map<String, Value>) {
        let text = |name| match ours.field(name) {
            Some(Tree::Text(text)) => text.clone(),
            _ => String::new(),
        };
        if text("field").starts_with("class_") || text("field").starts_with("experimenter_") {
            return;
        }
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        for name in ["field", "value", "mask"] {
            let same = match &theirs[name] {
                Value::Null => text(name).is_empty(),
                Value::Number(other) => other.as_u64() == number(&text(name)),
                Value::String(other) => *other == text(name),
                _ => false,
            };
            if !same {
                self.fail(&format!("{path}.{name}"), ours, &theirs[name]);
            }
        }
    }

    fn part(&mut self, path: &str, name: &str, fields: &[(&'static str, Tree)], theirs: &Map<String, Value>) {
        let fields = flat(name, fields, theirs);
        let mut seen: Vec<&str> = vec![];
        for (field, value) in &fields {
            let others =
                OTHER_NAMES.iter().find(|(ours, _)| ours == field).map_or(&[][..], |(_, others)| others);
            let key = std::iter::once(field)
                .chain(others)
                .find(|key| theirs.get(**key).is_some_and(|value| !value.is_null() || others.is_empty()));
            match key {
                Some(key) => {
                    seen.push(key);
                    self.compare(&format!("{path}.{key}"), value, &theirs[*key]);
                }
                None if OURS_ALONE.contains(field) || *value == &Tree::Bytes(vec![]) => {}
                // 1.3's queues have experimenters without a kind.
                None if (*field, *value) == ("exp_type", &Tree::Number(0)) => {}
                None => self.wrong.push(format!("{path}: {field}={value} is ours alone, in {name}")),
            }
        }
        for (key, value) in theirs {
            if !seen.contains(&key.as_str()) && !THEIRS_ALONE.contains(&key.as_str()) && !nothing(value) {
                self.wrong.push(format!("{path}: {key}={value} is theirs alone, in {name}"));
            }
        }
    }
}

/// Our fields in os-ken's shape: 1.3's fixed fields are properties here, and a request's body is one with its head there.
fn flat<'a>(
    name: &str,
    fields: &'a [(&'static str, Tree)],
    theirs: &Map<String, Value>,
) -> Vec<(&'static str, &'a Tree)> {
    let mut all = vec![];
    for (field, value) in fields {
        match (value, *field) {
            (Tree::List(properties), "properties") if !theirs.contains_key("properties") => {
                for property in properties {
                    if let Tree::Part(_, inner) = property {
                        all.extend(inner.iter().map(|(field, value)| (*field, value)));
                    }
                }
            }
            (Tree::Part(_, inner), "body") if !theirs.contains_key("body") => {
                all.extend(inner.iter().map(|(field, value)| (*field, value)));
            }
            // A question of a list is one item in os-ken, its flags beside those of the message.
            (Tree::List(one), "body")
                if name == "multipart_request" && one.len() == 1 && !theirs.contains_key("body") =>
            {
                if let Tree::Part(_, inner) = &one[0] {
                    let name = |field: &'static str| if field == "flags" { "monitor_flags" } else { field };
                    all.extend(inner.iter().map(|(field, value)| (name(field), value)));
                }
            }
            (Tree::List(none), "body") if none.is_empty() && name == "multipart_request" => {}
            _ => all.push((*field, value)),
        }
    }
    all
}

/// Says nothing: os-ken gives every instruction with actions a list, `clear_actions` too.
fn nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// The masks of 1.3, which are properties here.
fn masks13(message: &Message) -> Option<Tree> {
    let properties = match &message.body {
        Body::SetAsync(config) | Body::GetAsyncReply(config) if message.version == Version::V13 => {
            &config.properties
        }
        _ => return None,
    };
    let mask = |name: &str| {
        let property = properties.iter().find(|property| property.name() == name).unwrap();
        property.body_tree().field("body").unwrap().clone()
    };
    let pair = |kind: &str| Tree::List(vec![mask(&format!("{kind}_master")), mask(&format!("{kind}_slave"))]);
    let fields = vec![
        ("packet_in_mask", pair("packet_in")),
        ("port_status_mask", pair("port_status")),
        ("flow_removed_mask", pair("flow_removed")),
    ];
    Some(Tree::Part("async", fields))
}

/// Compares one message with os-ken's JSON; gives how many fields were compared.
fn agree(name: &str, message: &Message, theirs: &Value) -> Result<usize, String> {
    let mut compared = Compared { fields: 0, wrong: vec![] };
    let ours = masks13(message).unwrap_or_else(|| message.tree());
    compared.compare(message.body.name(), &ours, theirs);
    match compared.wrong.is_empty() {
        true => Ok(compared.fields),
        false => Err(format!("{name}: {message}\n  {}", compared.wrong.join("\n  "))),
    }
}

/// Those of os-ken's recordings that are not what the standard says, and why.
const NOT_STANDARD: &[(&str, &str)] = &[(
    "of13/4-63-onf_flow_monitor_request.packet",
    "the match has no header and comes back with one, as Open vSwitch wants it (tests.rs)",
)];

fn check(told: &[Map<String, Value>]) -> usize {
    let mut wrong = vec![];
    let mut fields = 0;
    for line in told {
        let (name, bytes) = (line["name"].as_str().unwrap(), bytes_of(line["hex"].as_str().unwrap()));
        if NOT_STANDARD.iter().any(|(other, _)| *other == name) {
            continue;
        }
        match Message::decode(&bytes) {
            Ok(message) => {
                let again = message.encode().unwrap();
                if again != bytes {
                    wrong.push(format!("{name}: {message}\n  was {}\n  now {}", hex(&bytes), hex(&again)));
                }
                match agree(name, &message, &line["json"]) {
                    Ok(compared) => fields += compared,
                    Err(why) => wrong.push(why),
                }
            }
            Err(fault) => wrong.push(format!("{name}: {fault}: {}", hex(&bytes))),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), told.len(), wrong.join("\n"));
    println!("{} messages, {fields} fields agree", told.len());
    fields
}

#[test]
fn os_kens_recorded_messages_are_read_alike_and_come_back() {
    let Some(python) = osken("os-ken's recorded messages") else { return };
    let told = run(&python, &["files"], vec![]);
    assert!(told.len() > 150, "only {} recordings", told.len());
    check(&told);
}

#[test]
fn random_messages_of_os_ken_are_read_alike() {
    let Some(python) = osken("random messages of os-ken") else { return };
    let seed = seed().to_string();
    let told = run(&python, &["make", &seed, "600"], vec![]);
    println!("seed {seed}");
    assert_eq!(told.len(), 600);
    check(&told);
}

#[test]
fn os_ken_reads_our_random_messages_alike() {
    let Some(python) = osken("our random messages") else { return };
    let seed = seed();
    println!("seed {seed}");
    let messages: Vec<Message> = (0..4000).filter_map(|index| for_os_ken(seed + index)).collect();
    let lines: Vec<String> = messages.iter().map(|message| hex(&message.encode().unwrap())).collect();
    let told = run(&python, &["parse"], lines.join("\n").into_bytes());
    assert_eq!(told.len(), messages.len());
    let mut wrong = vec![];
    for (message, line) in messages.iter().zip(&told) {
        match line.get("json") {
            Some(json) => wrong.extend(agree("ours", message, json).err()),
            None => wrong.push(format!("{message}\n  os-ken: {}", line["error"])),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), messages.len(), wrong.join("\n"));
    assert!(messages.len() > 400, "only {} messages", messages.len());
    println!("{} messages agree", messages.len());
}

/// Another seed each day: `PATHLAB_SEED` repeats one.
fn seed() -> u64 {
    let day =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    std::env::var("PATHLAB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(day)
}

/// A random message of a type that os-ken can read (it reads what a controller receives).
fn for_os_ken(seed: u64) -> Option<Message> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let bytes: Vec<u8> = (0..400).map(|_| byte()).collect();
    let message = Sampler::new(&bytes, Version::ALL[usize::from(seed % 2 == 1)]).message();
    let readable = [0, 1, 2, 3, 6, 8, 10, 11, 12, 14, 19, 21, 23, 25, 27, 30, 31, 33];
    (readable.contains(&message.body.number()) && os_ken_can_read(&message)).then_some(message)
}

/// Where os-ken 3.1.0 differs from the standard, or stops.
fn os_ken_can_read(message: &Message) -> bool {
    let text = message.to_string();
    // It takes an experimenter's data for 32-bit words and refuses fields of experimenters that it does not know; its recordings have
    // the ones that it reads.
    let experimenter = text.contains("experimenter");
    let odd = match &message.body {
        // It hangs on an element that it does not know, and loses bit 31 of a bitmap.
        Body::Hello(_) => text.contains("element(") || text.contains("31]"),
        // It cuts the data where the whole frame would end.
        Body::PacketIn(packet_in) => usize::from(packet_in.total_len) < packet_in.data.0.len(),
        // Of the updates of a monitor it reads initial, abbreviated and paused, and none of 1.3's.
        Body::MultipartReply(_) => {
            text.contains("type=flow_monitor")
                && (message.version == Version::V13
                    || ["added(", "removed(", "modified(", "resumed"]
                        .iter()
                        .any(|event| text.contains(event)))
        }
        _ => false,
    };
    !experimenter && !odd
}
