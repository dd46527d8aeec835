//! What controller and agent say to each other.
//!
//! Every request has exactly one reply with the same number; the reply to [`Request::Start`] comes when the sender is
//! done. Fields that one side does not know are ignored, so that a later version can still say who it is.

use super::setup::{DataPorts, Setup};
use record::knob::KnobChange;
use record::line::is_unsafe;
use record::problem::{Problem, ProblemKind};
use record::traffic::{EndReport, Settings};
use record::{HostFacts, HostObservation, TestSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of this protocol. Both sides must have the same.
pub const PROTOCOL: u32 = 3;

/// A message with the number that ties a reply to its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Chosen by the controller, counted up.
    pub id: u64,
    /// The message.
    pub body: T,
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the speaker.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// `/proc/sys/kernel/random/boot_id`: who has the same one shares its clock. Empty if unknown.
    #[serde(default)]
    pub boot_id: String,
}

/// What a controller asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Hello(Hello),
    /// What time is it?
    Clock,
    /// Open the sockets of one end.
    Prepare(Box<Setup>),
    /// Send a few probes (sender only).
    WarmUp,
    /// Count the flow of the test, and read the counters of this host, from now on.
    Observe(Observe),
    /// Send (sender only).
    Start,
    /// Send no more, as if the test were over by then (sender only); its reply takes the place of the one to [`Request::Start`].
    Finish,
    /// End what runs, read what is left, report. The sockets stay open.
    Stop,
    /// Read the counters again and tell what was seen.
    Observed,
    /// Close the sockets.
    Close,
    /// Change knobs of this host, or compare them, between two tests.
    Tune(Tune),
    /// Put back what this connection holds, the last first.
    PutBack,
    /// Say which host this is.
    About,
}

/// Knobs of the agent's host, and what is to be done with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tune {
    /// Each as `NAME=VALUE` or `IF:NAME=VALUE`.
    pub knobs: Vec<String>,
    /// What is to be done.
    pub action: TuneAction,
    /// They may take a link down for a moment.
    #[serde(default)]
    pub may_flap: bool,
}

/// What is to be done with knobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuneAction {
    /// Set them until they are put back, or the connection ends.
    Hold,
    /// Set them until 'pathlab tune undo' there.
    Keep,
    /// Say which are something else.
    Compare,
}

/// The frames that are to be counted, beside what the setup of the test says of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observe {
    /// Where they come from and go to.
    pub ports: DataPorts,
    /// The stream of the test's messages.
    pub stream: u8,
    /// The test, for a host between its two ends, which has no setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<TestSpec>>,
    /// Take what the doctor judges, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactsWindow>,
}

/// When what the doctor judges is to be taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactsWindow {
    /// So many milliseconds from now on.
    pub delay_ms: u64,
    /// How long counters are watched then, in milliseconds.
    pub window_ms: u64,
}

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Clock`]: `CLOCK_MONOTONIC` in nanoseconds.
    Clock(u64),
    /// To [`Request::Prepare`].
    Prepared(Box<Prepared>),
    /// To [`Request::WarmUp`]: whether the path answered.
    Warm(bool),
    /// To [`Request::Observe`].
    Observing,
    /// To [`Request::Start`] or [`Request::Finish`], when all is sent.
    Finished,
    /// To [`Request::Stop`].
    Report(Box<EndReport>),
    /// To [`Request::Observed`].
    Observation(Box<HostObservation>),
    /// To [`Request::Close`].
    Closed,
    /// To [`Request::Tune`] and [`Request::PutBack`]: what was changed, or differs.
    Tuned(Vec<KnobChange>),
    /// To [`Request::About`].
    About(Box<PeerHost>),
    /// To any request: it cannot be done, and why.
    Failed(ProblemMessage),
}

/// The name of a request or reply in sentences: the one of its JSON.
pub fn name(message: &impl Serialize) -> String {
    let name = match serde_json::to_value(message) {
        Ok(Value::Object(message)) => message.keys().next().cloned(),
        message => message.ok().and_then(|name| name.as_str().map(str::to_owned)),
    };
    name.unwrap_or_default().replace('_', " ")
}

/// An end that is ready.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Its local ports.
    pub ports: Vec<u16>,
    /// The identifier of its echo requests.
    #[serde(default)]
    pub icmp_id: Option<u16>,
    /// What took effect.
    pub settings: Settings,
}

/// The host of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerHost {
    /// What is known of it.
    pub host: HostFacts,
    /// Its interface that leads to the controller; none where there is no route.
    pub interface: Option<String>,
}

/// A [`Problem`] on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemMessage {
    /// The exit code of the problem's kind: 1 measured, 2 input, 3 host.
    pub code: u8,
    /// Where, if anywhere.
    #[serde(default)]
    pub place: String,
    /// What was wrong.
    pub what: String,
    /// What to do.
    #[serde(default)]
    pub advice: String,
}

impl From<&Problem> for ProblemMessage {
    fn from(problem: &Problem) -> Self {
        ProblemMessage {
            code: problem.kind.exit_code(),
            place: problem.place.clone(),
            what: problem.what.clone(),
            advice: problem.advice.clone(),
        }
    }
}

impl From<&ProblemMessage> for Problem {
    fn from(failure: &ProblemMessage) -> Self {
        let kind = match failure.code {
            1 => ProblemKind::Measured,
            3 => ProblemKind::Host,
            _ => ProblemKind::Input,
        };
        Problem {
            kind,
            place: printable(&failure.place),
            what: printable(&failure.what),
            advice: printable(&failure.advice),
        }
    }
}

/// A peer's words as one line for a terminal: no control characters, not endless.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !is_unsafe(*c)).take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_survives_the_wire() {
        let problem = Problem::host("no room").at("b").help("free some");
        let text = serde_json::to_string(&ProblemMessage::from(&problem)).unwrap();
        let back: ProblemMessage = serde_json::from_str(&text).unwrap();
        assert_eq!(Problem::from(&back), problem);
    }

    #[test]
    fn a_later_hello_is_still_understood() {
        let text = r#"{"id":1,"body":{"hello":{"protocol":9,"version":"9.0","colour":"blue"}}}"#;
        let later: Numbered<Request> = serde_json::from_str(text).unwrap();
        assert!(matches!(later.body, Request::Hello(hello) if hello.protocol == 9));
    }
}
