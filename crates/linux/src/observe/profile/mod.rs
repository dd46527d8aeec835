//! A profile by function: what all CPUs did while a test ran.
//!
//! **What.** [`Collected`] counts samples by thread and addresses while they come; [`Collected::named`] makes functions and roles of
//! them when the test is over. **Roles.** What runs below the kernel's function for soft interrupts is `softirq`, in whatever thread; else
//! what a process of the test does has its role, the idle task is `idle`, and all else is `other`.
//!
//! **What it cannot see.** Code that runs with interrupts off is seen where they are switched on again (the CPU clock is a timer
//! interrupt). The callers of a function in a program that was made without frame pointers are wrong or missing; the function itself is right.
//!
//! **Price.** One look at `/proc` for each process that is seen, and the tables of its files at the end.

pub mod images;

use std::collections::HashMap;
use std::fs;

use record::time::{CpuProfile, ProfileStack};

use self::images::{Images, Memory};
use super::symbols::Symbols;
use crate::sys::perf_samples::SampleRecord;

/// What holds soft interrupts, by its names through the years.
pub(super) const SOFTIRQ: [&str; 3] = ["handle_softirqs", "__do_softirq", "__softirqentry_text_start"];
/// Behind the name of a function of the kernel, as other tools have it.
pub const OF_KERNEL: &str = "_[k]";

/// A thread, and where it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    pid: u32,
    tid: u32,
    kernel: Vec<u64>,
    user: Vec<u64>,
}

/// Samples so far.
#[derive(Debug, Default)]
pub struct Collected {
    places: HashMap<Place, u64>,
    memories: HashMap<u32, Option<Memory>>,
    /// By thread.
    names: HashMap<u32, String>,
    images: Images,
    samples: u64,
    lost: u64,
    throttled: u64,
}

impl Collected {
    /// Takes what lay in a ring.
    pub fn take(&mut self, record: SampleRecord) {
        match record {
            SampleRecord::Sample { pid, tid, kernel, user, .. } => {
                self.look_at(pid, tid);
                self.samples += 1;
                *self.places.entry(Place { pid, tid, kernel, user }).or_default() += 1;
            }
            SampleRecord::Renamed { pid, tid, name } => {
                // It may be another program now.
                if pid == tid {
                    self.memories.remove(&pid);
                }
                self.names.insert(tid, name);
            }
            SampleRecord::Lost(count) => self.lost += count,
            SampleRecord::Throttled => self.throttled += 1,
        }
    }

    fn look_at(&mut self, pid: u32, tid: u32) {
        if pid == 0 {
            return;
        }
        let images = &mut self.images;
        self.memories.entry(pid).or_insert_with(|| images.look_at(pid));
        let name = || fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        self.names.entry(tid).or_insert_with(|| name().trim_end().to_owned());
    }

    /// The profile, with names; the processes of the test have roles.
    pub fn named(mut self, hz: u32, cpus: u32, roles: &[(u32, String)], kernel: &Symbols) -> CpuProfile {
        let mut profile = CpuProfile {
            hz,
            cpus,
            samples: self.samples,
            lost: self.lost,
            throttled: self.throttled,
            ..CpuProfile::default()
        };
        if kernel.is_empty() {
            let why = "functions of the kernel, and what was a soft interrupt: /proc/kallsyms shows no addresses (kernel.kptr_restrict)";
            profile.missing.push(why.into());
        }
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut stacks: HashMap<(String, String, Vec<u32>), u64> = HashMap::new();
        for (place, count) in std::mem::take(&mut self.places) {
            let (role, thread, functions) = self.fold(&place, roles, kernel);
            let number = |name: String| {
                let next = numbers.len() as u32;
                *numbers.entry(name).or_insert(next)
            };
            let functions = functions.into_iter().map(number).collect();
            *stacks.entry((role, thread, functions)).or_default() += count;
        }
        let mut functions: Vec<(String, u32)> = numbers.into_iter().collect();
        functions.sort_by_key(|(_, number)| *number);
        profile.functions = functions.into_iter().map(|(name, _)| name).collect();
        let stack = |((role, thread, functions), count)| ProfileStack { role, thread, functions, count };
        profile.stacks = stacks.into_iter().map(stack).collect();
        profile.stacks.sort_by(|one, other| {
            other.count.cmp(&one.count).then_with(|| one.functions.cmp(&other.functions))
        });
        profile
    }

