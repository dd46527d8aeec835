//! `pathlab controller`: gives switches the rules of a scenario, and answers them.
//!
//! **What.** Waits for switches, or connects to them; each gets the scenario's rules and a barrier, then its packet-ins are answered
//! until the command is interrupted. What happens is reported while it runs.
//!
//! **Price.** A thread for each switch.

use super::each;
use super::flow::ask::SpeakArgs;
use super::flow::rules;
use crate::log::Log;
use crate::output::{Notices, Output, object, of_others, when_any};
use clap::Args;
use flow::group::GroupMod;
use flow::meter::MeterMod;
use flow::numbered::ModCommand;
use flow::openflow::bytes::Version;
use flow::openflow::fault::Fault;
use flow::openflow::message::Body;
use flow::openflow::misc::Empty;
use flow::pipeline::Change;
use linux::sys::process;
use load::traffic::threads::joined;
use record::unit::{count, many};
use record::{Problem, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use switch::client::Client;
use switch::config::{Listen, Remote};
use switch::scenario::{self, Learner, Scenario};
use switch::stream::{Listener, Stream};

/// How often messages and interrupts are looked for.
const TURN: Duration = Duration::from_millis(50);
/// Switches at a time.
const MOST_SWITCHES: usize = 256;

/// Flags of `pathlab controller`.
#[derive(Args)]
pub struct ControllerArgs {
    /// iperf (port 1 to 2 and back), learning, hub, drop-all, or replay.
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// The rules, groups and meters to replay, one per line, as ovs-ofctl writes them.
    #[arg(value_name = "FILE")]
    file: Option<String>,
    /// Where to listen for switches: ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH [default without --switch: ptcp:6653:127.0.0.1].
    #[arg(long, value_name = "PLACE")]
    listen: Vec<String>,
    /// A switch to connect to: tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH.
    #[arg(long, value_name = "SWITCH")]
    switch: Vec<String>,
    /// End when N switches have their rules, instead of answering until interrupted.
    #[arg(long, value_name = "SWITCHES")]
    until: Option<usize>,
    #[command(flatten)]
    speak: SpeakArgs,
}

/// What one connection was.
#[derive(Debug, Clone, Default, Serialize)]
struct One {
    dpid: String,
    peer: String,
    openflow: String,
    auxiliary: u8,
    rules: usize,
    others: usize,
    packet_ins: u64,
    packet_outs: u64,
    learned_rules: u64,
    refused: u64,
    ended: String,
}

/// What all connections share.
struct ControllerState<'a> {
    scenario: Scenario,
    versions: Vec<Version>,
    args: &'a ControllerArgs,
    log: Log,
    filled: AtomicUsize,
    stop: AtomicBool,
    ended: Mutex<Vec<One>>,
    /// Every connection has one of these.
    running: Arc<()>,
    /// What is learned from each switch, by its dpid; its auxiliary connections share it.
    learners: Mutex<HashMap<String, Arc<Mutex<Learner>>>>,
}

/// Runs the command.
pub fn run(args: ControllerArgs, output: &Output) -> Result<()> {
    experiment::interruptible()?;
    let scenario = scenario(&args)?;
    let mut listen = each("--listen", &args.listen, Listen::parse)?;
    let remotes = each("--switch", &args.switch, Remote::parse)?;
    if listen.is_empty() && remotes.is_empty() {
        listen.push(Listen::parse("ptcp:6653:127.0.0.1")?);
    }
    let is_tls = listen.iter().any(Listen::is_tls) || remotes.iter().any(Remote::is_tls);
    let credentials = args.speak.tls.files().load_if(is_tls)?;
    let open = |at| Listener::open(at, credentials.as_ref());
    let listeners = listen.iter().map(open).collect::<Result<Vec<_>>>()?;
    let state = ControllerState {
        scenario,
        versions: args.speak.versions()?,
        args: &args,
        log: Log::begin(),
        filled: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        ended: Mutex::new(vec![]),
        running: Arc::new(()),
        learners: Mutex::new(HashMap::new()),
    };
    let mut called = vec![];
    for remote in &remotes {
        let client = Client::call(remote, credentials.as_ref(), &state.versions, args.speak.timeout)?;
        called.push((remote.to_string(), client));
    }
    for listener in &listeners {
        output.note(&format!("waiting for switches at {}", listener.place()?));
    }
    let result = state.run(&listeners, called);
    state.log.end();
    let switches = state.ended.into_inner().unwrap_or_else(|broken| broken.into_inner());
    let document = object! { schema: "pathlab/controller/1", scenario: &args.scenario, switches: &switches };
    output.result(&document, |_| switches.iter().map(line).collect())?;
    result
}

