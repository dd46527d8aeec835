//! Programs by other names: what Mininet and its users call, done by this one.
//!
//! **What.** Started through a link named `ofdatapath`, `ofprotocol`, `dpctl` or `controller`, the binary takes the arguments
//! of the OpenFlow reference implementation's program of that name and does what it does. `pathlab shims DIR` makes the links.
//!
//! **Why.** `mn --switch user` and twelve years of scripts start a switch by these names; with the links in the path they
//! run this one, unchanged.
//!
//! **Price.** The arguments are those programs', and so are their limits. Whatever `pathlab` can express is rewritten into its own
//! arguments and carried out by the same code; only the relay between the two halves of a switch is reached in no other way.

mod dpctl;
mod protocol;
mod words;

use crate::cli;
use crate::cmd::shims::NAMES;
use crate::output::Output;
use clap::Parser;
use record::Result;
use std::path::Path;

/// The name that this process was started by, if it is one of [`NAMES`].
pub fn called_as() -> Option<&'static str> {
    let name = std::env::args_os().next()?;
    let name = Path::new(&name).file_name()?.to_str()?.to_owned();
    NAMES.into_iter().find(|known| *known == name)
}

/// Does what the program of that name would do.
pub fn run(name: &str, output: &Output) -> Result<()> {
    match name {
        "ofdatapath" => cli::carry_out(words::Datapath::parse().words()?, output),
        "controller" => cli::carry_out(words::Controller::parse().words()?, output),
        "ofprotocol" => protocol::run(protocol::Protocol::parse(), output),
        _ => dpctl::run(&dpctl::Dpctl::parse(), output),
    }
}