    /// Role, thread and functions, the outermost first.
    fn fold(
        &mut self,
        place: &Place,
        roles: &[(u32, String)],
        kernel: &Symbols,
    ) -> (String, String, Vec<String>) {
        let of_kernel = kernel_functions(&place.kernel, kernel);
        let thread = self.thread(place);
        let is_softirq = |name: &String| SOFTIRQ.iter().any(|one| name.strip_suffix(OF_KERNEL) == Some(one));
        if let Some(at) = of_kernel.iter().position(is_softirq) {
            return ("softirq".into(), thread, of_kernel[at..].to_vec());
        }
        let role = match roles.iter().find(|(pid, _)| *pid == place.pid) {
            Some((_, role)) => role.clone(),
            None if place.pid == 0 => "idle".into(),
            None if thread.starts_with("ksoftirqd/") || thread.starts_with("napi/") => "softirq".into(),
            None => "other".into(),
        };
        let mut functions = self.user_functions(place);
        functions.extend(of_kernel);
        (role, thread, functions)
    }

    fn thread(&self, place: &Place) -> String {
        match self.names.get(&place.tid).filter(|name| !name.is_empty()) {
            _ if place.pid == 0 => "idle".into(),
            Some(name) => name.clone(),
            None => format!("process {}", place.pid),
        }
    }

    fn user_functions(&mut self, place: &Place) -> Vec<String> {
        let memory = self.memories.get(&place.pid).and_then(Option::as_ref);
        let mut functions = vec![];
        for (depth, &address) in place.user.iter().enumerate() {
            // A caller's address is behind the call, and that may be the end of a function.
            let address = if depth == 0 { address } else { address.saturating_sub(1) };
            let name = memory.and_then(|memory| self.images.function(memory, address));
            match name {
                Some(name) => functions.push(name),
                // Beyond what is no code, nothing of the chain is true.
                None if depth > 0 => break,
                None => functions.push("[unknown]".into()),
            }
        }
        functions.reverse();
        functions
    }
}

/// Functions of the kernel, the outermost first.
fn kernel_functions(addresses: &[u64], kernel: &Symbols) -> Vec<String> {
    let name = |(depth, &address): (usize, &u64)| {
        // The innermost is where it was, not behind a call; `function` knows addresses behind calls.
        let address = if depth == 0 { address.saturating_add(1) } else { address };
        format!("{}{OF_KERNEL}", kernel.function(address).unwrap_or("[kernel]"))
    };
    let mut functions: Vec<String> = addresses.iter().enumerate().map(name).collect();
    if kernel.is_empty() {
        functions.truncate(1);
    }
    functions.reverse();
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "ffffffff81000000 T entry\nffffffff81001000 t handle_softirqs\n\
                          ffffffff81002000 t net_rx_action\nffffffff81003000 t __ip_finish_output.isra.0\n";
    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn sample(pid: u32, kernel: &[u64]) -> SampleRecord {
        SampleRecord::Sample { pid, tid: pid, cpu: 0, kernel: kernel.to_vec(), user: vec![0x10] }
    }

    fn shown(profile: &CpuProfile) -> Vec<String> {
        let names = |stack: &ProfileStack| {
            let names: Vec<&str> =
                stack.functions.iter().map(|&one| profile.functions[one as usize].as_str()).collect();
            format!("{} {} {} {}", stack.role, stack.thread, names.join(";"), stack.count)
        };
        profile.stacks.iter().map(names).collect()
    }

    fn collected() -> Collected {
        let (gone, all) = (u32::MAX, [BASE + 0x2000, BASE + 0x1005, BASE + 5]);
        let mut collected = Collected::default();
        for record in [
            SampleRecord::Renamed { pid: gone, tid: gone, name: "burn".into() },
            sample(gone, &all),
            sample(gone, &all),
            sample(gone, &[BASE + 0x3000]),
            sample(0, &[BASE]),
            sample(gone - 1, &[]),
            SampleRecord::Lost(3),
            SampleRecord::Throttled,
        ] {
            collected.take(record);
        }
        collected
    }

    #[test]
    fn roles_and_functions_are_those_of_the_thread_and_of_soft_interrupts() {
        let roles = [(u32::MAX, "sender".to_owned())];
        let profile = collected().named(997, 2, &roles, &Symbols::parse(KERNEL));
        let mut found = shown(&profile);
        assert_eq!(found.remove(0), "softirq burn handle_softirqs_[k];net_rx_action_[k] 2");
        found.sort();
        let expected = [
            "idle idle [unknown];entry_[k] 1",
            "other process 4294967294 [unknown] 1",
            "sender burn [unknown];__ip_finish_output_[k] 1",
        ];
        assert_eq!(found, expected);
        assert_eq!((profile.samples, profile.lost, profile.throttled), (5, 3, 1));
        assert!(profile.missing.is_empty());
    }

    #[test]
    fn hidden_addresses_are_said_and_named_kernel() {
        let hidden = Symbols::parse("0000000000000000 T entry\n");
        let profile = collected().named(997, 2, &[], &hidden);
        assert!(profile.missing[0].contains("kptr_restrict"), "{profile:?}");
        assert!(
            shown(&profile).iter().any(|line| line == "other burn [unknown];[kernel]_[k] 3"),
            "{profile:?}"
        );
    }
}
