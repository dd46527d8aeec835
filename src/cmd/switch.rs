//! `pathlab switch`: an OpenFlow switch, or several, from a file or from flags.
//!
//! **What.** Opens the ports, calls the controllers, listens for clients, and forwards until it is interrupted. Everything
//! that took effect is printed; what happens with controllers is told while it runs.
//!
//! **Price.** It runs in the foreground, and its rules live as long as it does.

use super::tls::TlsArgs;
use crate::output::Output;
use clap::Args;
use flow::port::Queue;
use linux::sys::process;
use record::unit::many;
use record::{PortSetting, Problem, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::config::{Controller, Door, SwitchConfig, add_port, dpid, fail};
use switch::control::{Say, Switch};
use switch::packet_ins::{Counts, Limit};
use switch::queue_config::{self, QueueConfig};

/// Flags of `pathlab switch`.
#[derive(Args)]
pub struct SwitchArgs {
    /// A file that says what the switches are; or use the flags for one switch.
    #[arg(value_name = "FILE", conflicts_with_all = ["port", "dpid", "name", "controller", "listen", "local", "fail", "queue", "packet_ins", "speed", "private_key", "certificate", "ca_cert"])]
    file: Option<PathBuf>,
    /// A port, as int:eth1 or 3=ring:eth1 (kinds: int, ring, xdp, tap, mem, fault).
    #[arg(long, value_name = "[N=]PORT")]
    port: Vec<String>,
    /// The port LOCAL, usually tap:NAME.
    #[arg(long, value_name = "PORT")]
    local: Option<String>,
    /// The datapath identifier.
    #[arg(long, default_value = "1")]
    dpid: String,
    /// Its name.
    #[arg(long, default_value = "s1")]
    name: String,
    /// A controller to call: tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; with ,aux=N for auxiliary connections.
    #[arg(long, value_name = "PEER")]
    controller: Vec<String>,
    /// Where clients may call: ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH; with ,connections=N for another number of them than 64.
    #[arg(long, value_name = "PLACE")]
    listen: Vec<String>,
    /// What to do without a controller: go on with the rules (secure), or be a bridge (standalone).
    #[arg(long, default_value = "secure")]
    fail: String,
    /// A queue of a port, which becomes a class of the kernel's HTB: PORT:QUEUE,min=RATE,max=RATE, as 1:10,min=10mbit.
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// How many packet-ins go to the controllers in a second, and at once after a pause: rate=1000,burst=250; as many as they read when it is not said.
    #[arg(long, value_name = "LIMIT")]
    packet_ins: Option<String>,
    /// What a port carries, for the rates of its queues: PORT=RATE, as 1=1gbit; 10gbit when it is not said.
    #[arg(long, value_name = "SPEED")]
    speed: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// End after TIME: 5s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = record::unit::duration)]
    duration: Option<Duration>,
}

/// What `--json` prints at the end.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    switches: Vec<One>,
}

/// One switch.
#[derive(Serialize)]
struct One {
    name: String,
    dpid: String,
    packet_ins_dropped: u64,
    packet_ins: PacketIns,
    ports: Vec<Port>,
}

/// Frames for the controllers, by what became of them.
#[derive(Serialize)]
struct PacketIns {
    sent: u64,
    dropped_full: u64,
    dropped_rate: u64,
    dropped_nobody: u64,
}

impl From<Counts> for PacketIns {
    fn from(counts: Counts) -> PacketIns {
        let Counts { sent, dropped_full, dropped_rate, dropped_nobody, .. } = counts;
        PacketIns { sent, dropped_full, dropped_rate, dropped_nobody }
    }
}

/// One port of it.
#[derive(Serialize)]
struct Port {
    number: u32,
    uri: String,
    settings: Vec<PortSetting>,
    dropped: u64,
    queues: Vec<OneQueue>,
}

/// One queue of a port.
#[derive(Serialize)]
struct OneQueue {
    queue: u32,
    min_bps: Option<u64>,
    max_bps: Option<u64>,
    frames: u64,
    bytes: u64,
    dropped: u64,
}

/// Runs the command.
pub fn run(args: SwitchArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let configs = configs(&args)?;
    let mut switches = vec![];
    for config in &configs {
        let switch = Switch::start(config)?;
        output.note(&format!("switch {} ({:#018x})", config.name, config.dpid));
        for port in &switch.opened {
            output.note(&format!("  port {:<10} {}", name_of(port.number.0), port.uri));
        }
        for said in &switch.queues.said {
            output.note(&format!("  {said}"));
        }
        for listen in &config.listen {
            output.note(&format!("  listens at {listen}"));
        }
        switches.push(switch);
    }
    output.note("forwarding; end it with Ctrl-C");
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let threads: Vec<_> = switches
            .iter_mut()
            .zip(&configs)
            .map(|(switch, config)| {
                let stop = &stop;
                scope.spawn(move || switch.run(stop, |say| output.note(&words(&config.name, &say))))
            })
            .collect();
        let until = args.duration.map(|time| Instant::now() + time);
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        while !process::interrupted() && !is_over() && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<()>>>()
    });
    let told = configs.iter().zip(&switches).map(|(config, switch)| one(config, switch)).collect();
    let ends: Vec<Result<()>> = switches.iter_mut().map(|switch| switch.queues.end()).collect();
    drop(result?);
    let document = Document { schema: "pathlab/switch/1", switches: told };
    output.result(&document, text)?;
    ends.into_iter().collect()
}