fn scenario(args: &ControllerArgs) -> Result<Scenario> {
    let scenario = match (args.scenario.as_str(), &args.file) {
        ("replay", Some(file)) => return Ok(Scenario::Replay(rules::changes(file)?)),
        ("replay", None) => return Err(Problem::input("replay needs the file of the rules")),
        ("iperf", _) => Scenario::Iperf,
        ("learning", _) => Scenario::Learning,
        ("hub", _) => Scenario::Hub,
        ("drop-all", _) => Scenario::DropAll,
        (other, _) => {
            return Err(Problem::input(format!("there is no scenario '{other}'"))
                .help("iperf, learning, hub, drop-all, or replay FILE"));
        }
    };
    match &args.file {
        Some(file) => Err(Problem::input(format!("{} reads no file", args.scenario)).at(file.clone())),
        None => Ok(scenario),
    }
}

impl ControllerState<'_> {
    fn is_over(&self) -> bool {
        process::interrupted() || self.stop.load(Relaxed)
    }

    /// Serves all switches until it is over; the first problem with a switch that it connected to ends it.
    fn run(&self, listeners: &[Listener], called: Vec<(String, Client)>) -> Result<()> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = called
                .into_iter()
                .map(|(name, client)| {
                    let one = Arc::clone(&self.running);
                    scope.spawn(move || self.serve(&name, client, one).map_err(|problem| problem.at(name)))
                })
                .collect();
            while !(self.is_over() || listeners.is_empty() && Arc::strong_count(&self.running) == 1) {
                for stream in listeners.iter().filter_map(Listener::take) {
                    if Arc::strong_count(&self.running) <= MOST_SWITCHES {
                        let one = Arc::clone(&self.running);
                        scope.spawn(move || self.welcome(stream, one));
                    }
                }
                std::thread::sleep(TURN);
            }
            self.stop.store(true, Relaxed);
            threads.into_iter().try_for_each(joined)
        })
    }

    /// A switch that connected to us: a problem with it is reported and ends nothing else.
    fn welcome(&self, stream: Stream, one: Arc<()>) {
        let name = stream.name();
        let client = Client::over(stream, &self.versions, self.args.speak.timeout);
        if let Err(problem) = client.and_then(|client| self.serve(&name, client, one)) {
            self.log.note(&problem.at(name).to_string());
        }
    }

    /// One switch from its hello to its end.
    fn serve(&self, name: &str, mut client: Client, _running: Arc<()>) -> Result<()> {
        let mut one = One { peer: name.to_owned(), openflow: client.version().to_string(), ..One::default() };
        let done = self
            .meet(&mut client, &mut one)
            // The switch of an auxiliary connection has its rules already.
            .and_then(|()| if one.auxiliary == 0 { self.fill(&mut client, &mut one) } else { Ok(()) })
            .and_then(|()| self.answer(&mut client, &mut one));
        one.ended = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
        lock(&self.ended).push(one);
        done
    }

    fn meet(&self, client: &mut Client, one: &mut One) -> Result<()> {
        if let Body::FeaturesReply(features) = client.ask(Body::FeaturesRequest(Empty {}))? {
            one.dpid = format!("{:016x}", features.datapath_id.0);
            one.auxiliary = features.auxiliary_id;
        }
        if one.auxiliary == 0 {
            self.learners().insert(one.dpid.clone(), Arc::default());
        }
        Ok(())
    }

    fn learners(&self) -> MutexGuard<'_, HashMap<String, Arc<Mutex<Learner>>>> {
        lock(&self.learners)
    }

    fn fill(&self, client: &mut Client, one: &mut One) -> Result<()> {
        let changes = self.scenario.begin();
        let refused = post(client, &changes)?;
        let made = changes.iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
        let (rules, others): (Vec<_>, Vec<_>) =
            made.map(|(_, change)| change).partition(|change| matches!(change, Change::Flow(_)));
        one.rules = rules.len().saturating_sub(1);
        one.others = others.into_iter().filter(|change| is_other(change)).count();
        one.refused = refused.len() as u64;
        if let Some(problem) = refused_sentence(&refused, &changes, one.rules + one.others) {
            return Err(problem);
        }
        self.log.note(&format!("{} {}: has its {}", one.peer, one.dpid, many(one.rules as u64, "rule")));
        let filled = self.filled.fetch_add(1, Relaxed) + 1;
        if self.args.until.is_some_and(|until| filled >= until) {
            self.stop.store(true, Relaxed);
        }
        Ok(())
    }

    fn answer(&self, client: &mut Client, one: &mut One) -> Result<()> {
        let learner = self.learners().entry(one.dpid.clone()).or_default().clone();
        while !self.is_over() {
            if let Some(message) = client.next(TURN)?
                && let Body::PacketIn(packet) = message.body
            {
                one.packet_ins += 1;
                if self.scenario == Scenario::Learning {
                    let answer = lock(&learner).packet_in(&packet);
                    answer.into_iter().try_for_each(|body| send(client, body, one))?;
                }
            }
            one.refused += client.take_refused().len() as u64;
        }
        Ok(())
    }
}

