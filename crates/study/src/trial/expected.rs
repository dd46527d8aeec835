//! Whether an effect is what was expected.
//!
//! **What.** The interval of the effect, turned so that more is better, beside the bounds of the [`Expectation`]: it shows what was expected when all of
//! it lies on that side, the contrary when all of it lies on the other. An interval over a bound shows neither.
//!
//! **Why the interval.** It holds at whichever look a trial ends ([`super`]), whatever is then asked of it; so the trial may go on until this
//! question is answered, which is another one than whether there is a difference.

use record::case::Expectation;
use record::trial::Effect;

/// True when what was expected is shown, false when the contrary is; none when neither.
pub fn shown(expected: Expectation, effect: Effect, higher_is_better: bool) -> Option<bool> {
    let (low, high) = goodness(effect, higher_is_better);
    let (less, more) = (1.0 / (1.0 + expected.bound()), 1.0 + expected.bound());
    let (is_so, is_not) = match expected {
        // Certainly smaller than the gain that counts: no gain, even when it is above nothing.
        Expectation::Better { .. } => (low > 1.0 && high >= more, high < more),
        Expectation::Same { .. } => (low > less && high < more, low >= more || high <= less),
        Expectation::NotWorse { .. } => (low > less, high <= less),
    };
    (is_so || is_not).then_some(is_so)
}

/// The interval of B's figure as a multiple of A's, turned so that more than 1 is better.
pub fn goodness(effect: Effect, higher_is_better: bool) -> (f64, f64) {
    let (low, high) = (effect.low.unwrap_or(0.0), effect.high.unwrap_or(f64::INFINITY));
    if higher_is_better { (low, high) } else { (1.0 / high, 1.0 / low) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn effect(low: f64, high: f64) -> Effect {
        Effect { value: (low * high).sqrt(), low: Some(low), high: Some(high) }
    }

    #[test]
    fn each_expectation_is_shown_refuted_or_open() {
        let (better, same, not_worse) = (
            Expectation::Better { by: 0.02 },
            Expectation::Same { within: 0.05 },
            Expectation::NotWorse { within: 0.05 },
        );
        for (expected, low, high, wanted) in [
            (better, 1.1, 1.3, Some(true)),
            (better, 1.005, 1.04, Some(true)),
            (better, 1.001, 1.01, Some(false)), // a gain that nobody minds
            (better, 0.7, 0.9, Some(false)),
            (better, 0.9, 1.2, None),
            (same, 0.96, 1.04, Some(true)),
            (same, 1.06, 1.2, Some(false)),
            (same, 0.8, 0.9, Some(false)),
            (same, 1.01, 1.2, None),
            (not_worse, 0.96, 3.0, Some(true)),
            (not_worse, 0.5, 0.9, Some(false)),
            (not_worse, 0.9, 1.1, None),
        ] {
            assert_eq!(shown(expected, effect(low, high), true), wanted, "{expected} {low} {high}");
            // A figure of which less is better, read the other way round.
            assert_eq!(shown(expected, effect(1.0 / high, 1.0 / low), false), wanted, "{expected} {low}");
        }
        let unbounded = Effect { value: 2.0, low: None, high: None };
        assert_eq!(shown(better, unbounded, true), None, "too few pairs");
    }

    proptest! {
        /// The slow twin: every effect of a grid inside the interval is asked by itself.
        #[test]
        fn an_interval_shows_what_all_effects_in_it_show(low in 0.5f64..2.0, width in 0.001f64..1.0, bound in 0.0f64..0.5) {
            let high = low * (1.0 + width);
            let inside: Vec<f64> = (0..=100).map(|n| low + (high - low) * f64::from(n) / 100.0).collect();
            let less = 1.0 / (1.0 + bound);
            let all = |is: &dyn Fn(f64) -> bool| inside.iter().all(|value| is(*value));
            let is_worse = all(&|value| value <= less);
            let found = shown(Expectation::NotWorse { within: bound }, effect(low, high), true);
            prop_assert_eq!(found == Some(false), is_worse);
            prop_assert_eq!(found == Some(true), all(&|value| value > less));
            let same = shown(Expectation::Same { within: bound }, effect(low, high), true);
            prop_assert_eq!(same == Some(true), all(&|value| value > less && value < 1.0 + bound));
            prop_assert_eq!(same == Some(false), is_worse || all(&|value| value >= 1.0 + bound));
            let better = shown(Expectation::Better { by: bound }, effect(low, high), true);
            prop_assert_eq!(better == Some(false), all(&|value| value < 1.0 + bound));
            prop_assert!(better != Some(true) || all(&|value| value > 1.0));
        }
    }
}
