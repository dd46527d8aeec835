//! Cases: rules, frames in, frames out, as text that the interpreter runs.
//!
//! **What.** A file holds cases; a case builds a switch, sends frames in and says what has to come out: frames in order,
//! packet-ins in order, and where it matters the counters that moved. [`run`] checks a file.
//!
//! ```text
//! case what it shows
//!   ports 1 2 3                          # without it: 1 to 4
//!   port 2 link_down                     # link_down blocked port_down no_recv no_fwd no_packet_in
//!   config fragments=drop miss_send_len=64
//!   group group_id=1,type=all,bucket=actions=output:2
//!   meter meter=1,pktps,burst,band=type=drop,rate=1,burst_size=1
//!   rule table=0,priority=1,in_port=1 actions=group:1
//!   refused BadAction/BadOutGroup rule actions=group:7
//!   flow-mod delete in_port=1            # modify, modify_strict, delete, delete_strict
//!   at 3s                                # the clock; rules expire
//!   gone IdleTimeout 1                   # this many rules were removed for that reason by the last line
//!   in 1 eth / ip / udp                  # also `in 1 tunnel=5 …`; `packet-out 1 output:2 | eth / ip`
//!     out 2 same                         # or a frame; `out 2 queue=7 …`
//!     packet-in Action table=0 cookie=5 metadata=1 tunnel=5 len=60 same
//!     moved rx:1 lookup:0 matched:0 rule:0 group:1 bucket:1.0 meter:1 band:1.0 tx:2
//! ```
//!
//! **Why.** What the standard means is written down frame by frame, and any engine can be held to it.
//!
//! **Price.** A frame in that says no output line must have none; a line forgotten is a failure, not a gap.

use flow::action::Action;
use flow::error::Error;
use flow::event::Event;
use flow::group::GroupMod;
use flow::interpret;
use flow::interpret::{Counter, InputFrame, OutputFrame, PacketIn, Step, StepObserver, Verdict};
use flow::meter::MeterMod;
use flow::numbered::ModCommand;
use flow::pipeline::{Fragments, Pipeline};
use flow::port::{Port, PortConfig, PortNo, PortState};
use flow::rule::{FlowMod, FlowModCommand};
use flow::text::{self, Piece, TextError};
use record::line::lines;
use record::unit::nanoseconds;
use std::fmt::Write;

/// What is wrong, and in which line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The line, from 1.
    pub line: usize,
    /// The case.
    pub case: String,
    /// What is wrong.
    pub what: String,
}

