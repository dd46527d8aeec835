//! A contest: several tools do the same job in turn, and every round gives one ratio per rival.

use serde::Serialize;

/// One measurement of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// The rate that counts, in the unit of the contest.
    pub rate: f64,
    /// Busy CPU time of the whole host from its start to its end, in seconds (user, system, interrupts of all CPUs);
    /// starting and ending the tool is part of it.
    pub busy_seconds: f64,
    /// From its start to its end, in seconds: the time that `busy_seconds` was counted in.
    pub elapsed_seconds: f64,
    /// How long its traffic flowed, in seconds: rate × seconds is the work that was done.
    pub seconds: f64,
}

impl Score {
    /// Busy CPU of the whole host in percent of one CPU, over the time that it was counted in.
    pub fn busy_percent(&self) -> f64 {
        if self.elapsed_seconds > 0.0 { 100.0 * self.busy_seconds / self.elapsed_seconds } else { f64::NAN }
    }

    /// Busy CPU nanoseconds for each unit of work (a byte, a datagram, a transaction), given units per rate.
    fn cost(&self) -> f64 {
        let work = self.rate * self.seconds;
        if work > 0.0 { self.busy_seconds * 1e9 / work } else { f64::NAN }
    }
}

/// All rounds of one tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRounds {
    /// Name, with the settings that matter.
    pub name: &'static str,
    /// One score a round.
    pub scores: Vec<Score>,
}

/// Ours against one rival.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The rival.
    pub rival: &'static str,
    /// Ours ÷ theirs, median over the rounds.
    pub rate_ratio: f64,
    /// The interval of that median with 95 % (the range, for fewer than six rounds).
    pub rate_interval: (f64, f64),
    /// Lowest and highest round.
    pub rate_range: (f64, f64),
    /// Busy CPU for each unit of work, ours ÷ theirs, median.
    pub cost_ratio: f64,
    /// The interval of that median.
    pub cost_interval: (f64, f64),
    /// Lowest and highest round.
    pub cost_range: (f64, f64),
}

/// One job, done by all contestants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolComparison {
    /// What is done, e.g. `tcp-stream`.
    pub name: &'static str,
    /// Unit of the rate.
    pub unit: &'static str,
    /// What must hold, in words.
    pub claim: &'static str,
    /// Ours first.
    pub contestants: Vec<ToolRounds>,
    /// Ours against each of the others.
    pub comparisons: Vec<Comparison>,
    /// Who could not take part, and why.
    pub absent: Vec<String>,
}

/// Ours, which comes first, against each of the others, round by round.
pub fn comparisons(contestants: &[ToolRounds]) -> Vec<Comparison> {
    let Some((ours, rivals)) = contestants.split_first() else { return vec![] };
    rivals.iter().map(|rival| compare(ours, rival)).collect()
}

fn compare(ours: &ToolRounds, rival: &ToolRounds) -> Comparison {
    let pairs = || ours.scores.iter().zip(&rival.scores);
    let rates: Vec<f64> = pairs().map(|(a, b)| a.rate / b.rate).collect();
    let costs: Vec<f64> = pairs().map(|(a, b)| a.cost() / b.cost()).collect();
    Comparison {
        rival: rival.name,
        rate_ratio: median(&rates),
        rate_interval: interval(&rates),
        rate_range: range(&rates),
        cost_ratio: median(&costs),
        cost_interval: interval(&costs),
        cost_range: range(&costs),
    }
}

/// Lowest and highest.
pub fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

/// Where the median is with 95 %; NaN for no values.
fn interval(values: &[f64]) -> (f64, f64) {
    study::stats::estimate(values).map_or((f64::NAN, f64::NAN), |estimate| (estimate.low, estimate.high))
}

/// The median; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    study::stats::median(values).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant(name: &'static str, rates: &[f64]) -> ToolRounds {
        let score = |&rate: &f64| Score { rate, busy_seconds: 1.0, elapsed_seconds: 1.0, seconds: 1.0 };
        ToolRounds { name, scores: rates.iter().map(score).collect() }
    }

    #[test]
    fn rounds_are_compared_pair_by_pair() {
        // The machine was twice as fast in the second round: the ratio does not notice.
        let comparison =
            compare(&contestant("ours", &[10.0, 20.0, 10.0]), &contestant("theirs", &[5.0, 10.0, 5.0]));
        assert_eq!((comparison.rate_ratio, comparison.rate_range), (2.0, (2.0, 2.0)));
        assert_eq!(comparison.cost_ratio, 0.5);
        assert_eq!(comparison.rate_interval, (2.0, 2.0));
        // With six rounds and more one that was disturbed is not in the interval.
        let many: Vec<f64> = (1..=20).map(f64::from).collect();
        let disturbed = compare(&contestant("ours", &many), &contestant("theirs", &[1.0; 20]));
        assert_eq!((disturbed.rate_interval, disturbed.rate_range), ((6.0, 15.0), (1.0, 20.0)));
    }

    /// Two CPUs that were busy from the start of a tool to its end are busy with 200 %, however short its traffic was.
    #[test]
    fn the_host_is_never_busier_than_it_has_cpus() {
        let score = Score { rate: 1.0, busy_seconds: 4.8, elapsed_seconds: 2.4, seconds: 2.0 };
        assert!((score.busy_percent() - 200.0).abs() < 1e-9);
        assert!((score.cost() - 2.4e9).abs() < 1.0, "the cost of the work is that of the whole tool");
    }
}
