//! Which CPU a thread runs on.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// Pins the calling thread to one CPU. Fails with `EINVAL` when the CPU is not there or not allowed.
pub fn pin_thread(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_cpu_is_refused() {
        std::thread::spawn(|| {
            assert!(pin_thread(1 << 20).is_err());
            let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
            let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap()).unwrap();
            pin_thread(first as u32).unwrap();
        })
        .join()
        .unwrap();
    }
}
