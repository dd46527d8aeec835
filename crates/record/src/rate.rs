//! How fast a test is to send.

use crate::unit;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A requested rate. `10kpps`, `100mbit`, `1.5gbit`, `200pps`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Messages (datagrams, requests) per second.
    MessagesPerSecond(f64),
    /// Payload bits per second (UDP or TCP payload, no headers).
    BitsPerSecond(f64),
}

impl Rate {
    /// Messages per second when every message carries `size` bytes of payload.
    pub fn messages_per_second(self, size: u32) -> f64 {
        match self {
            Rate::MessagesPerSecond(rate) => rate,
            Rate::BitsPerSecond(rate) => rate / (8.0 * f64::from(size.max(1))),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let messages = unit::fractional(text, unit::MESSAGES_PER_S).map(Rate::MessagesPerSecond);
        let rate = messages.or_else(|| unit::fractional(text, unit::BITS_PER_S).map(Rate::BitsPerSecond));
        let rate = rate
            .ok_or_else(|| format!("'{text}' is not a rate (examples: 50kpps, 200pps, 100mbit, 1.5gbit)"))?;
        let (Rate::MessagesPerSecond(number) | Rate::BitsPerSecond(number)) = rate;
        if number > 0.0 { Ok(rate) } else { Err(format!("the rate '{text}' must be above zero")) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, units) = match *self {
            Rate::MessagesPerSecond(value) => (value, unit::MESSAGES_PER_S),
            Rate::BitsPerSecond(value) => (value, unit::BITS_PER_S),
        };
        let fits = units.iter().rev().find(|(_, scale)| value >= *scale as f64);
        let (name, scale) = fits.unwrap_or(&units[0]);
        write!(f, "{}{name}", value / *scale as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_read_and_wrong_ones_explained() {
        assert_eq!("50kpps".parse(), Ok(Rate::MessagesPerSecond(50_000.0)));
        assert_eq!("1.5gbit".parse(), Ok(Rate::BitsPerSecond(1.5e9)));
        for wrong in ["", "10", "fast", "1.2.3pps", "0pps", "-1kpps"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bit_rate_is_turned_into_messages_by_payload() {
        assert_eq!(Rate::BitsPerSecond(8e6).messages_per_second(1000), 1000.0);
    }

    proptest! {
        #[test]
        fn a_printed_rate_reads_back(value in 1.0f64..1e12, bits: bool) {
            let rate = if bits { Rate::BitsPerSecond(value) } else { Rate::MessagesPerSecond(value) };
            let back: Rate = rate.to_string().parse().unwrap();
            let (a, b) = (rate.messages_per_second(1), back.messages_per_second(1));
            prop_assert!((a - b).abs() <= a * 1e-12, "{rate}");
        }

        #[test]
        fn any_text_is_a_rate_or_a_sentence(text in ".{0,12}") {
            let _ = text.parse::<Rate>();
        }
    }
}
