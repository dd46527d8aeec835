//! The queues that a configuration asks for.
//!
//! **What.** [`QueueConfig`] is what a line of the configuration or a flag says of one queue, [`speed`] what a port carries;
//! [`check`] looks whether they fit together.
//!
//! **Why.** The configuration reads them, and [`crate::queues`] makes them of a whole configuration. **Price.** What the
//! kernel can do shows when they are made.

use flow::port::PortNo;
use linux::tune::queues::{self as htb, Wanted};
use record::unit::bit_rate;
use record::{Problem, Result};

/// The lowest rate: one byte a second is 8 bits.
const SLOWEST: u64 = 8;
/// The highest one: OpenFlow has 32 bits for the kbit/s of a port (1.3.5 section 7.2.1).
const FASTEST: u64 = u32::MAX as u64 * 1000;

/// One queue as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// Of which port.
    pub port: PortNo,
    /// Number and rates.
    pub wanted: Wanted,
}

impl QueueConfig {
    /// Reads `PORT:QUEUE [min=RATE] [max=RATE]`, with spaces or commas between.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<QueueConfig> {
        const HELP: &str = "PORT:QUEUE,min=RATE,max=RATE, as 1:10,min=10mbit,max=50mbit";
        let bad = |what: String| Problem::input(what).help(HELP);
        let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default();
        let numbers =
            first.split_once(':').and_then(|(port, queue)| Some((port.parse().ok()?, queue.parse().ok()?)));
        let (port, id) = numbers.ok_or_else(|| bad(format!("'{first}' is not a port and a queue")))?;
        if !(1..=htb::HIGHEST).contains(&id) {
            return Err(bad(format!(
                "a queue has a number from 1 to {}; frames without a queue need none",
                htb::HIGHEST
            )));
        }
        let mut wanted = Wanted { id, min_bps: None, max_bps: None };
        for word in words {
            match word.split_once('=') {
                Some(("min", value)) => wanted.min_bps = Some(rate(value)?),
                Some(("max", value)) => wanted.max_bps = Some(rate(value)?),
                _ => return Err(bad(format!("'{word}' is not of a queue"))),
            }
        }
        if wanted.min_bps.zip(wanted.max_bps).is_some_and(|(min, max)| min > max) {
            return Err(bad(format!("queue {id} of port {port} has a min above its max")));
        }
        Ok(QueueConfig { port: PortNo(port), wanted })
    }
}

/// Reads `PORT=RATE`.
///
/// # Errors
/// Input: what is wrong.
pub fn speed(text: &str) -> Result<(PortNo, u64)> {
    let bad = || Problem::input(format!("'{text}' is not a port and a speed")).help("PORT=RATE, as 1=1gbit");
    let (port, value) = text.split_once('=').ok_or_else(bad)?;
    Ok((PortNo(port.parse().map_err(|_| bad())?), rate(value)?))
}

/// Reads a rate that a queue can have.
fn rate(text: &str) -> Result<u64> {
    let bps = bit_rate(text).map_err(Problem::input)?;
    if (SLOWEST..=FASTEST).contains(&bps) {
        return Ok(bps);
    }
    Err(Problem::input(format!("no queue has a rate of {text}")).help("from 8bit to 4294gbit"))
}

/// Checks that queues and speeds are of ports that are there, and that no queue is twice.
///
/// # Errors
/// Input: which one is wrong.
pub fn check(ports: &[(PortNo, String)], queues: &[QueueConfig], speeds: &[(PortNo, u64)]) -> Result<()> {
    let missing = |port: PortNo| !ports.iter().any(|(number, _)| *number == port);
    let named = queues.iter().map(|queue| queue.port).chain(speeds.iter().map(|(port, _)| *port));
    if let Some(port) = named.into_iter().find(|port| missing(*port)) {
        return Err(Problem::input(format!("there is no port {port} to have queues or a speed")));
    }
    for (i, queue) in queues.iter().enumerate() {
        if queues[..i].iter().any(|other| (other.port, other.wanted.id) == (queue.port, queue.wanted.id)) {
            return Err(Problem::input(format!("port {} has queue {} twice", queue.port, queue.wanted.id)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_port_a_number_and_rates() {
        let read = |text: &str| QueueConfig::parse(text).unwrap();
        let wanted = Wanted { id: 10, min_bps: Some(10_000_000), max_bps: Some(1_000_000_000) };
        assert_eq!(read("2:10 min=10mbit max=1Gbit"), QueueConfig { port: PortNo(2), wanted });
        assert_eq!(read("2:10,min=10000kbit,max=1gbit").wanted, wanted);
        assert_eq!(read("2:10").wanted, Wanted { id: 10, min_bps: None, max_bps: None });
        assert_eq!(speed("3=100mbit").unwrap(), (PortNo(3), 100_000_000));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "not a port and a queue"),
            ("1", "not a port and a queue"),
            ("1:0", "from 1 to"),
            ("1:65534", "from 1 to"),
            ("1:2,rate=1mbit", "'rate=1mbit'"),
            ("1:2,min=1", "is not a rate in bits per second"),
            ("1:2,min=1bit", "from 8bit to"),
            ("1:2,min=99999999999gbit", "is not a rate"),
            ("1:2,min=18446744073709551615bit", "from 8bit to"),
            ("1:2,max=4295gbit", "from 8bit to"),
            ("1:2,min=2mbit,max=1mbit", "above its max"),
        ] {
            let problem = QueueConfig::parse(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        assert!(speed("1").is_err() && speed("x=1mbit").is_err());
        let ports = [(PortNo(1), "int:a".to_owned())];
        let queue = QueueConfig::parse("1:2").unwrap();
        assert!(check(&ports, &[queue], &[]).is_ok());
        assert!(check(&ports, &[queue, queue], &[]).is_err());
        assert!(check(&ports, &[], &[(PortNo(2), 8)]).is_err());
    }
}
