//! The text of a case.
//!
//! **What.** One statement a line (`docs/cases.md`). The statements of a plan (`topology`, `path`, `family`, `duration`, `test`) are read by the
//! reader of plans: each arm's plan is the text of the case with all other lines blank, so a fault there has its place here. `for` makes a case of
//! each of its values, which stands where `{name}` is.
//!
//! **Price.** The column of a fault behind a `{name}` is that of the text with its value.

use super::Case;
use super::needs::{self, Need};
use crate::change::LabChange;
use crate::plan::Plan;
use record::case::Expectation;
use record::line::{self, Line, Word};
use record::{Problem, Result};
use study::trial::figures::{FIGURES, Figure, named};

/// What helps with most words.
const DOCS: &str = "see docs/cases.md";
/// Statements that are those of a plan, of both arms.
const OF_PLANS: [&str; 5] = ["topology", "path", "family", "duration", "test"];
/// Statements of a plan that only B has: each takes the place of A's.
const OF_B: [(&str, &str); 2] = [("topology-b", "topology"), ("test-b", "test")];
/// The other statements, and whether each may stand more than once.
const STATEMENTS: [(&str, bool); 12] = [
    ("case", false),
    ("question", false),
    ("source", true),
    ("for", false),
    ("set-both", true),
    ("set-a", true),
    ("set-b", true),
    ("words-a", false),
    ("words-b", false),
    ("figure", false),
    ("expect", false),
    ("needs", true),
];
/// The bound of an expectation that names none.
const USUAL_BOUND: f64 = 0.02;

/// Reads the cases of a text. `file` is the name used in messages.
///
/// # Errors
/// Bad input with `file:line:column`, what was wrong and what is possible there.
pub fn parse(text: &str, file: &str) -> Result<Vec<Case>> {
    let Some((name, values)) = variants(text, file)? else { return Ok(vec![one(text, file, "")?]) };
    values.iter().map(|value| one(&text.replace(&name, value), file, &format!("/{value}"))).collect()
}

/// The placeholder and the values of `for`.
fn variants(text: &str, file: &str) -> Result<Option<(String, Vec<String>)>> {
    let Some(line) = line::lines(text).find(|line| line.words[0].text == "for") else { return Ok(None) };
    match &line.words[1..] {
        [name, values @ ..] if !values.is_empty() => {
            let values = values.iter().map(|word| word.text.to_owned()).collect();
            Ok(Some((format!("{{{}}}", name.text), values)))
        }
        _ => Err(line.words[0].problem(file, "'for' takes a name and values").help("e.g. for size 64 1472")),
    }
}

fn one(text: &str, file: &str, suffix: &str) -> Result<Case> {
    let mut reader = Reader { file, seen: vec![], case: Case::default() };
    for line in line::lines(text) {
        reader.statement(&line)?;
    }
    reader.case.name.push_str(suffix);
    reader.finish(text)
}

/// What was read so far.
struct Reader<'a> {
    file: &'a str,
    seen: Vec<String>,
    case: Case,
}