/// Carries out a frame that came in, or the actions of a packet-out; the counters that it moved.
pub type Engine = fn(&mut Pipeline, u64, InputFrame<'_>, Option<&[Action]>, &mut Verdict) -> Vec<Counter>;

/// The engine that is the meaning.
pub fn interpreter(
    pipeline: &mut Pipeline,
    now: u64,
    arrival: InputFrame<'_>,
    actions: Option<&[Action]>,
    verdict: &mut Verdict,
) -> Vec<Counter> {
    let mut moved = Moved::default();
    interpret::watched(pipeline, now, arrival, actions, verdict, &mut moved);
    moved.0
}

/// Runs every case of a file on the interpreter; says how many there are, or everything that is wrong.
pub fn run(file: &str) -> Result<usize, Vec<Failure>> {
    run_on(file, interpreter)
}

/// Runs every case of a file on an engine.
pub fn run_on(file: &str, engine: Engine) -> Result<usize, Vec<Failure>> {
    let mut cases: Vec<(&str, Vec<CaseLine<'_>>)> = vec![];
    let mut failures = vec![];
    let mut fail = |line, case: &str, what| failures.push(Failure { line, case: case.to_owned(), what });
    for line in lines(file) {
        let text = line.code.trim_start();
        let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match cases.last_mut() {
            _ if verb == "case" => cases.push((rest, vec![])),
            Some((_, steps)) => steps.push((line.number, verb, rest.trim())),
            None => fail(line.number, "", "a file begins with `case NAME`".to_owned()),
        }
    }
    for (name, steps) in &cases {
        if let Err((line, what)) = Case::run(engine, steps) {
            fail(line, name, what);
        }
    }
    if failures.is_empty() { Ok(cases.len()) } else { Err(failures) }
}

/// The number of a line, its first word and the rest.
type CaseLine<'a> = (usize, &'a str, &'a str);
/// What a line says when something is wrong with it.
type Told<T> = Result<T, String>;

struct Case {
    pipeline: Pipeline,
    now: u64,
    events: Vec<Event>,
    frame: Vec<u8>,
    /// What the last frame did, less what lines have confirmed.
    verdict: Verdict,
    /// The counters that it moved.
    moved: Vec<Counter>,
    engine: Engine,
}

/// Keeps the counters that move.
#[derive(Default)]
struct Moved(Vec<Counter>);

impl StepObserver for Moved {
    fn step(&mut self, step: Step<'_>, _: &[u8]) {
        if let Step::Counted(counter) = step {
            self.0.push(counter);
        }
    }
}

impl Case {
    /// Until something is wrong: in which line, and what.
    fn run(engine: Engine, steps: &[CaseLine<'_>]) -> Result<(), (usize, String)> {
        let mut case = Case::new(engine);
        let mut last = 0;
        for (number, verb, rest) in steps {
            last = *number;
            case.line(verb, rest).map_err(|what| (last, what))?;
        }
        case.finish().map_err(|what| (last, what))
    }

    fn new(engine: Engine) -> Case {
        let mut case = Case {
            pipeline: Pipeline::new(1000),
            now: 0,
            events: vec![],
            frame: vec![],
            verdict: Verdict::default(),
            moved: vec![],
            engine,
        };
        case.set_ports(1..=4);
        case
    }

    fn set_ports(&mut self, numbers: impl Iterator<Item = u32>) {
        self.pipeline.ports.clear();
        for number in numbers {
            let [_, b, c, d] = number.to_be_bytes();
            self.pipeline.add_port(Port::new(PortNo(number), &format!("p{number}"), [2, 0, 1, b, c, d]));
        }
    }

    fn line(&mut self, verb: &str, rest: &str) -> Told<()> {
        match verb {
            "out" => return self.out(rest),
            "packet-in" => return self.packet_in(rest),
            "moved" => return self.moved(rest),
            "gone" => return self.gone(rest),
            _ => self.finish()?,
        }
        match verb {
            "ports" => {
                let numbers = rest.split_whitespace().map(|word| text::value::port(Piece::line(word)));
                let numbers = numbers.collect::<Result<Vec<_>, _>>().map_err(told)?;
                self.set_ports(numbers.into_iter().map(|port| port.0));
            }
            "port" => self.port(rest)?,
            "config" => self.config(rest)?,
            "at" => {
                self.now = nanoseconds(rest)?;
                self.events = self.pipeline.expire(self.now);
            }
            "refused" => {
                let (name, change) = rest.split_once(char::is_whitespace).ok_or("refused ERROR CHANGE")?;
                let (verb, rest) = change.split_once(char::is_whitespace).ok_or("refused ERROR CHANGE")?;
                match self.change(verb, rest)? {
                    Ok(_) => return Err("it was accepted".to_owned()),
                    Err(error) if error.name() == name => {}
                    Err(error) => return Err(format!("it was refused as {}", error.name())),
                }
            }
            "in" | "packet-out" => self.send(verb, rest)?,
            _ => {
                self.events =
                    self.change(verb, rest)?.map_err(|error| format!("{}: {error}", error.name()))?
            }
        }
        Ok(())
    }

    /// A change of the switch; the outer error is one of the text.
    fn change(&mut self, verb: &str, rest: &str) -> Told<Result<Vec<Event>, Error>> {
        use FlowModCommand::*;
        let now = self.now;
        let mut flow = |command: FlowModCommand, rest: &str| -> Told<Result<Vec<Event>, Error>> {
            let change: FlowMod = text::rule::flow_mod(command, rest).map_err(told)?;
            Ok(self.pipeline.flow_mod(now, &change))
        };
        match verb {
            "rule" => flow(Add, rest),
            "flow-mod" => {
                let (command, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let commands = [
                    ("modify", Modify),
                    ("modify_strict", ModifyStrict),
                    ("delete", Delete),
                    ("delete_strict", DeleteStrict),
                ];
                let found = commands.iter().find(|(name, _)| *name == command).ok_or("no such command")?;
                flow(found.1, rest)
            }
            "group" | "group-modify" | "group-delete" => {
                let group = text::group::parse(rest).map_err(told)?;
                let command = match verb {
                    "group" => ModCommand::Add,
                    "group-modify" => ModCommand::Modify,
                    _ => ModCommand::Delete,
                };
                Ok(self.pipeline.group_mod(now, &GroupMod { command, group }))
            }
            "meter" | "meter-delete" => {
                let meter = text::meter::parse(rest).map_err(told)?;
                let command = if verb == "meter" { ModCommand::Add } else { ModCommand::Delete };
                Ok(self.pipeline.meter_mod(now, &MeterMod { command, meter }))
            }
            other => Err(format!("`{other}` is not a line of a case")),
        }
    }

    fn port(&mut self, rest: &str) -> Told<()> {
        let mut words = rest.split_whitespace();
        let number =
            text::value::port(Piece::line(words.next().ok_or("port NUMBER FLAG…")?)).map_err(told)?;
        let port = self.pipeline.ports.get_mut(&number).ok_or("no such port")?;
        for word in words {
            match word {
                "link_down" => port.state = port.state.with(PortState::LINK_DOWN),
                "link_up" => port.state.0 &= !PortState::LINK_DOWN.0,
                "blocked" => port.state = port.state.with(PortState::BLOCKED),
                "port_down" => port.config = port.config.with(PortConfig::PORT_DOWN),
                "no_recv" => port.config = port.config.with(PortConfig::NO_RECV),
                "no_fwd" => port.config = port.config.with(PortConfig::NO_FWD),
                "no_packet_in" => port.config = port.config.with(PortConfig::NO_PACKET_IN),
                other => return Err(format!("a port is not `{other}`")),
            }
        }
        Ok(())
    }

    fn config(&mut self, rest: &str) -> Told<()> {
        let mut config = self.pipeline.config;
        for word in rest.split_whitespace() {
            match word.split_once('=') {
                Some(("fragments", "drop")) => config.fragments = Fragments::Drop,
                Some(("fragments", "normal")) => config.fragments = Fragments::Normal,
                Some(("miss_send_len", text)) => {
                    config.miss_send_len = Piece::line(text).number(0xffff).map_err(told)? as u16;
                }
                _ => return Err(format!("the configuration has no `{word}`")),
            }
        }
        self.pipeline.set_config(config).map_err(|error| error.name())
    }

    fn send(&mut self, verb: &str, rest: &str) -> Told<()> {
        let (port, rest) = rest.split_once(char::is_whitespace).ok_or("PORT FRAME")?;
        let port = text::value::port(Piece::line(port)).map_err(told)?;
        let (actions, rest) = match rest.split_once('|') {
            Some((actions, rest)) if verb == "packet-out" => (actions, rest),
            _ => ("", rest),
        };
        let (said, frame) = self.settings(rest, &["tunnel", "phy"])?;
        self.frame = frame;
        let mut arrival = InputFrame::new(port, &self.frame);
        arrival.tunnel_id = said[0].unwrap_or(0);
        arrival.phy_port = said[1].map(|port| PortNo(port as u32));
        let actions = match verb {
            "in" => None,
            _ => Some(text::action::list(Piece::line(actions)).map_err(told)?),
        };
        if let Some(actions) = &actions {
            self.pipeline.check_packet_out(port, actions).map_err(|error| error.name())?;
        }
        let (pipeline, verdict, actions) = (&mut self.pipeline, &mut self.verdict, actions.as_deref());
        self.moved.extend((self.engine)(pipeline, self.now, arrival, actions, verdict));
        Ok(())
    }

    /// `KEY=NUMBER …` and then a frame; `same` is the frame that came in.
    fn settings(&self, rest: &str, keys: &[&str]) -> Told<(Vec<Option<u64>>, Vec<u8>)> {
        let mut said = vec![None; keys.len()];
        let mut rest = rest.trim();
        while let Some((word, tail)) = rest.split_once(char::is_whitespace) {
            let Some((key, text)) = word.split_once('=') else { break };
            let Some(index) = keys.iter().position(|one| *one == key) else { break };
            said[index] = Some(Piece::line(text).number(u64::MAX.into()).map_err(told)? as u64);
            rest = tail.trim();
        }
        let frame =
            if rest == "same" { self.frame.clone() } else { text::frame::parse(rest).map_err(told)? };
        Ok((said, frame))
    }

    fn out(&mut self, rest: &str) -> Told<()> {
        let (port, rest) = rest.split_once(char::is_whitespace).ok_or("out PORT FRAME")?;
        let port = text::value::port(Piece::line(port)).map_err(told)?;
        let (said, frame) = self.settings(rest, &["queue"])?;
        if self.verdict.sent.is_empty() {
            return Err("no frame left here".to_owned());
        }
        let got: OutputFrame = self.verdict.sent.remove(0);
        if got.port != port || got.queue.map(u64::from) != said[0] {
            return Err(format!("the frame left by port {}, queue {:?}", got.port, got.queue));
        }
        same_frame(&frame, &got.frame)
    }

    fn packet_in(&mut self, rest: &str) -> Told<()> {
        let (reason, rest) = rest.split_once(char::is_whitespace).ok_or("packet-in REASON FRAME")?;
        let (said, mut frame) = self.settings(rest, &["table", "cookie", "metadata", "tunnel", "len"])?;
        if self.verdict.packet_ins.is_empty() {
            return Err("there was no packet-in".to_owned());
        }
        let got: PacketIn = self.verdict.packet_ins.remove(0);
        if format!("{:?}", got.reason) != reason {
            return Err(format!("the reason is {:?}", got.reason));
        }
        let given = [u64::from(got.table), got.cookie, got.metadata, got.tunnel_id, got.frame.len() as u64];
        if let Some(wrong) = said.iter().zip(given).find(|(said, got)| said.is_some_and(|said| said != *got))
        {
            return Err(format!("{} instead of {}", wrong.1, wrong.0.unwrap_or(0)));
        }
        if got.total_len != frame.len() {
            return Err(format!("the packet-in is of a frame of {} bytes", got.total_len));
        }
        frame.truncate(said[4].map_or(usize::MAX, |len| len as usize));
        same_frame(&frame, &got.frame)
    }

    fn moved(&mut self, rest: &str) -> Told<()> {
        let mut expected: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        let mut got: Vec<String> = self.moved.iter().map(|counter| name(*counter)).collect();
        expected.sort();
        got.sort();
        if expected == got { Ok(()) } else { Err(format!("what moved: {}", got.join(" "))) }
    }

    fn gone(&mut self, rest: &str) -> Told<()> {
        let (reason, count) = rest.split_once(char::is_whitespace).ok_or("gone REASON COUNT")?;
        let is_it =
            |event: &&Event| matches!(event, Event::RuleRemoved(r) if format!("{:?}", r.reason) == reason);
        let got = self.events.iter().filter(is_it).count();
        if count.trim() == got.to_string() {
            Ok(())
        } else {
            Err(format!("{got} rules were removed for this reason"))
        }
    }

    /// Nothing may be left that no line spoke of.
    fn finish(&mut self) -> Told<()> {
        self.moved.clear();
        let verdict = std::mem::take(&mut self.verdict);
        let mut left = String::new();
        for sent in &verdict.sent {
            let _ = write!(left, "also left by port {}: {}; ", sent.port, text::hex(&sent.frame));
        }
        for packet_in in &verdict.packet_ins {
            let _ = write!(left, "also a packet-in: {:?}; ", packet_in.reason);
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    }
}

/// The word for a counter.
fn name(counter: Counter) -> String {
    match counter {
        Counter::Rx(port) => format!("rx:{port}"),
        Counter::RxDropped(port) => format!("rx-dropped:{port}"),
        Counter::Tx(port) => format!("tx:{port}"),
        Counter::TxDropped(port) => format!("tx-dropped:{port}"),
        Counter::Lookup(table) => format!("lookup:{table}"),
        Counter::Matched(table) => format!("matched:{table}"),
        Counter::Rule(table) => format!("rule:{table}"),
        Counter::Group(id) => format!("group:{id}"),
        Counter::Bucket(id, index) => format!("bucket:{id}.{index}"),
        Counter::Meter(id) => format!("meter:{id}"),
        Counter::Band(id, index) => format!("band:{id}.{index}"),
    }
}

fn same_frame(expected: &[u8], got: &[u8]) -> Told<()> {
    if expected == got {
        return Ok(());
    }
    let (wanted, is) = (text::hex(expected), text::hex(got));
    let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    Err(format!(
        "the frame differs from byte {at}:\n  wanted {wanted}\n  is     {is}\n  = {}",
        wire::text::line(got)
    ))
}

fn told(error: TextError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> String {
        run(text).unwrap_err().remove(0).what
    }

    #[test]
    fn a_case_fails_when_something_else_happens() {
        let rules = "case one\nrule in_port=1 actions=output:2\n";
        let run_with = |tail: &str| run(&format!("{rules}{tail}"));
        assert_eq!(run_with("in 1 eth / ip\nout 2 same\nmoved rx:1 lookup:0 matched:0 rule:0 tx:2"), Ok(1));
        assert!(failure(&format!("{rules}in 1 eth / ip")).starts_with("also left by port 2"));
        assert!(failure(&format!("{rules}in 1 eth / ip\ncase two")).starts_with("also left by port 2"));
        assert_eq!(failure(&format!("{rules}in 2 eth / ip\nout 2 same")), "no frame left here");
        assert!(
            failure(&format!("{rules}in 1 eth / ip\nout 3 same")).starts_with("the frame left by port 2")
        );
        assert!(
            failure(&format!("{rules}in 1 eth / ip\nout 2 eth / ip ttl=3"))
                .starts_with("the frame differs from byte 22")
        );
        assert_eq!(
            failure(&format!("{rules}in 1 eth\nout 2 same\nmoved rx:1")),
            "what moved: lookup:0 matched:0 rule:0 rx:1 tx:2"
        );
        assert_eq!(failure("case one\nrefused BadAction/BadTag rule actions=drop"), "it was accepted");
        assert_eq!(failure("rule actions=drop"), "a file begins with `case NAME`");
    }
}
