//! What a rule sees of the facts: those of one interface, of its node and of the host, by name.

use super::Advice;
use record::facts::{Fact, Facts, Known};
use record::{Delta, delta};
use std::collections::BTreeMap;

/// What an input is called that is missing, and why.
pub type Missing = String;
/// What a rule found, if it found anything.
pub type Answer = Result<Option<Found>, Missing>;
/// A value for each place.
type Places<T> = Result<Vec<(String, T)>, Missing>;

/// What convicts.
#[derive(Debug, Clone)]
pub struct Found {
    /// Estimated part of the goal's quantity that it costs, 0 to 1.
    pub loss: f64,
    /// The numbers.
    pub evidence: String,
    /// What the setting should be; `NEW` in the command.
    pub new: String,
    /// What to do in place of what the rule says.
    pub instead: Option<Advice>,
}

impl Found {
    /// The same finding, for which something else is to be done.
    pub fn advising(self, advice: Advice) -> Found {
        Found { instead: Some(advice), ..self }
    }

    /// The same finding of what costs CPU time only, at an interface; too few frames there to keep a CPU busy tell nothing.
    pub fn of_cpu(self, look: &Look<'_>) -> Found {
        let moved = |name: &str| look.moved(name).unwrap_or(0.0);
        let flows = moved("stats.rx_packets") + moved("stats.tx_packets") >= WORK;
        if flows { self.of_busiest(look) } else { self }
    }

    /// The same finding of what costs CPU time only: as long as no CPU has nothing left, the loss is less, in proportion to the busiest one.
    pub fn of_busiest(self, look: &Look<'_>) -> Found {
        match busiest(look) {
            Ok(busy) if busy < SATURATED => Found {
                loss: self.loss * busy / SATURATED,
                evidence: format!("{}; the busiest CPU is {} busy", self.evidence, percent(busy)),
                ..self
            },
            _ => self,
        }
    }
}

/// Frames in a window from which on they are work for a CPU.
pub const WORK: f64 = 100.0;

/// A finding when `holds`.
pub fn when(holds: bool, loss: f64, evidence: impl Into<String>) -> Answer {
    becomes(holds, loss, evidence, "")
}

/// A finding when `holds`, and what the setting should be.
pub fn becomes(holds: bool, loss: f64, evidence: impl Into<String>, new: impl ToString) -> Answer {
    let loss = if loss.is_finite() { loss.clamp(0.0, 1.0) } else { 0.0 };
    Ok(holds.then(|| Found { loss, evidence: evidence.into(), new: new.to_string(), instead: None }))
}

/// The facts that are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The interface, the node, the host, in the order in which a name is looked for.
    pub known: [Option<&'a Known>; 3],
    /// Of the other end, if there are any.
    pub peer: Option<&'a Facts>,
    /// Length of the window in seconds.
    pub seconds: f64,
}

