//! `pathlab switch`: an OpenFlow switch, or several, from a file or from flags.
//!
//! **What.** Opens the ports, connects to the controllers, listens for clients, and forwards until it is interrupted. Everything
//! that took effect is printed; what happens with controllers is reported while it runs.
//!
//! **Price.** It runs in the foreground, and its rules live as long as it does.

use super::tls::TlsArgs;
use super::{each, read_text};
use crate::log::Log;
use crate::output::{Notices, Output, object, when_any};
use clap::Args;
use flow::port::Queue;
use linux::sys::process;
use load::traffic::threads::joined;
use record::unit::many;
use record::{Problem, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use switch::config::{ControllerConfig, ListenConfig, SwitchConfig, add_port, dpid, engine, fail, name};
use switch::control::{Switch, SwitchNotice};
use switch::datapath::Opened;
use switch::packet_ins::{Limit, PacketInCounts};
use switch::queue_config::{self, QueueConfig};
use switch::shadow::ShadowRate;

/// Flags of `pathlab switch`.
#[derive(Args)]
pub struct SwitchArgs {
    /// A file that describes the switches; or use the flags for one switch.
    #[arg(value_name = "FILE", conflicts_with_all = ["port", "dpid", "name", "controller", "listen", "local", "fail", "engine", "shadow", "queue", "packet_ins", "speed", "private_key", "certificate", "ca_cert"])]
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
    /// A controller to connect to: tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; with ,aux=N for auxiliary connections.
    #[arg(long, value_name = "PEER")]
    controller: Vec<String>,
    /// Where to listen for clients: ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH; with ,connections=N for a limit other than 64.
    #[arg(long, value_name = "PLACE")]
    listen: Vec<String>,
    /// What to do without a controller: keep following the rules (secure), or act as a bridge (standalone).
    #[arg(long, default_value = "secure")]
    fail: String,
    /// What carries the rules out: native (machine code), xdp or tcx (the kernel, and native for the rest), auto, or interpreter.
    #[arg(long, value_name = "ENGINE", default_value = "native")]
    engine: String,
    /// Which frames the interpreter decides about, too, to find mistakes of the engine: auto, off, or one of N frames.
    #[arg(long, value_name = "N", default_value = "auto")]
    shadow: String,
    /// A queue of a port, which becomes a class of the kernel's HTB: PORT:QUEUE,min=RATE,max=RATE, as 1:10,min=10mbit.
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Limit packet-ins to the controllers per second, and at once after a pause: rate=1000,burst=250 [default: as many as they read].
    #[arg(long, value_name = "LIMIT")]
    packet_ins: Option<String>,
    /// The speed of a port, for the rates of its queues: PORT=RATE, as 1=1gbit [default: 10gbit].
    #[arg(long, value_name = "SPEED")]
    speed: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// End after TIME: 5s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = record::unit::duration)]
    duration: Option<Duration>,
}

/// Runs the command.
pub fn run(args: SwitchArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let configs = configs(&args)?;
    let started = configs.iter().map(|config| Ok((config, start(config, output)?)));
    let mut switches = started.collect::<Result<Vec<_>>>()?;
    output.note("forwarding; end it with Ctrl-C");
    let until = args.duration.map(|time| Instant::now() + time);
    let log = Log::begin();
    let result = forward(&mut switches, until, &log);
    log.end();
    let told = switches.iter().map(|(config, switch)| one(config, switch));
    let (switches_told, lines): (Vec<_>, Vec<String>) = told.unzip();
    let ends: Vec<Result<()>> = switches.iter_mut().map(|(_, switch)| switch.queues.end()).collect();
    result?;
    let document = object! { schema: "pathlab/switch/1", switches: switches_told };
    output.result(&document, |_| lines.concat())?;
    ends.into_iter().collect()
}

/// Starts a switch and reports what took effect.
fn start(config: &SwitchConfig, output: &Output) -> Result<Switch> {
    let switch = Switch::start(config)?;
    output.note(&format!("switch {} ({:#018x})", config.name, config.dpid));
    let port = |port: &Opened| format!("port {:<10} {}", port.number.to_string(), port.uri);
    let listens = switch.places().map(|place| format!("listens at {place}"));
    let lines = switch.opened.iter().map(port).chain(switch.queues.said.iter().cloned()).chain(listens);
    lines.for_each(|line| output.note(&format!("  {line}")));
    Ok(switch)
}

/// Forwards, a thread for each switch, until the time is over, it is interrupted, or one of them ends.
fn forward(switches: &mut [(&SwitchConfig, Switch)], until: Option<Instant>, log: &Log) -> Result<()> {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = |one| scope.spawn(move || run_one(one, stop, log));
        let threads: Vec<_> = switches.iter_mut().map(run).collect();
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        while !process::interrupted() && !is_over() && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Relaxed);
        let ends: Vec<Result<()>> = threads.into_iter().map(joined).collect();
        ends.into_iter().collect()
    })
}

