//! How quantities are written for people, and how they read a length of time: one form each, everywhere.
//!
//! Rates have decimal prefixes (`1.23 Mframes/s`, `987 Mbit/s`), times the unit that fits (`81.2 µs`), counts groups of
//! three (`1,234,567`). JSON has plain numbers in base units instead.

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

/// A value with the decimal prefix that fits: `1.23 Mbit/s`.
pub fn scaled(value: f64, unit: &str) -> String {
    // What rounds to a thousand has the next prefix.
    let (scale, prefix) = match value.abs() {
        v if v >= 999.5e6 => (1e9, "G"),
        v if v >= 999.5e3 => (1e6, "M"),
        v if v >= 999.5 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", number(value / scale))
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
    let (scale, unit) = match ns.abs() {
        v if v >= 999.5e6 => (1e9, "s"),
        v if v >= 999.5e3 => (1e6, "ms"),
        v if v >= 999.5 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    // Clocks tell whole nanoseconds.
    if scale == 1.0 { format!("{ns:.0} {unit}") } else { format!("{} {unit}", number(ns / scale)) }
}

/// The longest time that can be written: a year.
const LONGEST_MS: f64 = 365.0 * 86_400e3;

/// Reads a length of time: a number with `ms`, `s` (also without a unit), `m` or `h`. In milliseconds.
///
/// # Errors
/// A sentence with examples.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let bad = || format!("'{text}' is not a duration (examples: 5s, 500ms, 2m, 1h)");
    let number: f64 = number.parse().map_err(|_| bad())?;
    let ms = match unit {
        "ms" => number,
        "s" | "" => number * 1e3,
        "m" => number * 60e3,
        "h" => number * 3600e3,
        _ => return Err(bad()),
    };
    match ms {
        ms if ms < 1.0 => Err(format!("the duration '{text}' must be at least 1ms")),
        ms if ms > LONGEST_MS => Err(format!("the duration '{text}' is longer than a year")),
        ms => Ok(ms.round() as u64),
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
        for wrong in ["", "s", "5 parsecs", "-1s", "0s", "1e9s", "99999h", "1.2.3s", "."] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
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
        fn any_text_is_a_duration_or_a_sentence(text in ".{0,12}") {
            let _ = duration_ms(&text);
        }
    }
}