impl Look<'_> {
    /// What is known by that name.
    ///
    /// # Errors
    /// The name and why it is not known; of a counter also when it ran backwards.
    pub fn fact(&self, name: &str) -> Result<&Fact, Missing> {
        let fact = match name.strip_prefix("peer.") {
            Some(name) => self.of_peer(name)?,
            None => self.known.iter().flatten().find_map(|known| known.get(name)),
        };
        let fact = fact.ok_or_else(|| format!("{name}: these facts do not have it"))?;
        match fact.why_unknown() {
            Some(why) => Err(format!("{name}: {why}")),
            None => Ok(fact),
        }
    }

    fn of_peer(&self, name: &str) -> Result<Option<&Fact>, Missing> {
        let no_peer = || format!("peer.{name}: no facts of the other end were given (--peer FILE)");
        let peer = self.peer.ok_or_else(no_peer)?;
        let nodes = peer.nodes.values().flat_map(|node| node.interfaces.values().chain([&node.known]));
        Ok(std::iter::once(&peer.host).chain(nodes).find_map(|known| known.get(name)))
    }

    /// It is known; `a|b` is when one of both is.
    ///
    /// # Errors
    /// Which is not, and why.
    pub fn needs(&self, input: &str) -> Result<(), Missing> {
        let mut names = input.split('|').map(|name| self.fact(name).map(drop));
        let first = names.next().unwrap_or(Ok(()));
        if first.is_ok() || names.any(|other| other.is_ok()) { Ok(()) } else { first }
    }

    /// A number.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn number(&self, name: &str) -> Result<f64, Missing> {
        as_number(self.fact(name)?).ok_or_else(|| format!("{name}: it is no number"))
    }

    /// A text.
    ///
    /// # Errors
    /// It is missing.
    pub fn text(&self, name: &str) -> Result<String, Missing> {
        Ok(self.fact(name)?.words())
    }

    /// On or off.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn is_on(&self, name: &str) -> Result<bool, Missing> {
        match self.fact(name)? {
            Fact::Flag(on) => Ok(*on),
            Fact::Number(number) => Ok(*number != 0.0),
            // A feature that cannot be switched is `off (fixed)`.
            Fact::Text(text) if text.starts_with("on") || text.starts_with("off") => {
                Ok(text.starts_with("on"))
            }
            _ => Err(format!("{name}: it is neither on nor off")),
        }
    }

    /// How much a counter moved; of one with places the sum.
    ///
    /// # Errors
    /// It is missing, ran backwards or is no counter.
    pub fn moved(&self, name: &str) -> Result<f64, Missing> {
        match self.fact(name)? {
            Fact::Each { .. } => Ok(self.moves(name)?.iter().map(|(_, moved)| moved).sum()),
            fact => as_moved(fact).ok_or_else(|| format!("{name}: it is no counter")),
        }
    }

    /// How much a counter moved in a second.
    ///
    /// # Errors
    /// As [`Look::moved`].
    pub fn per_s(&self, name: &str) -> Result<f64, Missing> {
        Ok(self.moved(name)? / self.seconds.max(1e-9))
    }

    /// The value of each place.
    fn each<T>(&self, name: &str, of: impl Fn(&Fact) -> Option<T>) -> Places<T> {
        let Fact::Each { each } = self.fact(name)? else { return Err(format!("{name}: it has no places")) };
        let odd = |place: &str| format!("{name}: {place} is not what it should be");
        each.iter().map(|(place, fact)| Ok((place.clone(), of(fact).ok_or_else(|| odd(place))?))).collect()
    }

    /// The number of each place.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn numbers(&self, name: &str) -> Places<f64> {
        self.each(name, as_number)
    }

    /// The text of each place.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn texts(&self, name: &str) -> Places<String> {
        self.each(name, |fact| Some(fact.words()))
    }

    /// How much the counter of each place moved.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn moves(&self, name: &str) -> Places<f64> {
        self.each(name, as_moved)
    }

    /// The same by place.
    ///
    /// # Errors
    /// As [`Look::moves`].
    pub fn moves_by(&self, name: &str) -> Result<BTreeMap<String, f64>, Missing> {
        Ok(self.moves(name)?.into_iter().collect())
    }

    /// The place whose counter moved most, with what part of `all` at the same place that was.
    ///
    /// # Errors
    /// One of both is missing.
    pub fn shares(&self, name: &str, all: &str) -> Places<f64> {
        let all = self.moves_by(all)?;
        let share = |(place, moved): (String, f64)| {
            let whole = all.get(&place).copied().unwrap_or(0.0);
            (place, if whole > 0.0 { moved / whole } else { 0.0 })
        };
        Ok(self.moves(name)?.into_iter().map(share).collect())
    }
}

fn as_number(fact: &Fact) -> Option<f64> {
    match fact {
        Fact::Number(number) => Some(*number),
        Fact::Flag(on) => Some(f64::from(u8::from(*on))),
        _ => None,
    }
}

fn as_moved(fact: &Fact) -> Option<f64> {
    let Fact::Counter { before, after } = fact else { return None };
    Delta::of(*before, *after).known().map(|moved| moved as f64)
}

/// The largest of them with its place.
pub fn most(places: &[(String, f64)]) -> (&str, f64) {
    let larger = places.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    larger.map_or(("", 0.0), |(place, value)| (place.as_str(), *value))
}

/// The largest divided by the mean; 1 when there is nothing.
pub fn uneven(places: &[(String, f64)]) -> f64 {
    let sum: f64 = places.iter().map(|(_, value)| value).sum();
    let mean = sum / places.len().max(1) as f64;
    if mean > 0.0 { most(places).1 / mean } else { 1.0 }
}

