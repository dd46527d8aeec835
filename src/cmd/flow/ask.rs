//! Which switch a command asks, and how it speaks to it.

use crate::cmd::tls::TlsArgs;
use clap::Args;
use flow::openflow::bytes::Version;
use record::{Problem, Result};
use std::time::Duration;
use switch::client::Client;
use switch::config::Remote;

/// Which switch, and how to speak to it.
#[derive(Args)]
pub struct AskArgs {
    /// The switch: tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH.
    #[arg(value_name = "SWITCH")]
    pub switch: String,
    /// Speak only this OpenFlow: 1.3 or 1.4; the highest of both ends when it is not said.
    #[arg(long, value_name = "VERSION")]
    openflow: Option<String>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = record::unit::duration)]
    timeout: Duration,
    #[command(flatten)]
    tls: TlsArgs,
}

impl AskArgs {
    /// Calls the switch.
    pub fn call(&self) -> Result<Client> {
        let to = Remote::parse(&self.switch)?;
        let credentials = self.tls.files().load_if(to.is_tls())?;
        Client::call(&to, credentials.as_ref(), &versions(self.openflow.as_deref())?, self.timeout)
    }

    /// Names the switch in a problem.
    pub fn place(&self) -> impl Fn(Problem) -> Problem + use<> {
        let switch = self.switch.clone();
        move |problem| problem.at(switch.clone())
    }
}

/// The versions that may be spoken.
pub fn versions(asked: Option<&str>) -> Result<Vec<Version>> {
    let Some(asked) = asked else { return Ok(Version::ALL.to_vec()) };
    let found: Vec<Version> = Version::ALL.into_iter().filter(|one| one.to_string() == asked).collect();
    if found.is_empty() {
        let what = format!("OpenFlow '{asked}' is not spoken here");
        return Err(Problem::input(what).help("1.3 or 1.4").at("--openflow"));
    }
    Ok(found)
}

/// A counter of a switch; all ones is one that it does not have.
pub fn counted(count: u64) -> Option<u64> {
    (count != u64::MAX).then_some(count)
}

/// A duration of a switch in nanoseconds.
pub fn nanoseconds(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)
}
