//! Which switch a command asks, and how it speaks to it.

use crate::cmd::tls::TlsArgs;
use clap::Args;
use flow::openflow::bytes::Version;
use record::{Problem, Result};
use std::time::Duration;
use switch::client::Client;
use switch::config::Remote;

/// How to speak OpenFlow.
#[derive(Args)]
pub struct SpeakArgs {
    /// Speak only this OpenFlow: 1.3 or 1.4 [default: the highest that both ends speak].
    #[arg(long, value_name = "VERSION")]
    openflow: Option<String>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = record::unit::duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Which switch, and how to speak to it.
#[derive(Args)]
pub struct AskArgs {
    /// The switch: tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH.
    #[arg(value_name = "SWITCH")]
    pub switch: String,
    #[command(flatten)]
    speak: SpeakArgs,
}

impl AskArgs {
    /// Calls the switch.
    pub fn call(&self) -> Result<Client> {
        let to = Remote::parse(&self.switch)?;
        let credentials = self.speak.tls.files().load_if(to.is_tls())?;
        Client::call(&to, credentials.as_ref(), &self.speak.versions()?, self.speak.timeout)
    }

    /// Calls the switch and asks it; the version that it speaks comes along.
    pub fn ask<T>(&self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<(T, String)> {
        let mut client = self.call()?;
        let answer = work(&mut client).map_err(self.place())?;
        Ok((answer, client.version().to_string()))
    }

    /// Names the switch in a problem.
    pub fn place(&self) -> impl Fn(Problem) -> Problem + use<> {
        let switch = self.switch.clone();
        move |problem| problem.at(switch.clone())
    }
}

impl SpeakArgs {
    /// The versions that may be spoken.
    pub fn versions(&self) -> Result<Vec<Version>> {
        let Some(asked) = &self.openflow else { return Ok(Version::ALL.to_vec()) };
        let found = Version::ALL.into_iter().find(|one| one.to_string() == *asked);
        let unknown = || Problem::input(format!("OpenFlow '{asked}' is not supported")).help("1.3 or 1.4");
        found.map(|one| vec![one]).ok_or_else(|| unknown().at("--openflow"))
    }
}

/// Asks a switch and gives the reply to just this question: `multipart!(client, GroupDesc(Empty {}))`.
macro_rules! multipart {
    ($client:expr, $kind:ident($question:expr)) => {
        match $client.multipart(Request::$kind($question))? {
            Reply::$kind(reply) => reply,
            reply => {
                let name = flow::openflow::bytes::Tagged::name(&reply);
                let what = format!("the switch answers with {name}, which was not asked for");
                return Err(Problem::input(what));
            }
        }
    };
}
pub(super) use multipart;

/// A counter of a switch; all ones is one that it does not have.
pub fn counted(count: u64) -> Option<u64> {
    (count != u64::MAX).then_some(count)
}

/// A duration of a switch in nanoseconds.
pub fn nanoseconds(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)
}
