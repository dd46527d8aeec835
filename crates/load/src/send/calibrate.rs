//! The generator's own ceiling: how fast it is when nothing behind it is slow.
//!
//! Twice into a sink: a wire in memory, which costs the program alone, and a veth in a lab of its own whose far end has
//! no address, so that its kernel drops every frame as somebody else's at the first look. A result near one of these
//! says nothing about what was to be measured.

use super::engine::{EngineControl, Source};
use super::job::{Job, SendContent, Sending};
use super::program::CompiledTemplate;
use super::sending::send;
use super::template::{LayerKind, Template};
use linux::lab::{Lab, Lifetime, Topology};
use linux::port::{MAX_BATCH, PortOptions, Uri, Wait};
use record::send::{Calibration, SendReport};
use record::{PortKind, Problem, Result};
use std::time::Duration;

const TOPOLOGY: &str = "node a b\nlink a:eth0 -- b:eth0\ninterface a:eth0 address 10.0.0.1/24\n";

/// A locally administered address that nobody has.
const NOBODY: u128 = 0x0200_0000_00fe;

/// Finds the ceiling of a template, for the kind and settings of a port; its interface does not matter.
///
/// # Errors
/// Input: a port without an interface. Host: no lab can be built here.
pub fn calibrate(job: &Job, watch: &EngineControl) -> Result<Calibration> {
    let SendContent::Template(template) = &job.what else {
        return Err(Problem::input("only templates can be calibrated").help("leave --from out"));
    };
    let mut template = template.clone();
    let nobody = template
        .layers
        .iter_mut()
        .find(|layer| layer.kind == LayerKind::Ethernet && layer.get("dst").is_none());
    if let Some(layer) = nobody {
        layer.set("dst", NOBODY);
    }
    let port = on_interface(&job.port, "eth0")?;
    let program_per_second = in_memory(job, &template, watch)?;
    let lab = Lab::up(
        &linux::undo::journals()?,
        &Topology::parse(TOPOLOGY, "calibration")?,
        &format!("calibrate-{}", std::process::id()),
        Lifetime::Ephemeral,
    )?;
    let there = Job { port: port.clone(), what: SendContent::Template(template.clone()), ..job.clone() };
    let report = lab.node("a")?.within(|| send(&there, watch))?;
    // What cannot be taken down stays in its journal, and the next command says so; the figures hold.
    drop(lab);
    let Sending { report, .. } = report?;
    let port_per_second = accepted_per_second(&report);
    let limit = if port_per_second < 0.8 * program_per_second {
        format!(
            "the port and the kernel behind it: the program alone makes {:.1} times as many frames",
            program_per_second / port_per_second.max(1.0)
        )
    } else {
        "the program".to_owned()
    };
    Ok(Calibration {
        schema: "pathlab/calibration/1".into(),
        source: report.source,
        port,
        program_per_second,
        port_per_second,
        limit,
        settings: report.settings,
    })
}

/// Frames that the port took, in the time of the sending.
fn accepted_per_second(report: &SendReport) -> f64 {
    if report.seconds > 0.0 { report.frames.accepted as f64 / report.seconds } else { 0.0 }
}

/// The same kind of port with the same settings, on another interface.
fn on_interface(port: &str, interface: &str) -> Result<String> {
    let uri = Uri::parse(port)?;
    if !PortKind::named(&uri.kind).is_some_and(PortKind::has_interface) {
        return Err(Problem::input("this kind of port has no interface")
            .at(port)
            .help("write int:, ring:, xdp: or live:, with settings behind '?' if wanted"));
    }
    let settings = &port[uri.kind.len() + 1 + uri.rest.len()..];
    Ok(format!("{}:{interface}{settings}", uri.kind))
}

/// Frames per second into a wire in memory that somebody drains.
fn in_memory(job: &Job, template: &Template, watch: &EngineControl) -> Result<f64> {
    let chunk = CompiledTemplate::new(template).longest().next_power_of_two().clamp(2048, 1 << 17);
    let port = format!("mem:calibrate-{}?frames=4096&chunk={chunk}", std::process::id());
    let mut far = linux::port::open(&port, &PortOptions::default())?;
    let there = Job { port, what: SendContent::Template(template.clone()), threads: 1, ..job.clone() };
    let Sending { report, .. } = std::thread::scope(|scope| {
        let mut from = far.receiver.take().expect("opened both ways");
        scope.spawn(move || while from.receive(MAX_BATCH, Wait::For(Duration::from_secs(1))).is_ok() {});
        send(&there, watch)
    })?;
    Ok(accepted_per_second(&report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_exchanged_and_settings_stay() {
        assert_eq!(on_interface("ring:?bypass=on", "eth0").unwrap(), "ring:eth0?bypass=on");
        assert_eq!(on_interface("int:x", "eth0").unwrap(), "int:eth0");
        assert!(on_interface("pcap:x", "eth0").unwrap_err().to_string().contains("no interface"));
    }
}
