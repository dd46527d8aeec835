//! What knobs are set to, as text: each in one form only, so that two readings are equal when their bytes are.

use super::row::Kind;

/// What a list of CPUs says when there is none in it.
pub(super) const NONE: &str = "none";
/// What a knob says that can be without a value.
pub(super) const UNSET: &str = "unset";

/// The one form of a value that somebody wrote.
///
/// # Errors
/// What is wrong with it, in words that follow its name.
pub(super) fn canonical(kind: Kind, text: &str) -> Result<String, String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match kind {
        Kind::Number(_) if text == UNSET => Ok(text),
        Kind::Number(_) => record::unit::amount(&text).map(|number| number.to_string()),
        Kind::Switch => match text.as_str() {
            "on" | "1" => Ok("on".into()),
            "off" | "0" => Ok("off".into()),
            _ => Err(format!("'{text}' is neither on nor off")),
        },
        Kind::Cpus => parse_cpus(&text).map(|cpus| cpu_list(&cpus)),
        Kind::Numbers(_) if !text.is_empty() => {
            let numbers: Result<Vec<_>, _> = text
                .split(' ')
                .map(|number| record::unit::amount(number).map(|number| number.to_string()))
                .collect();
            Ok(numbers?.join(" "))
        }
        Kind::Numbers(_) | Kind::Text(_) if text.is_empty() => Err("a value is missing".into()),
        Kind::Numbers(_) | Kind::Text(_) => Ok(text),
    }
}

/// The CPUs of a list (`0-3,8`), in order, each once.
pub(super) fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    /// More than any machine has.
    const MOST: u32 = 8192;
    let wrong = || format!("'{text}' is not a list of CPUs such as 0-3,8");
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu < MOST).ok_or_else(wrong);
    let mut cpus = vec![];
    let parts = text.split(',').filter(|_| !["", NONE].contains(&text.trim()));
    for part in parts {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        cpus.extend(first..=last);
        if first > last {
            return Err(wrong());
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The list of these CPUs, which are in order.
pub(super) fn cpu_list(cpus: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = vec![];
    for &cpu in cpus {
        match spans.last_mut().filter(|(_, last)| last + 1 == cpu) {
            Some((_, last)) => *last = cpu,
            None => spans.push((cpu, cpu)),
        }
    }
    let span = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let list = spans.iter().map(span).collect::<Vec<_>>().join(",");
    if list.is_empty() { NONE.into() } else { list }
}

/// The CPUs of a mask as sysfs writes it: words of 32 bits, the highest first.
pub(super) fn cpus_of_mask(mask: &str) -> Option<Vec<u32>> {
    let words = mask.trim().rsplit(',').map(|word| u32::from_str_radix(word, 16));
    let words: Vec<u32> = words.collect::<Result<_, _>>().ok()?;
    let is_in = |cpu: &u32| words[*cpu as usize / 32] & 1 << (cpu % 32) != 0;
    Some((0..words.len() as u32 * 32).filter(is_in).collect())
}

/// The mask of these CPUs.
pub(super) fn mask_of_cpus(cpus: &[u32]) -> String {
    let mut words = vec![0u32; cpus.iter().max().map_or(1, |most| *most as usize / 32 + 1)];
    cpus.iter().for_each(|cpu| words[*cpu as usize / 32] |= 1 << (cpu % 32));
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

/// Bytes as `6d:5a:…`.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The bytes of such a text.
pub(super) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &str| u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2);
    text.split(':').filter(|_| !text.is_empty()).map(byte).collect()
}

/// The letters that ethtool has for the fields of a hash, and their bits (`RXH_…`).
const FIELDS: [(char, u64); 9] = [
    ('m', 1 << 1),
    ('v', 1 << 2),
    ('t', 1 << 3),
    ('s', 1 << 4),
    ('d', 1 << 5),
    ('f', 1 << 6),
    ('n', 1 << 7),
    ('e', 1 << 8),
    ('r', 1 << 31),
];

/// The letters of these bits.
pub(super) fn letters(fields: u64) -> String {
    let letters: String =
        FIELDS.iter().filter(|(_, bit)| fields & bit != 0).map(|(letter, _)| letter).collect();
    if letters.is_empty() { NONE.into() } else { letters }
}

/// The bits of these letters.
pub(super) fn fields(letters: &str) -> Option<u64> {
    if letters == NONE {
        return Some(0);
    }
    let bit = |letter| FIELDS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| bit);
    letters.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_has_one_form() {
        let number = |text| canonical(Kind::Number("frames"), text);
        assert_eq!(number("4Ki"), Ok("4096".into()));
        assert_eq!(number(" 0512 "), Ok("512".into()));
        assert!(number("-1").is_err() && number("many").is_err());
        assert_eq!(canonical(Kind::Switch, "1"), Ok("on".into()));
        assert!(canonical(Kind::Switch, "yes").is_err());
        assert_eq!(canonical(Kind::Text(""), "4096\t87380   6291456\n"), Ok("4096 87380 6291456".into()));
        assert_eq!(canonical(Kind::Numbers(""), "4096\t128Ki   6Mi\n"), Ok("4096 131072 6291456".into()));
        assert!(
            canonical(Kind::Numbers(""), "4096 some 6Mi").is_err()
                && canonical(Kind::Numbers(""), " ").is_err()
        );
        assert_eq!(canonical(Kind::Cpus, "3,0-1,2,9"), Ok("0-3,9".into()));
        assert_eq!(canonical(Kind::Cpus, "none"), Ok("none".into()));
        for wrong in ["3-1", "a", "0-", "9999", "0,,1"] {
            assert!(canonical(Kind::Cpus, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn masks_are_those_of_sysfs() {
        assert_eq!(mask_of_cpus(&[0, 33]), "00000002,00000001");
        assert_eq!(cpus_of_mask("2,00000001\n"), Some(vec![0, 33]));
        assert_eq!((mask_of_cpus(&[]), cpus_of_mask("x")), ("00000000".into(), None));
        assert_eq!((letters(0xf0), fields("sdfn"), fields("q")), ("sdfn".into(), Some(0xf0), None));
        assert_eq!(
            (hex(&[0x6d, 5]), parse_hex("6d:05"), parse_hex("6d:5")),
            ("6d:05".into(), Some(vec![0x6d, 5]), None)
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(mut cpus in prop::collection::vec(0u32..300, 0..40), bits in any::<u64>(), key in prop::collection::vec(any::<u8>(), 0..60)) {
            cpus.sort_unstable();
            cpus.dedup();
            prop_assert_eq!(parse_cpus(&cpu_list(&cpus)), Ok(cpus.clone()));
            prop_assert_eq!(cpus_of_mask(&mask_of_cpus(&cpus)), Some(cpus));
            let known = bits & 0x8000_01fe;
            prop_assert_eq!(fields(&letters(known)), Some(known));
            prop_assert_eq!(parse_hex(&hex(&key)), Some(key));
        }

        #[test]
        fn noise_never_panics(noise in ".{0,40}") {
            let _ = (parse_cpus(&noise), cpus_of_mask(&noise), parse_hex(&noise), fields(&noise));
        }
    }
}
