//! Text to [`Template`]. Every problem says where: line and column, both from 1.

use super::fields::{HeaderField, LAYERS, LayerKind, read_number};
use super::size::{MAX_WEIGHTS, Size};
use super::value::{Bytes, Choice, Value, VaryBy};
use super::{LONGEST, Layer, Template};
use record::{Problem, Result};

/// A word with its place; `file` is the name of the file or flag.
#[derive(Debug, Clone)]
struct Word<'a> {
    text: String,
    file: &'a str,
    line: usize,
    column: usize,
}

impl Word<'_> {
    fn bad(&self, what: impl Into<String>) -> Problem {
        Problem::input(what).at(format!("{}:{}:{}", self.file, self.line, self.column))
    }

    fn unexpected(&self, advice: &str) -> Problem {
        self.bad(format!("'{}' does not belong here", self.text)).help(advice)
    }
}

/// Reads the whole text.
pub(super) fn parse(text: &str, place: &str) -> Result<Template> {
    let mut template = Template::default();
    let mut said = vec![];
    for item in items(text, place)? {
        let (first, rest) = item.split_first().expect("an item has a word");
        match (first.text.as_str(), LayerKind::named(&first.text)) {
            (_, Some(kind)) => {
                let layer = layer(kind, first, rest, template.layers.last())?;
                template.layers.push(layer);
            }
            (name @ ("size" | "flows" | "seed"), None) => {
                if said.contains(&first.text) {
                    return Err(first.bad(format!("'{name}' is given twice")));
                }
                said.push(first.text.clone());
                directive(&mut template, first, rest)?;
            }
            (other, None) => return Err(unknown_layer(first, other)),
        }
    }
    if template.layers.is_empty() {
        return Err(Problem::input("the template has no layer")
            .at(place)
            .help("write for example eth / ip dst=10.0.0.2 / udp dport=9"));
    }
    check_sizes(&template, &said, place)?;
    Ok(template)
}

fn unknown_layer(word: &Word<'_>, name: &str) -> Problem {
    let names: Vec<&str> = LAYERS.iter().map(|facts| facts.names[0]).collect();
    word.bad(format!("there is no layer '{name}'"))
        .help(format!("the layers are {}; size, flows and seed may stand beside them", names.join(", ")))
}

fn check_sizes(template: &Template, said: &[String], place: &str) -> Result<()> {
    let shortest = template.shortest();
    let longest = template.size.as_ref().and_then(|size| size.all().last().copied()).unwrap_or(shortest);
    let smallest = template.size.as_ref().and_then(|size| size.all().first().copied()).unwrap_or(shortest);
    if smallest < shortest {
        return Err(Problem::input(format!(
            "a frame of {smallest} bytes is too short for its layers, which have {shortest}"
        ))
        .at(place)
        .help(match &template.size {
            Some(size) => format!("sizes that fit, without FCS: size {}", size.at_least(shortest)),
            None => "make the payload shorter".to_owned(),
        }));
    }
    if longest > LONGEST {
        return Err(Problem::input(format!(
            "a frame of {longest} bytes is too long; the longest is {LONGEST}"
        ))
        .at(place));
    }
    if template.flows == 0 && said.iter().any(|name| name == "flows") {
        return Err(Problem::input("flows must be at least 1").at(place));
    }
    Ok(())
}

/// Splits into items (lines, or what stands between `/`) of words.
fn items<'a>(text: &str, file: &'a str) -> Result<Vec<Vec<Word<'a>>>> {
    let mut items = vec![];
    for (index, line) in text.lines().enumerate() {
        let mut item: Vec<Word<'_>> = vec![];
        for word in words(line, index + 1, file)? {
            if word.text == "/" {
                items.push(std::mem::take(&mut item));
            } else {
                item.push(word);
            }
        }
        items.push(item);
    }
    items.retain(|item| !item.is_empty());
    Ok(items)
}

/// Words of a line. Quotes and brackets hold a word together; a `#` at the start of a word ends the line.
fn words<'a>(line: &str, number: usize, file: &'a str) -> Result<Vec<Word<'a>>> {
    let mut words: Vec<Word<'_>> = vec![];
    let mut inside: Option<Word<'_>> = None;
    let (mut quoted, mut escaped, mut depth) = (false, false, 0usize);
    for (at, c) in line.chars().enumerate() {
        if !quoted && depth == 0 && (c.is_whitespace() || (c == '#' && inside.is_none())) {
            words.extend(inside.take());
            if c == '#' {
                break;
            }
            continue;
        }
        let word =
            inside.get_or_insert_with(|| Word { text: String::new(), file, line: number, column: at + 1 });
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' | '(' if !quoted => depth += 1,
            '}' | ')' if !quoted => depth = depth.saturating_sub(1),
            _ if !quoted && c.is_whitespace() => continue,
            _ => {}
        }
        word.text.push(c);
    }
    if let Some(word) = inside {
        if quoted || depth > 0 {
            return Err(word.bad(if quoted { "a quote is not closed" } else { "a bracket is not closed" }));
        }
        words.push(word);
    }
    Ok(words)
}