fn configs(args: &SwitchArgs) -> Result<Vec<SwitchConfig>> {
    if let Some(file) = &args.file {
        let place = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|e| Problem::input(format!("cannot read it: {e}")).at(place.clone()))?;
        return SwitchConfig::parse(&text, &place);
    }
    let mut config = SwitchConfig::new(&args.name, dpid(&args.dpid).map_err(|p| p.at("--dpid"))?);
    for port in &args.port {
        add_port(&mut config.ports, port).map_err(|p| p.at("--port"))?;
    }
    config.local = args.local.clone();
    let controllers = args.controller.iter().map(|text| Controller::parse(text));
    config.controllers = controllers.collect::<Result<_>>().map_err(|p| p.at("--controller"))?;
    let listen = args.listen.iter().map(|text| Door::parse(text));
    config.listen = listen.collect::<Result<_>>().map_err(|p| p.at("--listen"))?;
    config.tls = args.tls.files();
    let queues = args.queue.iter().map(|text| QueueConfig::parse(text));
    config.queues = queues.collect::<Result<_>>().map_err(|p| p.at("--queue"))?;
    let limit = args.packet_ins.as_deref().map(Limit::parse).transpose();
    config.packet_ins = limit.map_err(|p| p.at("--packet-ins"))?;
    let speeds = args.speed.iter().map(|text| queue_config::speed(text));
    config.speeds = speeds.collect::<Result<_>>().map_err(|p| p.at("--speed"))?;
    config.fail = fail(&args.fail).map_err(|p| p.at("--fail"))?;
    if config.ports.is_empty() && config.listen.is_empty() && config.controllers.is_empty() {
        return Err(Problem::input("there is neither a file nor a port")
            .help("pathlab switch --port int:eth1 --port int:eth2 --controller tcp:127.0.0.1"));
    }
    Ok(vec![config])
}

fn name_of(number: u32) -> String {
    if number == flow::PortNo::LOCAL.0 { "LOCAL".into() } else { number.to_string() }
}

fn words(switch: &str, say: &Say) -> String {
    match say {
        Say::Up { who, version } => format!("{switch}: {who} is connected and speaks OpenFlow {version}"),
        Say::Down { who, why } => format!("{switch}: {who} is gone: {why}"),
        Say::Unreachable { who, why } => format!("{switch}: cannot reach {who}: {why}; trying again"),
        Say::Port { port, what } => format!("{switch}: port {}: {what}", name_of(port.0)),
        Say::Refused { who, why } => format!("{switch}: {who} called in vain: {why}"),
    }
}

fn one(config: &SwitchConfig, switch: &Switch) -> One {
    let ports = switch.opened.iter().map(|port| Port {
        number: port.number.0,
        uri: port.uri.clone(),
        settings: port.settings.clone(),
        dropped: switch.dropped(port.number),
        queues: switch.queues_of(port.number).iter().map(|(id, queue)| one_queue(*id, queue)).collect(),
    });
    let counts = switch.packet_in_counts();
    One {
        name: config.name.clone(),
        dpid: format!("{:016x}", config.dpid),
        packet_ins_dropped: counts.dropped(),
        packet_ins: counts.into(),
        ports: ports.collect(),
    }
}

fn one_queue(id: u32, queue: &Queue) -> OneQueue {
    OneQueue {
        queue: id,
        min_bps: queue.min_bps,
        max_bps: queue.max_bps,
        frames: queue.counters.tx_frames,
        bytes: queue.counters.tx_bytes,
        dropped: queue.counters.tx_errors,
    }
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    for switch in &document.switches {
        if switch.packet_ins_dropped > 0 {
            let PacketIns { sent, dropped_full, dropped_rate, dropped_nobody } = switch.packet_ins;
            text += &format!(
                "{}: {} dropped, {sent} sent (the controllers did not read: {dropped_full}, above the rate: {dropped_rate}, \
                 nobody wanted them: {dropped_nobody})\n",
                switch.name,
                many(switch.packet_ins_dropped, "packet-in")
            );
        }
        for port in switch.ports.iter().filter(|port| port.dropped > 0) {
            text += &format!(
                "{}: port {} dropped {}\n",
                switch.name,
                name_of(port.number),
                many(port.dropped, "frame")
            );
        }
    }
    text
}