/// The middle one.
pub fn median(places: &[(String, f64)]) -> f64 {
    let values: Vec<f64> = places.iter().map(|(_, value)| *value).collect();
    crate::stats::median(&values).unwrap_or(0.0)
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A count for people.
pub fn count(value: f64) -> String {
    record::unit::count(value.max(0.0).round() as u64)
}

/// The sum of some counters.
///
/// # Errors
/// One of them is missing.
pub fn all_of(look: &Look<'_>, names: &[&str]) -> Result<f64, Missing> {
    let moved = names.iter().map(|name| look.moved(name)).collect::<Result<Vec<f64>, Missing>>()?;
    Ok(delta::sum(moved.into_iter().map(|one| one as u64)) as f64)
}

/// Those that moved, as words: `TCPBacklogDrop +3, …`.
///
/// # Errors
/// One of them is missing.
pub fn any_of(look: &Look<'_>, names: &[&str]) -> Result<String, Missing> {
    let mut said = vec![];
    for name in names {
        let moved = look.moved(name)?;
        if moved > 0.0 {
            said.push(format!("{} +{}", name.rsplit('.').next().unwrap_or(name), count(moved)));
        }
    }
    Ok(said.join(", "))
}

/// The CPUs of a list (`0-3,8`) or of a mask (`f`, `00000001,00000000`).
pub fn cpus_of_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<u32>().ok()?);
        (last < first + 4096).then_some(first..=last)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// How many CPUs a mask of hexadecimal digits has.
pub fn cpus_of_mask(text: &str) -> u32 {
    text.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum()
}

/// A CPU of which that much is busy has nothing left.
pub const SATURATED: f64 = 0.9;

/// How many of the CPUs are busy for that part of the window at most.
///
/// # Errors
/// An input is missing.
pub fn busiest(look: &Look<'_>) -> Result<f64, Missing> {
    Ok(most(&look.shares("cpu.busy", "cpu.total")?).1)
}

/// A finding when one of the counters moved: which, and by how much.
///
/// # Errors
/// An input is missing.
pub fn any_moved(look: &Look<'_>, names: &[&str], loss: f64) -> Answer {
    let said = any_of(look, names)?;
    when(!said.is_empty(), loss, said)
}

/// A finding when a setting changed in the window whose name begins so.
///
/// # Errors
/// An input is missing.
pub fn changed(look: &Look<'_>, names: &[&str]) -> Answer {
    let changes = look.texts("changed")?;
    let ours: Vec<String> = changes
        .into_iter()
        .filter(|(what, _)| names.iter().any(|name| what.starts_with(name)))
        .map(|(what, words)| format!("{what}: {words}"))
        .collect();
    when(!ours.is_empty(), 0.5, ours.join("; "))
}

/// What a frame takes on a wire beside itself: FCS, preamble, gap.
const AROUND: f64 = 24.0;

/// How long a full ring lasts at line rate with the frames of the window, in microseconds; with full-size frames when none came.
///
/// # Errors
/// An input is missing.
pub fn ring_time_us(look: &Look<'_>) -> Result<f64, Missing> {
    let frames = look.moved("stats.rx_packets")?;
    let bytes = look.moved("stats.rx_bytes")?;
    let mean = if frames > 0.0 { bytes / frames } else { 1514.0 };
    // Bits of a microsecond are the megabits of a second.
    Ok(look.number("ring.rx")? * 8.0 * (mean + AROUND) / look.number("speed_mbps")?.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_of_cpus_are_read() {
        assert_eq!(cpus_of_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(cpus_of_list(""), [0u32; 0]);
        assert_eq!((cpus_of_mask("00000001,0000000f"), cpus_of_mask("0")), (5, 0));
    }

    #[test]
    fn unevenness_is_the_largest_over_the_mean() {
        let at = |values: &[f64]| values.iter().map(|value| (String::new(), *value)).collect::<Vec<_>>();
        assert_eq!(
            (uneven(&at(&[4.0, 0.0])), uneven(&at(&[])), median(&at(&[1.0, 5.0, 2.0]))),
            (2.0, 1.0, 2.0)
        );
    }
}