fn run_one((config, switch): &mut (&SwitchConfig, Switch), stop: &AtomicBool, log: &Log) -> Result<()> {
    switch.run(stop, |say| log.note(&words(&config.name, &say)))
}

fn configs(args: &SwitchArgs) -> Result<Vec<SwitchConfig>> {
    if let Some(file) = &args.file {
        return SwitchConfig::parse(&read_text(file, "cannot read it")?, &file.display().to_string());
    }
    let name = name(&args.name).map_err(|p| p.at("--name"))?;
    let mut config = SwitchConfig::new(name, dpid(&args.dpid).map_err(|p| p.at("--dpid"))?);
    for port in &args.port {
        add_port(&mut config.ports, port).map_err(|p| p.at("--port"))?;
    }
    config.local = args.local.clone();
    config.controllers = each("--controller", &args.controller, ControllerConfig::parse)?;
    config.listen = each("--listen", &args.listen, ListenConfig::parse)?;
    config.tls = args.tls.files();
    config.queues = each("--queue", &args.queue, QueueConfig::parse)?;
    config.packet_ins = each("--packet-ins", args.packet_ins.as_slice(), Limit::parse)?.pop();
    config.speeds = each("--speed", &args.speed, queue_config::speed)?;
    config.fail = fail(&args.fail).map_err(|p| p.at("--fail"))?;
    config.engine = engine(&args.engine).map_err(|p| p.at("--engine"))?;
    config.shadow = ShadowRate::parse(&args.shadow).map_err(|p| p.at("--shadow"))?;
    if config.ports.is_empty() && config.listen.is_empty() && config.controllers.is_empty() {
        return Err(Problem::input("there is neither a file nor a port")
            .help("pathlab switch --port int:eth1 --port int:eth2 --controller tcp:127.0.0.1"));
    }
    Ok(vec![config])
}

fn words(switch: &str, say: &SwitchNotice) -> String {
    let what = match say {
        SwitchNotice::Up { who, version } => format!("{who} is connected and speaks OpenFlow {version}"),
        SwitchNotice::Down { who, why } => format!("{who} is gone: {why}"),
        SwitchNotice::Unreachable { who, why } => format!("cannot reach {who}: {why}; trying again"),
        SwitchNotice::Port { port, what } => format!("port {port}: {what}"),
        SwitchNotice::Interpreted { what } => format!("the rules are interpreted: {what}"),
        SwitchNotice::Kernel { what } => what.clone(),
        SwitchNotice::Refused { who, why } => format!("{who} was refused: {why}"),
    };
    format!("{switch}: {what}")
}

/// What a switch did: as JSON, and for people what it dropped.
fn one(config: &SwitchConfig, switch: &Switch) -> (impl Serialize + use<>, String) {
    let counts = switch.packet_in_counts();
    let (ports, lines): (Vec<_>, Vec<String>) =
        switch.opened.iter().map(|opened| port(config, switch, opened)).unzip();
    let PacketInCounts { sent, dropped_full, dropped_rate, dropped_nobody, .. } = counts;
    let told = object! {
        name: config.name.clone(),
        dpid: format!("{:016x}", config.dpid),
        engine: config.engine.name,
        divergences: switch.divergences(),
        packet_ins_dropped: counts.dropped(),
        packet_ins: object! { sent, dropped_full, dropped_rate, dropped_nobody },
        ports,
    };
    let dropped = when_any(counts.dropped(), |dropped| {
        format!(
            "{}: {} dropped, {sent} sent (the controllers did not read: {dropped_full}, above the rate: {dropped_rate}, \
             nobody wanted them: {dropped_nobody})\n",
            config.name,
            many(dropped, "packet-in")
        )
    });
    (told, dropped + &lines.concat())
}

fn port(config: &SwitchConfig, switch: &Switch, opened: &Opened) -> (impl Serialize + use<>, String) {
    let number = opened.number.0;
    let queues: Vec<_> = switch.queues_of(opened.number).into_iter().map(queue).collect();
    let (uri, settings, dropped) =
        (opened.uri.clone(), opened.settings.clone(), switch.dropped(opened.number));
    let line = when_any(dropped, |dropped| {
        format!("{}: port {} dropped {}\n", config.name, opened.number, many(dropped, "frame"))
    });
    (object! { number, uri, settings, dropped, queues }, line)
}

fn queue((queue, Queue { min_bps, max_bps, counters, .. }): (u32, Queue)) -> impl Serialize {
    let (frames, bytes, dropped) = (counters.tx_frames, counters.tx_bytes, counters.tx_errors);
    object! { queue, min_bps, max_bps, frames, bytes, dropped }
}
