//! How quantities are written for people, and how people write them: one form each, everywhere.
//!
//! **Written**: rates have decimal prefixes (`1.23 Mframes/s`, `987 Mbit/s`), times the unit that fits (`81.2 µs`), counts
//! groups of three (`1,234,567`). JSON has plain numbers in base units instead.
//!
//! **Read**: counts, bytes, rates and times, in flags, plans, topologies, port names and criteria alike. `k` is 1000 and `Ki`
//! is 1024 of anything; decimals are exact or refused. **Price.** `64k` is never 65,536, whatever other tools make of it.

/// A number with three significant digits, or all digits before the point, in groups of three.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let digits = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{:.digits$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let point = if part.is_empty() { "" } else { "." };
    let sign =
        if value < 0.0 && text.contains(|digit: char| ('1'..='9').contains(&digit)) { "−" } else { "" };
    format!("{sign}{}{point}{part}", grouped(whole))
}

/// A count in groups of three: `1,234,567`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A count that may be negative.
pub fn signed(value: i64) -> String {
    format!("{}{}", if value < 0 { "−" } else { "" }, count(value.unsigned_abs()))
}

fn grouped(digits: &str) -> String {
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 frame`, `2 frames`: a count and its noun, whose plural has an s.
pub fn many(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Names in a sentence: at most twelve, and how many more there are.
pub fn some_names<S: AsRef<str>>(names: &[S]) -> String {
    const MOST: usize = 12;
    let told: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MOST) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// In thousands of thousands of thousands and down to ones, with the name of the step that fits.
fn step(value: f64, names: [&str; 4]) -> (f64, &str) {
    let [giga, mega, kilo, one] = names;
    // What rounds to a thousand has the next step.
    match value.abs() {
        v if v >= 999.5e6 => (value / 1e9, giga),
        v if v >= 999.5e3 => (value / 1e6, mega),
        v if v >= 999.5 => (value / 1e3, kilo),
        _ => (value, one),
    }
}

/// A value with the decimal prefix that fits: `1.23 Mbit/s`.
pub fn scaled(value: f64, unit: &str) -> String {
    let (value, prefix) = step(value, ["G", "M", "k", ""]);
    format!("{} {prefix}{unit}", number(value))
}

/// A value with its prefix alone, for a column whose head has the unit: `1.23 M`.
pub fn prefixed(value: f64) -> String {
    scaled(value, "").trim_end().to_owned()
}

/// Frames per second: `1.49 Mframes/s`.
pub fn frames_per_s(value: f64) -> String {
    scaled(value, "frames/s")
}

/// Messages (datagrams, requests) per second: `15.1 kmessages/s`.
pub fn messages_per_s(value: f64) -> String {
    scaled(value, "messages/s")
}

/// Bits per second: `987 Mbit/s`.
pub fn bits_per_s(value: f64) -> String {
    scaled(value, "bit/s")
}

/// A time with the unit that fits: `850 ns`, `81.2 µs`, `1.25 ms`, `2.00 s`.
pub fn time_ns(ns: f64) -> String {
    let (value, unit) = step(ns, ["s", "ms", "µs", "ns"]);
    // Clocks tell whole nanoseconds.
    if unit == "ns" { format!("{ns:.0} ns") } else { format!("{} {unit}", number(value)) }
}

/// The longest time that can be written: a year.
const LONGEST_NS: u64 = 365 * 86_400 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// A unit as it is written after a number, and how many base units it is.
pub(crate) type Units = &'static [(&'static str, u64)];

/// Decimal prefixes are powers of 1000, binary ones powers of 1024 (IEC 80000-13), whatever is counted.
const AMOUNTS: Units = &[
    ("", 1),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
];
pub(crate) const BITS_PER_S: Units =
    &[("bit", 1), ("kbit", 1000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
pub(crate) const MESSAGES_PER_S: Units = &[("pps", 1), ("kpps", 1000), ("mpps", 1_000_000)];
const TIMES: Units = &[
    ("ns", 1),
    ("us", 1000),
    ("µs", 1000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// A number as it is written: digits with at most one point among them, and the unit after it.
struct Written<'a> {
    digits: u128,
    /// How many of the digits stand after the point.
    decimals: u32,
    unit: &'a str,
}

impl Written<'_> {
    /// No sign, no exponent; as many decimals as a printed rate has.
    fn read(text: &str) -> Option<Written<'_>> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_sound = !number.is_empty() && !number.ends_with('.') && part.len() <= 20;
        let digits = if is_sound { format!("{whole}{part}").parse().ok()? } else { return None };
        Some(Written { digits, decimals: part.len() as u32, unit })
    }

    /// In base units, when that is a whole number of them.
    fn exact(&self, unit: u64) -> Option<u64> {
        let scale = 10u128.pow(self.decimals);
        let value = self.digits.checked_mul(u128::from(unit))?;
        value.is_multiple_of(scale).then(|| u64::try_from(value / scale).ok())?
    }

    fn of(&self, units: Units) -> Option<u64> {
        units.iter().find(|(name, _)| *name == self.unit).map(|(_, scale)| *scale)
    }
}

fn read(text: &str, units: Units) -> Option<u64> {
    let written = Written::read(text)?;
    written.exact(written.of(units)?)
}

/// Reads a count: a whole number, also with k, M, G (powers of 1000) or Ki, Mi, Gi (powers of 1024).
///
/// # Errors
/// A sentence with examples.
pub fn amount(text: &str) -> Result<u64, String> {
    read(text, AMOUNTS)
        .ok_or_else(|| format!("'{text}' is not a count (examples: 64, 50k = 50,000, 64Ki = 65,536)"))
}

/// Reads bytes: as [`amount`], also with a `B` after it.
///
/// # Errors
/// A sentence with examples.
pub fn bytes(text: &str) -> Result<u64, String> {
    read(text.strip_suffix('B').unwrap_or(text), AMOUNTS).ok_or_else(|| {
        format!("'{text}' is not a number of bytes (examples: 64, 8kB = 8,000, 8KiB = 8,192, 4Mi)")
    })
}

/// Reads bits per second: a number with `bit`, `kbit`, `mbit` or `gbit`, in any case.
///
/// # Errors
/// A sentence with examples.
pub fn bit_rate(text: &str) -> Result<u64, String> {
    read(&text.to_ascii_lowercase(), BITS_PER_S).ok_or_else(|| {
        format!("'{text}' is not a rate in bits per second (examples: 500kbit, 100mbit, 1.5gbit)")
    })
}

/// Reads a number with one of the units, in any case, where a fraction of the base unit counts too.
pub(crate) fn fractional(text: &str, units: Units) -> Option<f64> {
    let text = text.to_ascii_lowercase();
    let written = Written::read(&text)?;
    let number: f64 = text[..text.len() - written.unit.len()].parse().ok()?;
    Some(number * written.of(units)? as f64)
}

/// Reads a chance, a percentage or a number from 0 to 1.
///
/// # Errors
/// A sentence with examples.
pub fn chance(text: &str) -> Result<f64, String> {
    let (digits, whole) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let number = digits.parse::<f64>().ok().filter(|number| (0.0..=whole).contains(number));
    number
        .map(|number| number / whole)
        .ok_or_else(|| format!("'{text}' is not a chance (examples: 1%, 0.01)"))
}

/// Reads a length of time with its unit: `ns`, `us`, `ms`, `s`, `m` or `h`. In nanoseconds, a year at most.
///
/// # Errors
/// A sentence with examples.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    match read(text, TIMES) {
        Some(ns) if ns <= LONGEST_NS => Ok(ns),
        Some(_) => Err(format!("'{text}' is longer than a year")),
        None => Err(format!("'{text}' is not a time (examples: 250ns, 20us, 1.5ms, 1s)")),
    }
}

/// Reads how long something may take: as [`nanoseconds`], and seconds without a unit. In milliseconds, one at least.
///
/// # Errors
/// A sentence with examples.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let seconds = || Written::read(text).filter(|written| written.unit.is_empty())?.exact(SECOND);
    match seconds().or_else(|| read(text, TIMES)) {
        None => Err(format!("'{text}' is not a duration (examples: 5s, 500ms, 2m, 1h)")),
        Some(ns) if ns < 1_000_000 => Err(format!("the duration '{text}' must be at least 1ms")),
        Some(ns) if ns > LONGEST_NS => Err(format!("the duration '{text}' is longer than a year")),
        Some(ns) => Ok((ns + 500_000) / 1_000_000),
    }
}

/// The same as a [`core::time::Duration`].
///
/// # Errors
/// As [`duration_ms`].
pub fn duration(text: &str) -> Result<core::time::Duration, String> {
    duration_ms(text).map(core::time::Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sentence_has_at_most_twelve_names() {
        let names: Vec<String> = (0..250).map(|n| format!("h{n}")).collect();
        assert_eq!(some_names(&names[..2]), "h0, h1");
        assert!(some_names(&names[..12]).ends_with("h10, h11"));
        assert!(some_names(&names).ends_with("h10, h11 and 238 more"));
    }

    #[test]
    fn each_quantity_has_one_form() {
        let rates = [
            (0.0, "0 frames/s"),
            (7.0, "7.00 frames/s"),
            (999.6, "1.00 kframes/s"),
            (1.488e6, "1.49 Mframes/s"),
        ];
        for (value, text) in rates {
            assert_eq!(frames_per_s(value), text);
        }
        assert_eq!((bits_per_s(987.4e6), bits_per_s(12.34e9)), ("987 Mbit/s".into(), "12.3 Gbit/s".into()));
        let times =
            [(0.0, "0 ns"), (850.0, "850 ns"), (81_230.0, "81.2 µs"), (1.25e6, "1.25 ms"), (2e9, "2.00 s")];
        for (ns, text) in times {
            assert_eq!(time_ns(ns), text);
        }
        assert_eq!((prefixed(1.374e9), prefixed(7.0)), ("1.37 G".into(), "7.00".into()));
        assert_eq!((count(1_234_567), signed(-1000)), ("1,234,567".into(), "−1,000".into()));
        assert_eq!(
            (number(12_345.6), number(-0.0001), number(-2.5)),
            ("12,346".into(), "0.000".into(), "−2.50".into())
        );
        assert_eq!((many(1, "round"), many(1200, "round")), ("1 round".into(), "1,200 rounds".into()));
    }

    #[test]
    fn durations_are_read_and_wrong_ones_explained() {
        let read = ["5s", "1.5", "20ms", "2m", "1h"].map(|text| duration_ms(text).unwrap());
        assert_eq!(read, [5_000, 1_500, 20, 120_000, 3_600_000]);
        assert_eq!((duration_ms(".5"), duration_ms("1500us")), (Ok(500), Ok(2)));
        for wrong in ["", "s", "5 parsecs", "-1s", "0s", "1e9s", "99999h", "1.2.3s", ".", "5."] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_means_the_same_of_everything() {
        let read = ["7", "64k", "64Ki", "1.5M", "1Gi"].map(|text| amount(text).unwrap());
        assert_eq!(read, [7, 64_000, 65_536, 1_500_000, 1 << 30]);
        let read = ["64", "64B", "8kB", "8KiB", "64k", "4Mi", "0.5kB"].map(|text| bytes(text).unwrap());
        assert_eq!(read, [64, 64, 8000, 8192, 64_000, 4 << 20, 500]);
        assert_eq!((bit_rate("1.5gbit"), bit_rate("100Mbit")), (Ok(1_500_000_000), Ok(100_000_000)));
        let times = ["250ns", "20us", "20µs", "1.5ms", "1s", "2m"].map(|text| nanoseconds(text).unwrap());
        assert_eq!(times, [250, 20_000, 20_000, 1_500_000, SECOND, 120 * SECOND]);
        for wrong in
            ["", "k", "64K", "0.5", "-1", "64 k", "1e3", "0x10", "1.0000000001k", "99999999999G", "é"]
        {
            assert!(amount(wrong).unwrap_err().contains("examples"), "{wrong}");
            assert!(bytes(wrong).unwrap_err().contains("examples"), "{wrong}");
        }
        for wrong in ["", "100", "100mb", "0.5bit", "mbit"] {
            assert!(bit_rate(wrong).unwrap_err().contains("examples"), "{wrong}");
        }
        assert!(nanoseconds("0.5ns").is_err() && nanoseconds("5").is_err() && nanoseconds("9000h").is_err());
    }

    proptest! {
        #[test]
        fn a_prefix_keeps_three_digits(value in 1.0f64..999e9) {
            let text = bits_per_s(value);
            let (number, unit) = text.split_once(' ').unwrap();
            let scale = match unit.chars().next().unwrap() { 'G' => 1e9, 'M' => 1e6, 'k' => 1e3, _ => 1.0 };
            let back = number.replace(',', "").parse::<f64>().unwrap() * scale;
            prop_assert!((back - value).abs() <= value * 0.0051, "{value} {text}");
            prop_assert!(number.len() <= 5, "{text}");
        }

        #[test]
        fn any_text_is_a_quantity_or_a_sentence(text in ".{0,12}") {
            let _ = (duration_ms(&text), nanoseconds(&text), amount(&text), bytes(&text), bit_rate(&text));
        }

        /// The slow twin: whole thousands and 1024s by repeated multiplication.
        #[test]
        fn a_prefix_is_repeated_multiplication(number in 0u64..1_000_000, step in 0usize..4, binary: bool) {
            let prefix = [["", "k", "M", "G"], ["", "Ki", "Mi", "Gi"]][usize::from(binary)][step];
            let value = (0..step).fold(number, |value, _| value * if binary { 1024 } else { 1000 });
            prop_assert_eq!(amount(&format!("{number}{prefix}")), Ok(value));
        }
    }
}
