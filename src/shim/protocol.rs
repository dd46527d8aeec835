//! `ofprotocol`: the half of the reference switch that connects to the controllers.

use super::words::Daemon;
use crate::cmd::each;
use crate::cmd::tls::TlsArgs;
use crate::log::Log;
use crate::output::{Notices, Output};
use clap::Parser;
use linux::sys::process;
use record::{Problem, Result};
use std::time::Duration;
use switch::config::{FailMode, Listen, Remote};
use switch::relay::{Relay, Said};
use switch::stream::Listener;

/// The secure channel of an OpenFlow datapath, with the arguments of the reference implementation.
#[derive(Parser)]
#[command(name = "ofprotocol", version)]
pub struct Protocol {
    /// Without a controller: keep following the rules (closed), or act as a bridge (open).
    #[arg(short = 'F', long, value_name = "HOW", default_value = "open", value_parser = ["open", "closed"])]
    fail: String,
    /// Where to listen for clients: ptcp:[PORT][:IP] or punix:PATH.
    #[arg(short, long, value_name = "PLACE")]
    listen: Vec<String>,
    /// The longest pause between two attempts to connect to a controller.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    max_backoff: u64,
    /// Accepted: the switch itself probes silent controllers.
    #[arg(long, value_name = "SECONDS")]
    inactivity_probe: Option<u64>,
    /// Accepted: no controller is reached through the switch's own ports.
    #[arg(long)]
    out_of_band: bool,
    /// Accepted: there is no spanning tree.
    #[arg(long)]
    no_stp: bool,
    /// Refused: there is no spanning tree.
    #[arg(long, conflicts_with = "no_stp")]
    stp: bool,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    daemon: Daemon,
    /// The datapath: unix:PATH or tcp:IP[:PORT].
    #[arg(value_name = "DATAPATH")]
    datapath: String,
    /// Controllers, with commas or spaces between: tcp:IP[:PORT] or unix:PATH.
    #[arg(value_name = "CONTROLLER", value_delimiter = ',')]
    controllers: Vec<String>,
}

/// Relays until it is interrupted.
pub fn run(args: Protocol, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let relay = relay(&args)?;
    output.note(&format!("relaying between {} and {} controllers", relay.datapath, relay.controllers.len()));
    let log = Log::begin();
    let result = relay.run(&process::interrupted, &|said| log.note(&words(&said)));
    log.end();
    result
}

fn relay(args: &Protocol) -> Result<Relay> {
    args.daemon.check()?;
    if args.stp {
        return Err(Problem::input("there is no spanning tree here").at("--stp").help("leave it out"));
    }
    let controllers = args.controllers.iter().filter(|text| !text.is_empty());
    let controllers = controllers.map(|text| Remote::parse(text)).collect::<Result<Vec<_>>>()?;
    if controllers.is_empty() && args.listen.is_empty() {
        return Err(Problem::input("there is neither a controller nor a place to listen")
            .help("ofprotocol unix:/tmp/s1 tcp:127.0.0.1:6653; controllers are not discovered"));
    }
    let datapath = Remote::parse(&args.datapath).map_err(|problem| problem.at("DATAPATH"))?;
    let places = each("--listen", &args.listen, Listen::parse)?;
    let is_tls =
        datapath.is_tls() || controllers.iter().any(Remote::is_tls) || places.iter().any(Listen::is_tls);
    let credentials = args.tls.files().load_if(is_tls)?;
    let listeners = places.iter().map(|place| Listener::open(place, credentials.as_ref()));
    let listeners = listeners.collect::<Result<_>>().map_err(|problem| problem.at("--listen"))?;
    Ok(Relay {
        datapath,
        controllers,
        listeners,
        fail: if args.fail == "open" { FailMode::Standalone } else { FailMode::Secure },
        credentials,
        longest_pause: Duration::from_secs(args.max_backoff),
    })
}

fn words(said: &Said) -> String {
    match said {
        Said::Up(who) => format!("{who} is connected to the switch"),
        Said::Down(who, why) => format!("{who} is no longer connected: {why}"),
        Said::Unreachable(who, why) => format!("cannot reach {who}: {why}; trying again"),
        Said::Open(true) => "no controller is connected: the switch now acts as a bridge".into(),
        Said::Open(false) => "a controller is connected: the switch follows its rules".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Protocol {
        Protocol::try_parse_from(line.split(' ').filter(|word| !word.is_empty())).unwrap()
    }

    #[test]
    fn what_mininet_says_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s1.listen");
        let line = format!(
            "ofprotocol unix:/tmp/s1 tcp:127.0.0.1:6653,tcp:10.0.0.1 --fail=closed  --listen=punix:{}",
            socket.display()
        );
        let relay = relay(&read(&line)).unwrap();
        assert_eq!(relay.datapath.to_string(), "unix:/tmp/s1");
        let controllers: Vec<String> = relay.controllers.iter().map(Remote::to_string).collect();
        assert_eq!(controllers, ["tcp:127.0.0.1:6653", "tcp:10.0.0.1:6653"]);
        assert_eq!((relay.fail, relay.listeners.len()), (FailMode::Secure, 1));
        assert!(socket.exists());
        drop(relay);
        assert!(!socket.exists(), "the file goes with the listener");
    }

    #[test]
    fn what_is_not_done_is_said() {
        for (line, expected) in [
            ("unix:/s", "neither a controller"),
            ("--stp unix:/s tcp:1.2.3.4", "spanning tree"),
            ("nl:0 tcp:1.2.3.4", "not a peer"),
            ("-D unix:/s tcp:1.2.3.4", "--detach"),
        ] {
            let problem = relay(&read(&format!("ofprotocol {line}"))).err().unwrap().to_string();
            assert!(problem.contains(expected), "{line}: {problem}");
        }
    }
}