/// Makes the changes, one after the other with a barrier, not as a bundle: each has a transaction of its own. Those that the switch refuses,
/// by their place.
fn post(client: &mut Client, changes: &[Change]) -> Result<BTreeMap<usize, Fault>> {
    let sent: Vec<u32> =
        changes.iter().map(|change| client.post(scenario::body(change))).collect::<Result<_>>()?;
    client.barrier()?;
    let index = |xid: u32| sent.iter().position(|sent| *sent == xid);
    let refused = client.take_refused().into_iter();
    Ok(refused.filter_map(|(xid, fault)| Some((index(xid)?, fault))).collect())
}

/// One sentence about what was refused, and what became of the others.
fn refused_sentence(refused: &BTreeMap<usize, Fault>, changes: &[Change], made: usize) -> Option<Problem> {
    let (index, fault) = refused.first_key_value()?;
    let more = when_any(refused.len() - 1, |more| format!(", and {more} more"));
    let (text, others) = (scenario::show(&changes[*index]), of_others(made, made));
    Some(Problem::input(format!("the switch refuses '{text}': {fault}{more}{others}")))
}

/// Whether it adds a group or a meter.
fn is_other(change: &Change) -> bool {
    matches!(change, Change::Group(GroupMod { command: ModCommand::Add, .. }))
        || matches!(change, Change::Meter(MeterMod { command: ModCommand::Add, .. }))
}

/// What several threads share; a panic in one of them leaves it as it is.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Sends an answer and counts it.
fn send(client: &mut Client, body: Body, one: &mut One) -> Result<()> {
    match body {
        Body::PacketOut(_) => one.packet_outs += 1,
        _ => one.learned_rules += 1,
    }
    client.post(body).map(drop)
}

fn line(one: &One) -> String {
    format!(
        "{} {}{} OpenFlow {}: {}, {} came, {} sent back, {} learned, {} refused\n",
        one.peer,
        one.dpid,
        when_any(one.auxiliary, |number| format!(" auxiliary {number}")),
        one.openflow,
        many(one.rules as u64, "rule"),
        many(one.packet_ins, "frame"),
        count(one.packet_outs),
        many(one.learned_rules, "rule"),
        count(one.refused)
    )
}