fn directive(template: &mut Template, first: &Word<'_>, rest: &[Word<'_>]) -> Result<()> {
    let Some(word) = rest.first() else {
        return Err(first.bad(format!("'{}' has no value", first.text)));
    };
    let extra = rest.get(1);
    match first.text.as_str() {
        "size" => {
            let fcs = match extra {
                None => 0,
                Some(word) if word.text == "fcs" => 4,
                Some(other) => return Err(other.unexpected("only 'fcs' may follow a size")),
            };
            template.size = Some(size(word, fcs)?);
            return rest.get(2).map_or(Ok(()), |other| Err(other.unexpected("end the line here")));
        }
        name => {
            let number = read_number(&word.text).and_then(|n| u64::try_from(n).ok());
            let Some(number) = number else {
                return Err(word
                    .bad(format!("'{}' is not a number", word.text))
                    .help(format!("write {name} 100")));
            };
            if name == "flows" { template.flows = number } else { template.seed = number }
        }
    }
    extra.map_or(Ok(()), |other| Err(other.unexpected("end the line here")))
}

const SIZES: &str = "write a size such as 60, 60..1514, random(60..1514), imix or {60:7,566:4,1514:1}, with 'fcs' behind it if the FCS is counted";

fn size(word: &Word<'_>, fcs: usize) -> Result<Size> {
    let text = word.text.as_str();
    let bad = || word.bad(format!("'{text}' is not a size")).help(SIZES);
    let one = |text: &str| -> Option<usize> {
        let size = usize::try_from(read_number(text)?).ok()?.checked_sub(fcs)?;
        (size > 0 && size <= LONGEST).then_some(size)
    };
    let pair = |text: &str| pair(text, one);
    let found = if text == "imix" {
        Some(Size::imix())
    } else if let Some(inner) = call(text, "random") {
        pair(inner).map(|(from, to)| Size::Random(from, to))
    } else if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let weighted = |part: &str| -> Option<(usize, usize)> {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let weight = usize::try_from(read_number(weight)?).ok()?;
            (weight > 0 && weight <= MAX_WEIGHTS).then_some((one(size)?, weight))
        };
        let mix: Option<Vec<(usize, usize)>> = inner.split(',').map(weighted).collect();
        mix.filter(|mix| mix.iter().map(|(_, weight)| weight).sum::<usize>() <= MAX_WEIGHTS).map(Size::Mix)
    } else if text.contains("..") {
        pair(text).map(|(from, to)| Size::Range(from, to))
    } else {
        one(text).map(Size::Fixed)
    };
    found.ok_or_else(bad)
}

/// `FROM..TO`, the greater one last.
fn pair<T: PartialOrd>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
    let (from, to) = text.split_once("..")?;
    Some((read(from)?, read(to)?)).filter(|(from, to)| from <= to)
}

/// What stands in `NAME(…)`.
fn call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

fn layer(kind: LayerKind, first: &Word<'_>, rest: &[Word<'_>], below: Option<&Layer>) -> Result<Layer> {
    let name = &first.text;
    if let Err(wanted) = kind.stands_on(below.map(|layer| layer.kind)) {
        return Err(first.bad(format!("'{name}' cannot stand here")).help(format!("it stands {wanted}")));
    }
    if let Some(below) = below.filter(|below| below.kind.is_data()) {
        if !kind.is_data() {
            return Err(first
                .bad(format!("'{name}' cannot follow data"))
                .help("headers come before payload, stamp and pktgen"));
        }
        if below.bytes.as_ref().is_some_and(|bytes| bytes.fixed().is_empty()) {
            return Err(first
                .bad("nothing can follow a payload that fills the frame")
                .help("put it before the payload"));
        }
    }
    let mut layer = Layer::new(kind);
    for word in rest {
        match word.text.split_once('=') {
            _ if kind == LayerKind::Payload => payload(&mut layer, word)?,
            Some(("options", text)) if kind.has_options() => options(&mut layer, word, text)?,
            Some((field, text)) => assign(&mut layer, word, field, text)?,
            None => {
                return Err(word.bad(format!("'{}' has no value", word.text)).help(known(kind)));
            }
        }
    }
    if kind == LayerKind::Payload && layer.bytes.is_none() {
        return Err(first.bad("the payload is missing").help(PAYLOADS));
    }
    overlaps(&layer, first)?;
    Ok(layer)
}

/// `tos` is `dscp` and `ecn` together: one of both ways to say it.
fn overlaps(layer: &Layer, first: &Word<'_>) -> Result<()> {
    for (i, (one, _)) in layer.fields.iter().enumerate() {
        for (other, _) in &layer.fields[..i] {
            if one.bit < other.bit + other.bits && other.bit < one.bit + one.bits {
                let what = format!("'{}' and '{}' are the same bits", other.name, one.name);
                return Err(first.bad(what).help("set only one of them"));
            }
        }
    }
    Ok(())
}

