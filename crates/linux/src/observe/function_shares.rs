//! What share of the time functions of the kernel took that no counter tells of: rules of a firewall, the mapping of buffers.
//!
//! **What.** [`FunctionShares`] looks at every CPU about a thousand times in a window, and at the callers inside the kernel. A sample is
//! the firewall's where a function that walks through its rules is among them, whatever that called.
//!
//! **Whose.** Rules that frames meet on their way in and through are met in soft interrupts, so their share is one of those. Rules for what a
//! process sends run in that process and are not among them. The share is of the whole host: a sample does not say in whose namespace it was.
//!
//! **Price.** Some 2 µs for each sample; at the end the names of the kernel's functions (50 ms, once for the modules that are loaded).

use std::time::Duration;

use record::facts::{Fact, Known};

use super::profile::SOFTIRQ;
use super::symbols::{self, Symbols};
use crate::sys::perf_samples::{SampleRecord, Samples};

/// Samples of each CPU in a window, which its ring holds.
const SAMPLES: f64 = 1000.0;
/// The most samples of a CPU in a second.
const MOST_HZ: f64 = 997.0;
/// With fewer samples of what a share is of, it is not told: of 50 a tenth is 5 ± 4.
const FEWEST: u64 = 50;

/// Functions that walk through the rules of a table (net/netfilter/nf_tables_core.c, net/ipv4/netfilter/ip_tables.c and the like).
const FIREWALL: [&str; 5] =
    ["nft_do_chain", "ipt_do_table", "ip6t_do_table", "arpt_do_table", "ebt_do_table"];
/// How the names of functions begin that map buffers for a device (drivers/iommu).
const IOMMU: [&str; 8] =
    ["iommu_", "__iommu_", "intel_iommu_", "amd_iommu_", "arm_smmu_", "alloc_iova", "free_iova", "fq_flush_"];

/// A window that goes on.
#[derive(Debug)]
pub struct FunctionShares {
    samples: std::result::Result<Samples, String>,
}

/// What was seen in a window.
#[derive(Debug)]
pub struct FunctionSamples {
    records: std::result::Result<Vec<SampleRecord>, String>,
}

/// Samples by what was found among the functions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Shares {
    /// Of CPUs that were not idle.
    busy: u64,
    /// Of these those in soft interrupts.
    softirq: u64,
    /// Of these those in rules of a firewall.
    firewall: u64,
    /// Of the busy ones those in functions of the IOMMU.
    iommu: u64,
}

impl FunctionShares {
    /// From now on, for about so long.
    pub fn start(window: Duration) -> FunctionShares {
        let hz = (SAMPLES / window.as_secs_f64().max(0.001)).clamp(1.0, MOST_HZ) as u32;
        let refused = |error| format!("functions cannot be sampled: perf_event_open: {error}");
        FunctionShares { samples: Samples::of_kernel(hz).map_err(refused) }
    }

    /// The window is over.
    pub fn stop(self) -> FunctionSamples {
        let records = self.samples.map(|mut samples| {
            let mut records = vec![];
            samples.read(|record| records.push(record));
            records
        });
        FunctionSamples { records }
    }
}

impl FunctionSamples {
    /// `perf.nft_share` and `perf.iommu_share`.
    pub fn known(self) -> Known {
        let symbols = symbols::current();
        let shares = self.records.and_then(|records| match symbols.is_empty() {
            true => Err("/proc/kallsyms shows no addresses (kernel.kptr_restrict)".into()),
            false => Ok(shares(&records, &symbols)),
        });
        let of = |part: fn(&Shares) -> (u64, u64), what: &str| match &shares {
            Ok(shares) => share(part(shares), what),
            Err(why) => Fact::unknown(why.clone()),
        };
        Known::from([
            ("perf.nft_share".into(), of(|all| (all.firewall, all.softirq), "soft interrupts")),
            ("perf.iommu_share".into(), of(|all| (all.iommu, all.busy), "busy CPUs")),
        ])
    }
}

fn share((part, whole): (u64, u64), what: &str) -> Fact {
    match whole {
        0..FEWEST => Fact::unknown(format!("there were {whole} samples of {what}, too few to tell")),
        _ => Fact::Number(part as f64 / whole as f64),
    }
}

fn shares(records: &[SampleRecord], symbols: &Symbols) -> Shares {
    let mut shares = Shares::default();
    for record in records {
        let SampleRecord::Sample { pid, kernel, .. } = record else { continue };
        let functions: Vec<&str> = kernel.iter().filter_map(|&address| symbols.function(address)).collect();
        let any = |is_one: &dyn Fn(&str) -> bool| functions.iter().any(|name| is_one(name));
        let in_softirq = any(&|name| SOFTIRQ.contains(&name));
        let is_busy = *pid != 0 || in_softirq;
        let in_firewall = in_softirq && any(&|name| FIREWALL.contains(&name));
        let in_iommu = is_busy && any(&|name| IOMMU.iter().any(|begin| name.starts_with(begin)));
        shares.busy += u64::from(is_busy);
        shares.softirq += u64::from(in_softirq);
        shares.firewall += u64::from(in_firewall);
        shares.iommu += u64::from(in_iommu);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "ffffffff81001000 t handle_softirqs\nffffffff81002000 t nft_do_chain\n\
                          ffffffff81003000 t nft_meta_get_eval\nffffffff81004000 t iommu_dma_map_page\n\
                          ffffffff81005000 t default_idle\nffffffff81006000 t do_syscall_64\n";

    /// The innermost is first, as in a ring.
    fn sample(pid: u32, functions: &[u64]) -> SampleRecord {
        let kernel = functions.iter().map(|number| 0xffff_ffff_8100_0010 + (number << 12)).collect();
        SampleRecord::Sample { pid, tid: pid, cpu: 0, kernel, user: vec![] }
    }

    #[test]
    fn a_share_is_of_what_it_belongs_to() {
        let records = [
            sample(0, &[5]),
            // Soft interrupts on top of an idle CPU are no idling.
            sample(0, &[3, 2, 1, 5]),
            sample(7, &[1, 6]),
            sample(7, &[4, 1, 6]),
            // What a process sends is matched in that process.
            sample(7, &[3, 2, 6]),
            sample(7, &[]),
            SampleRecord::Lost(9),
        ];
        let expected = Shares { busy: 5, softirq: 3, firewall: 1, iommu: 1 };
        assert_eq!(shares(&records, &Symbols::parse(KERNEL)), expected);
    }

    #[test]
    fn too_few_samples_tell_nothing() {
        assert!(share((40, 49), "busy CPUs").why_unknown().is_some());
        assert_eq!(share((25, 50), "busy CPUs"), Fact::Number(0.5));
    }

    #[test]
    fn this_host_is_sampled_or_it_is_said_why_not() {
        let window = FunctionShares::start(Duration::from_millis(300));
        let end = std::time::Instant::now() + Duration::from_millis(300);
        while std::time::Instant::now() < end {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
        let known = window.stop().known();
        match &known["perf.iommu_share"] {
            Fact::Number(share) => assert!((0.0..=1.0).contains(share), "{share}"),
            other => println!("SKIP: shares of functions: {}", other.why_unknown().expect("a reason")),
        }
    }
}
