//! The other tools: how each is started inside a node, and which of its figures counts.
//!
//! Their own figures are read from their machine-readable output (`netperf -o`, `iperf3 -J`), because the contest is
//! about what each tool reports as its result.

use super::job::Job;
use linux::lab::Node;
use record::{Problem, Result};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// Control port of netserver inside the lab (its own namespace, so it meets nobody).
const NETSERVER_PORT: &str = "12865";
/// Port of iperf3 inside the lab.
const IPERF3_PORT: &str = "5201";

/// True when the program can be started here.
pub fn installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/bin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&paths).chain(system).any(|folder| folder.join(program).is_file())
}

/// Starts the servers of the rivals that are installed in a node.
pub fn servers(node: &Node) -> Result<Vec<Job>> {
    let servers: [(&str, &[&str]); 2] =
        [("netserver", &["-D", "-p", NETSERVER_PORT]), ("iperf3", &["-s", "-p", IPERF3_PORT])];
    let start = |(program, words): (&str, &[&str])| {
        let mut command = node.command(program);
        command.args(words);
        Job::spawn(command)
    };
    servers.into_iter().filter(|(program, _)| installed(program)).map(start).collect()
}

/// Runs a client to its end, at most `limit`; its standard output.
fn client(command: Command, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let job = Job::spawn(command)?;
    if !job.ends_within(limit)? {
        return Err(Problem::input(format!("{name} did not end within {} s", limit.as_secs())));
    }
    Ok(job.end()?.1)
}

/// A netperf test; `fields` are omni output selectors, the values come back in their order.
pub fn netperf(
    node: &Node,
    to: IpAddr,
    seconds: u64,
    test: &str,
    own: &[&str],
    fields: &str,
) -> Result<Vec<f64>> {
    let mut command = node.command("netperf");
    command.args(["-P", "0", "-p", NETSERVER_PORT, "-t", test, "-l", &seconds.to_string()]);
    command.args(["-H", &to.to_string(), "--"]).args(own).args(["-o", fields]);
    let text = client(command, Duration::from_secs(seconds + 15))?;
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let values: Vec<f64> = line.split(',').filter_map(|field| field.trim().parse().ok()).collect();
    if values.len() == fields.split(',').count() {
        return Ok(values);
    }
    Err(Problem::input(format!("netperf {test} printed no result: '{}'", text.trim())))
}

/// An iperf3 TCP test; received bits per second and seconds.
pub fn iperf3_tcp(node: &Node, to: IpAddr, seconds: u64) -> Result<f64> {
    let mut command = node.command("iperf3");
    command.args(["-J", "-p", IPERF3_PORT, "-t", &seconds.to_string(), "-c", &to.to_string()]);
    let text = client(command, Duration::from_secs(seconds + 15))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Problem::input(format!("iperf3 printed no JSON: {e}")))?;
    json["end"]["sum_received"]["bits_per_second"].as_f64().ok_or_else(|| {
        Problem::input(format!(
            "iperf3 printed no result: {}",
            json["error"].as_str().unwrap_or("no reason given")
        ))
    })
}