fn known(kind: LayerKind) -> String {
    let mut names: Vec<&str> = kind.facts().fields.iter().map(|field| field.name).collect();
    if kind.has_options() {
        names.push("options");
    }
    format!("the fields of {} are {}; write NAME=VALUE", kind.name(), names.join(", "))
}

fn assign(layer: &mut Layer, word: &Word<'_>, name: &str, text: &str) -> Result<()> {
    let kind = layer.kind;
    let Some(field) = kind.field(name) else {
        return Err(word.bad(format!("'{}' has no field '{name}'", kind.name())).help(known(kind)));
    };
    if layer.get(name).is_some() {
        return Err(word.bad(format!("'{name}' is set twice")));
    }
    let value = value(field, text).ok_or_else(|| {
        word.bad(format!("'{text}' is not a value of {name}")).help(format!(
            "write {}, a range A..B or A..B+STEP, a list {{A,B}}, random, random(A..B) or counter(START+STEP)",
            field.form.example()
        ))
    })?;
    let limit = if field.bits == 128 { u128::MAX } else { (1 << field.bits) - 1 };
    if value.largest() > limit {
        let what = format!("{name}={text} does not fit into {} bits", field.bits);
        return Err(word.bad(what).help(format!("the largest is {limit}")));
    }
    layer.fields.push((field, value));
    Ok(())
}

fn value(field: &'static HeaderField, text: &str) -> Option<Value> {
    let (text, by) = match text.rsplit_once('@') {
        Some((text, word)) => (text, Some(VaryBy::WORDS.iter().find(|(_, known)| *known == word)?.0)),
        None => (text, None),
    };
    let read = |text: &str| field.form.read(text);
    let pair = |text: &str| pair(text, read);
    let stepped = |text: &str| -> Option<(String, u128)> {
        let (start, step) = text.rsplit_once('+').unwrap_or((text, "1"));
        read_number(step).filter(|step| *step > 0).map(|step| (start.to_owned(), step))
    };
    let limit = if field.bits == 128 { u128::MAX } else { (1 << field.bits) - 1 };
    let choice = if text == "random" {
        Choice::Random(0, limit)
    } else if let Some(inner) = call(text, "random") {
        let (from, to) = pair(inner)?;
        Choice::Random(from, to)
    } else if text == "counter" {
        Choice::Counter(0, 1)
    } else if let Some(inner) = call(text, "counter") {
        let (start, step) = stepped(inner)?;
        Choice::Counter(read(&start)?, step)
    } else if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Choice::List(inner.split(',').map(read).collect::<Option<Vec<_>>>()?)
    } else if text.contains("..") {
        let (range, step) = stepped(text)?;
        let (from, to) = pair(&range)?;
        Choice::Range(from, to, step)
    } else {
        Choice::Constant(read(text)?)
    };
    Some(Value { choice, by })
}

fn options(layer: &mut Layer, word: &Word<'_>, text: &str) -> Result<()> {
    let bytes = hex_bytes(text).filter(|bytes| bytes.len() % 4 == 0 && bytes.len() <= 40);
    layer.options = bytes.ok_or_else(|| {
        word.bad(format!("'{text}' cannot be options"))
            .help("write 4 to 40 bytes in hexadecimal, a multiple of four, e.g. options=94040000")
    })?;
    Ok(())
}

const PAYLOADS: &str = "write zero, random, counter, text=\"…\" or hex=…";

fn payload(layer: &mut Layer, word: &Word<'_>) -> Result<()> {
    let found = match (word.text.as_str(), word.text.split_once('=')) {
        ("zero", _) => Some(Bytes::Zero),
        ("random", _) => Some(Bytes::Random),
        ("counter", _) => Some(Bytes::Counter),
        (_, Some(("hex", text))) => hex_bytes(text).filter(|bytes| !bytes.is_empty()).map(Bytes::Hex),
        (_, Some(("text", text))) => plain_text(text).filter(|bytes| !bytes.is_empty()).map(Bytes::Text),
        _ => None,
    };
    match found {
        _ if layer.bytes.is_some() => {
            Err(word.bad("a payload has one content").help("write a second payload layer"))
        }
        None => Err(word.bad(format!("'{}' is not a payload", word.text)).help(PAYLOADS)),
        bytes => {
            layer.bytes = bytes;
            Ok(())
        }
    }
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

/// Text with or without quotes; `\n`, `\t`, `\\`, `\"` and `\xNN` inside.
fn plain_text(text: &str) -> Option<Vec<u8>> {
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    let mut bytes = vec![];
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        bytes.push(match rest.next()? {
            'n' => b'\n',
            't' => b'\t',
            'x' => (rest.next()?.to_digit(16)? << 4 | rest.next()?.to_digit(16)?) as u8,
            other @ ('\\' | '"') => other as u8,
            _ => return None,
        });
    }
    Some(bytes)
}
