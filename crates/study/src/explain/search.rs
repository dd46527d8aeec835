//! Names that are not written as the tables write them.

use super::Explanation;

/// How many near names are told.
const MOST_NEAR: usize = 6;

/// What is compared: small letters and digits, without what other tools put in front or between.
fn plain(name: &str) -> String {
    let name = ["tcpi_", "SKB_DROP_REASON_", "sysctl "]
        .iter()
        .find_map(|front| name.strip_prefix(front))
        .unwrap_or(name);
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether it is one of those that a name with a `*` stands for (`rps_cpus@*`).
fn stands_for(known: &str, name: &str) -> bool {
    let is_part = |(begin, end)| {
        name.strip_prefix(begin)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|part: &str| !part.is_empty())
    };
    known.split_once('*').is_some_and(is_part)
}

/// Those that are the same name in another spelling; or the one that stands for it; or those of the one name that begins so.
pub fn alike<'a>(name: &str, all: &'a [Explanation]) -> Vec<&'a Explanation> {
    let wanted = plain(name);
    if wanted.is_empty() {
        return vec![];
    }
    let is = |one: &&Explanation| [one.short(), &one.name].iter().any(|known| plain(known) == wanted);
    let same: Vec<&Explanation> = all.iter().filter(is).collect();
    if !same.is_empty() {
        return same;
    }
    let of_each: Vec<&Explanation> = all.iter().filter(|one| stands_for(&one.name, name)).collect();
    if !of_each.is_empty() {
        return of_each;
    }
    let begins: Vec<&Explanation> =
        all.iter().filter(|one| plain(one.short()).starts_with(&wanted)).collect();
    let is_one = begins.windows(2).all(|pair| pair[0].short() == pair[1].short());
    if is_one { begins } else { vec![] }
}

/// The names that are nearest, each once: those that contain it, then those with the fewest letters that differ.
pub fn near(name: &str, all: &[Explanation]) -> Vec<String> {
    let wanted = plain(name);
    let furthest = (wanted.chars().count() / 3).max(1);
    let distance = |known: &str| {
        let known = plain(known);
        let contains = wanted.len() > 2 && known.contains(&wanted);
        if contains { 0 } else { edits(&wanted, &known) }
    };
    let mut found: Vec<(usize, usize, &str)> =
        all.iter().map(|one| (distance(one.short()), one.short().len(), one.short())).collect();
    found.retain(|(distance, ..)| *distance <= furthest);
    found.sort_unstable();
    found.dedup_by_key(|(.., name)| *name);
    found.into_iter().take(MOST_NEAR).map(|(.., name)| name.to_owned()).collect()
}

/// How many letters have to be put in, left out or changed (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, one) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(one != *other);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow twin: by its definition.
    fn slow(a: &[char], b: &[char]) -> usize {
        match (a.split_first(), b.split_first()) {
            (None, _) => b.len(),
            (_, None) => a.len(),
            (Some((x, a_rest)), Some((y, b_rest))) if x == y => slow(a_rest, b_rest),
            (Some((_, a_rest)), Some((_, b_rest))) => {
                1 + slow(a_rest, b).min(slow(a, b_rest)).min(slow(a_rest, b_rest))
            }
        }
    }

    proptest! {
        #[test]
        fn edits_are_counted(a in "[abc]{0,5}", b in "[abc]{0,5}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(edits(&a, &b), slow(&chars(&a), &chars(&b)));
        }
    }
}
