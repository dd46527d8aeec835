//! What a test needs of the host that makes it, tried before anything starts.
//!
//! A sentence in the middle of a plan comes too late, and a test that runs with another congestion control than its name says is worse
//! than none. So what can be had is found out by asking the kernel for it, on a socket and a thread that are thrown away.

use crate::protocol::setup::EndRole;
use linux::sys::{cpu, tcp};
use record::spec::TestSpec;
use record::{Problem, Result};

/// Refuses what this host does not have for one end of a test.
///
/// # Errors
/// Input: there is no such congestion control or CPU here, or it may not be used.
pub fn check_host(spec: &TestSpec, role: EndRole) -> Result<()> {
    if let Some(name) = &spec.congestion {
        tcp::try_congestion(name).map_err(|error| {
            let offered = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let offered = std::fs::read_to_string(offered).unwrap_or_default();
            let offered = offered.split_whitespace().collect::<Vec<_>>().join(", ");
            Problem::input(format!("the {} cannot use the congestion control '{name}': {error}", role.name()))
                .help(format!("the kernel offers {offered}; load the module of another one first"))
        })?;
    }
    let Some(cpu) = role.cpu(spec) else { return Ok(()) };
    // A thread of its own: a pin that works must not stay.
    let pinned = std::thread::spawn(move || cpu::pin_thread(cpu)).join();
    match pinned {
        Ok(Ok(())) => Ok(()),
        _ => {
            let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
            Err(Problem::input(format!("the {} cannot run on CPU {cpu}", role.name()))
                .help(format!("online are {}; a container or taskset may allow fewer", online.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_refused_and_what_it_has_is_not() {
        let of = |congestion: Option<&str>, cpu| TestSpec {
            congestion: congestion.map(Into::into),
            sender_cpu: cpu,
            ..TestSpec::default()
        };
        let first = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        check_host(&of(Some(first.trim()), None), EndRole::Sender).unwrap();
        let problem = check_host(&of(Some("no_such"), None), EndRole::Receiver).unwrap_err();
        assert!(problem.kind.exit_code() == 2 && problem.to_string().contains("'no_such'"), "{problem}");
        let problem = check_host(&of(None, Some(8000)), EndRole::Sender).unwrap_err();
        assert!(problem.kind.exit_code() == 2 && problem.to_string().contains("CPU 8000"), "{problem}");
        check_host(&of(None, Some(8000)), EndRole::Receiver).unwrap();
    }
}