impl Reader<'_> {
    fn statement(&mut self, line: &Line<'_>) -> Result<()> {
        let keyword = line.words[0];
        if OF_PLANS.contains(&keyword.text) || OF_B.iter().any(|(known, _)| *known == keyword.text) {
            return self.count(keyword, keyword.text == "duration");
        }
        let known = STATEMENTS.iter().find(|(known, _)| *known == keyword.text);
        let (_, is_repeated) = known.ok_or_else(|| self.unknown(keyword))?;
        self.count(keyword, *is_repeated)?;
        if line.words.len() < 2 {
            let what = format!("'{}' takes a word at least", keyword.text);
            return Err(keyword.problem(self.file, what).help(DOCS));
        }
        self.read(keyword, line)
    }

    /// What a statement that is none of a plan says.
    fn read(&mut self, keyword: Word<'_>, line: &Line<'_>) -> Result<()> {
        let rest = rest(line);
        match keyword.text {
            "case" => self.case.name = self.name(line)?,
            "question" => self.case.question = rest,
            "source" => self.case.source = [&self.case.source, &*rest].join(" ").trim().to_owned(),
            "set-both" => self.case.both.push(self.change(line)?),
            "set-a" => self.case.only_a.push(self.change(line)?),
            "set-b" => self.case.only_b.push(self.change(line)?),
            "words-a" => self.case.words[0] = rest,
            "words-b" => self.case.words[1] = rest,
            "figure" => self.case.figure = Some(self.figure(line.words[1])?),
            "expect" => self.case.expected = self.expectation(&line.words[1..])?,
            "needs" => self.case.needs.extend(self.needs(&line.words[1..])?),
            _ => {}
        }
        Ok(())
    }

    fn unknown(&self, keyword: Word<'_>) -> Problem {
        let names = STATEMENTS.iter().map(|(name, _)| *name).chain(OF_PLANS);
        let names: Vec<&str> = names.chain(OF_B.iter().map(|(name, _)| *name)).collect();
        let what = format!("unknown statement '{}'", keyword.text);
        keyword.problem(self.file, what).help(format!("the statements are {}", names.join(", ")))
    }

    fn count(&mut self, keyword: Word<'_>, is_repeated: bool) -> Result<()> {
        if !is_repeated && self.seen.iter().any(|seen| seen == keyword.text) {
            let what = format!("'{}' is given twice", keyword.text);
            return Err(keyword.problem(self.file, what).help("leave one of them out"));
        }
        self.seen.push(keyword.text.to_owned());
        Ok(())
    }

    fn name(&self, line: &Line<'_>) -> Result<String> {
        let word = line.words[1];
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if line.words.len() > 2 || !word.text.chars().all(is_good) {
            let what = format!("'{}' is no name of a case", rest(line));
            return Err(word.problem(self.file, what).help("small letters, digits and '-'"));
        }
        Ok(word.text.to_owned())
    }

    fn change(&self, line: &Line<'_>) -> Result<LabChange> {
        let word = line.words[1];
        LabChange::parse(&rest(line))
            .map_err(|problem| problem.at(format!("{}:{}:{}", self.file, word.line, word.column)))
    }

    fn figure(&self, word: Word<'_>) -> Result<&'static Figure> {
        let names = FIGURES.map(|figure| figure.name).join(", ");
        named(word.text).ok_or_else(|| {
            let what = format!("there is no figure '{}'", word.text);
            word.problem(self.file, what).help(format!("the figures are {names}"))
        })
    }

    /// `better [by N%]`, `same [within N%]`, `not-worse [by N%]`.
    fn expectation(&self, words: &[Word<'_>]) -> Result<Expectation> {
        let bound = match words {
            [_] => USUAL_BOUND,
            [_, between, bound] if ["by", "within"].contains(&between.text) => self.share(*bound)?,
            _ => return Err(self.no_expectation(words[0])),
        };
        match words[0].text {
            "same" if bound == 0.0 => Err(words[2]
                .problem(self.file, "no two arms can be shown to be the same within 0%")
                .help("e.g. same within 5%")),
            "better" => Ok(Expectation::Better { by: bound }),
            "same" => Ok(Expectation::Same { within: bound }),
            "not-worse" => Ok(Expectation::NotWorse { within: bound }),
            _ => Err(self.no_expectation(words[0])),
        }
    }

    fn no_expectation(&self, word: Word<'_>) -> Problem {
        let what = "'expect' takes better, same or not-worse, and a bound";
        word.problem(self.file, what).help("e.g. better, better by 10%, same within 5%, not-worse by 5%")
    }

    fn share(&self, word: Word<'_>) -> Result<f64> {
        let percent = word.text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let share = percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0);
        share.ok_or_else(|| {
            word.problem(self.file, format!("'{}' is not a share from 0% to 100%", word.text)).help(DOCS)
        })
    }

    fn needs(&self, words: &[Word<'_>]) -> Result<Vec<&'static Need>> {
        let need = |word: &Word<'_>| {
            needs::named(word.text).ok_or_else(|| {
                let names = needs::NEEDS.map(|need| need.name).join(", ");
                let what = format!("nothing is known of '{}'", word.text);
                word.problem(self.file, what).help(format!("what a case may need: {names}"))
            })
        };
        words.iter().map(need).collect()
    }

    fn finish(mut self, text: &str) -> Result<Case> {
        for wanted in ["case", "question", "expect"] {
            if !self.seen.iter().any(|seen| seen == wanted) {
                let what = format!("no '{wanted}'");
                return Err(Problem::input(what).at(self.file).help(DOCS));
            }
        }
        let texts = [arm_text(text, false), arm_text(text, true)];
        let plan = |text: &String| Plan::parse(text, self.file);
        self.case.plans = vec![plan(&texts[0])?, plan(&texts[1])?];
        self.case.texts = texts;
        let says_difference = OF_B.iter().any(|(known, _)| self.seen.iter().any(|seen| seen == known));
        if !says_difference && self.case.only_a.is_empty() && self.case.only_b.is_empty() {
            let help = "add set-b, set-a, test-b or topology-b";
            return Err(Problem::input("its two arms are alike").at(self.file).help(help));
        }
        Ok(self.case)
    }
}

/// What is behind the keyword.
fn rest(line: &Line<'_>) -> String {
    let words: Vec<&str> = line.words[1..].iter().map(|word| word.text).collect();
    words.join(" ")
}

/// The plan of an arm: the lines of the text that are a plan's, each where it was.
fn arm_text(text: &str, is_b: bool) -> String {
    let has = |wanted: &str| line::lines(text).any(|line| line.words[0].text == wanted);
    let line = |line: &str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        let of_b = OF_B.iter().find(|(known, _)| *known == first);
        let replaced = OF_B.iter().any(|(own, common)| *common == first && has(own));
        match of_b {
            Some((own, common)) if is_b => line.replacen(own, &format!("{common}  "), 1),
            None if OF_PLANS.contains(&first) && !(is_b && replaced) => line.to_owned(),
            _ => String::new(),
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "case x\nquestion does it?\nexpect better by 10%\ntopology pair\ntest tcp-stream\n\
                        set-both a/eth0:mtu=1400\nset-b b/net.ipv4.tcp_rmem=4096 131072 6291456\n";

    #[test]
    fn a_case_has_two_plans_and_what_they_differ_in() {
        let case = parse(GOOD, "c").unwrap().remove(0);
        assert_eq!((case.name.as_str(), case.expected), ("x", Expectation::Better { by: 0.1 }));
        assert_eq!(case.plans[0], case.plans[1]);
        assert_eq!(case.only_b[0].asks[0].value, "4096 131072 6291456");
        let other = parse(&format!("{GOOD}test-b tcp-stream size 1kB\ntopology-b bridge\n"), "c").unwrap();
        let [a, b] = &other[0].plans[..] else { panic!("two arms") };
        assert_eq!((a.topology.as_str(), b.topology.as_str()), ("pair", "bridge"));
        assert_eq!((a.tests[0].spec.size, b.tests[0].spec.size), (0, 1000));
    }

    #[test]
    fn a_case_for_each_value() {
        let text = format!("for size 128 256\n{GOOD}test-b udp-stream size {{size}}\n")
            .replace("tcp-stream", "udp-stream");
        let cases = parse(&text, "c").unwrap();
        let seen: Vec<(&str, u32)> =
            cases.iter().map(|case| (case.name.as_str(), case.plans[1].tests[0].spec.size)).collect();
        assert_eq!(seen, [("x/128", 128), ("x/256", 256)]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_place_and_a_way_out() {
        let with = |line: &str| format!("{GOOD}{line}\n");
        let without = |keyword: &str| {
            let lines = GOOD.lines().filter(|line| !line.starts_with(keyword));
            lines.collect::<Vec<_>>().join("\n")
        };
        let cases = [
            (with("need bonding"), "c:8:1: unknown statement 'need'"),
            (with("needs luck"), "c:8:7: nothing is known of 'luck'"),
            (with("figure speed"), "c:8:8: there is no figure 'speed'"),
            (with("set-b eth0:mtu=9000"), "c:8:7: "),
            (with("set-b b/eth0:mut=9000"), "c:8:7: b/eth0:mut=9000: there is no knob 'mut'"),
            (with("set-b b/mtu=9000"), "c:8:7: b/mtu=9000: mtu is a knob of an interface"),
            (with("test-b tcp-stream sise 4"), "c:8:19: unknown setting 'sise'"),
            (with("case y"), "c:8:1: 'case' is given twice"),
            (with("test ping"), "c:8:1: 'test' is given twice"),
            (with("for x"), "c:8:1: 'for' takes a name and values"),
            (with("source"), "c:8:1: 'source' takes a word at least"),
            (without("expect") + "\nexpect best", "c:7:8: 'expect' takes better"),
            (without("expect") + "\nexpect same within 5", "c:7:20: '5' is not a share"),
            (without("expect") + "\nexpect same within 0%", "c:7:20: no two arms can be shown"),
            (without("expect"), "c: no 'expect'"),
            (without("set-b"), "c: its two arms are alike"),
            (without("topology"), "c: no topology"),
            (without("case") + "\ncase A B", "c:7:6: 'A B' is no name"),
        ];
        for (text, expected) in cases {
            let problem = parse(&text, "c").unwrap_err();
            assert!(problem.to_string().starts_with(expected), "{problem} for {expected}");
            assert!(problem.kind.exit_code() == 2 && !problem.advice.is_empty(), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cases_or_a_sentence(text in "(case|for|expect|same|set-b|test|test-b|topology|pair|ping|\\{|[a-z0-9# \n\"é%{}]){0,40}") {
            let _ = parse(&text, "c");
            let _ = parse(&format!("{GOOD}{text}"), "c");
        }
    }
}
