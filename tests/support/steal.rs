//! CPU time that a hypervisor gave to others while a test measured.
//!
//! Above the bound of `docs/validity.md` pathlab itself calls what it measures invalid, and a trial of such pairs has no verdict. Then
//! there is nothing to test: that is a skip with its share, never a pass, and no failure of the program either.

use std::fmt::Display;

/// The share above which a figure is invalid (docs/validity.md).
const INVALID: f64 = 0.02;

/// What the machine had when this was made.
pub struct Steal(Ticks);

struct Ticks {
    all: u64,
    stolen: u64,
}

/// The line `cpu` of `/proc/stat`, in ticks: user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user and nice.
fn ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let values: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    Some(Ticks { all: values.iter().sum(), stolen: *values.get(7)? })
}

fn now() -> Ticks {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc/stat can be read");
    ticks(&stat).unwrap_or_else(|| panic!("a line cpu of eight numbers: {stat}"))
}

impl Steal {
    /// From now on.
    pub fn begin() -> Steal {
        Steal(now())
    }

    /// The share of all CPU time that was stolen since, where it is more than figures bear.
    pub fn too_much(&self) -> Option<f64> {
        let now = now();
        let all = (now.all - self.0.all).max(1);
        let share = (now.stolen - self.0.stolen) as f64 / all as f64;
        (share > INVALID).then_some(share)
    }

    /// Whether a verdict is the wanted one. Where it is not and the machine was not ours, that is a visible skip, and the test cannot go on;
    /// where it is not and the machine was ours, the test fails with what was found.
    pub fn holds(&self, what: &str, is_wanted: bool, found: impl Display) -> bool {
        match self.too_much() {
            _ if is_wanted => true,
            Some(share) => {
                let share = 100.0 * share;
                super::skip(what, &format!("no verdict: the hypervisor took {share:.1} % of the CPU time"));
                println!("{what}: {found}");
                false
            }
            None => panic!("{what}: {found}"),
        }
    }
}

#[test]
fn the_eighth_number_is_steal() {
    let stat = "cpu  1 2 3 40 5 6 7 8 100 200\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
    let read = ticks(stat).unwrap();
    assert_eq!((read.all, read.stolen), (72, 8));
    assert!(ticks("cpu  1 2 3\n").is_none());
}
