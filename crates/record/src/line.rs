//! The lines of a text that people write, and their words with places.
//!
//! **What.** Plans, topologies, files of switches, cases and rules are one statement a line, words between spaces, and `#`
//! begins a comment. [`lines`] gives the lines that say something. **Why here.** One reader means one place (`file:line:column`,
//! both from 1, columns in characters) in every message. **Price.** No quotes: what needs them (templates of frames) has a grammar of
//! its own and only takes the place from here.

use crate::Problem;

/// A word and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    /// The word.
    pub text: &'a str,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Word<'_> {
    /// A problem with this word, at `file:line:column`.
    pub fn problem(&self, file: &str, what: impl Into<String>) -> Problem {
        Problem::input(what).at(format!("{file}:{}:{}", self.line, self.column))
    }
}

/// A line that has at least one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: usize,
    /// The line from its start to its last word, without the comment.
    pub code: &'a str,
    /// Its words, one at least.
    pub words: Vec<Word<'a>>,
}

impl Line<'_> {
    /// The column after the last word.
    pub fn end_column(&self) -> usize {
        self.code.chars().count() + 1
    }
}

/// The lines of a text that are neither empty nor only a comment. A byte order mark, which some editors begin a file with, is no word.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter_map(|(number, line)| {
        let code = line.split('#').next().unwrap_or_default().trim_end();
        let words: Vec<Word<'_>> = words(code, number).collect();
        (!words.is_empty()).then_some(Line { number, code, words })
    })
}

fn words(code: &str, line: usize) -> impl Iterator<Item = Word<'_>> {
    let (mut byte, mut characters) = (0, 0);
    code.split_whitespace().map(move |text| {
        let begin = text.as_ptr() as usize - code.as_ptr() as usize;
        characters += code[byte..begin].chars().count();
        byte = begin;
        Word { text, line, column: characters + 1 }
    })
}

/// A character that moves, colours or turns round what stands beside it: control characters, and those that begin or end another
/// direction of writing (Unicode Standard Annex 9, section 2).
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A word as a shell wants it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "@%+=:,./_-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A command line that a shell reads as these words.
pub fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_what_a_shell_reads_as_its_words() {
        let words = ["pathlab", "run", "--label", "it's <b>&", "", "a/eth0:mtu=1400"].map(str::to_owned);
        assert_eq!(command_line(&words), r"pathlab run --label 'it'\''s <b>&' '' a/eth0:mtu=1400");
    }

    #[test]
    fn what_turns_the_words_beside_it_round_is_unsafe() {
        assert!("\u{1b}\n\u{202e}\u{2066}\u{2069}".chars().all(is_unsafe));
        // Marks of direction turn nothing round, and names of people have them.
        assert!(!"aé✓ \u{200f}\u{200e}שלום".chars().any(is_unsafe));
    }

    #[test]
    fn a_byte_order_mark_is_no_word() {
        let found: Vec<_> = lines("\u{feff}topology pair\n").collect();
        assert_eq!((found[0].words[0].text, found[0].words[0].column), ("topology", 1));
    }

    use proptest::prelude::*;

    #[test]
    fn words_have_places_in_characters_and_comments_have_none() {
        let text = "# nothing\n\n  née b#c d\n\u{a0}x";
        let found: Vec<Line<'_>> = lines(text).collect();
        let word = |text, line, column| Word { text, line, column };
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].number, found[0].code, found[0].end_column()), (3, "  née b", 8));
        assert_eq!(found[0].words, [word("née", 3, 3), word("b", 3, 7)]);
        assert_eq!(found[1].words, [word("x", 4, 2)]);
        assert!(found[0].words[1].problem("f", "no").to_string().contains("f:3:7"));
    }

    proptest! {
        /// The slow twin: one character after the other.
        #[test]
        fn words_are_those_of_a_walk_over_the_characters(text in "[ a\u{e9}\t#]{0,20}") {
            let mut wanted: Vec<(String, usize)> = vec![];
            let mut is_inside = false;
            for (at, c) in text.chars().take_while(|c| *c != '#').enumerate() {
                match (c.is_whitespace(), is_inside) {
                    (false, false) => wanted.push((c.into(), at + 1)),
                    (false, true) => wanted.last_mut().unwrap().0.push(c),
                    _ => {}
                }
                is_inside = !c.is_whitespace();
            }
            let found: Vec<(String, usize)> = lines(&text)
                .flat_map(|line| line.words)
                .map(|word| (word.text.to_owned(), word.column))
                .collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
