//! Flags of every command that can measure between this host and another one.

use clap::Args;
use experiment::hosts::HostPair;
use record::{Result, TestSpec};

/// The hosts, and which way the traffic goes.
#[derive(Args, Clone)]
pub struct BetweenArgs {
    /// Measure between this host and that one, where 'pathlab serve --observe' runs, with --tune if its knobs are to be changed, too: the first
    /// node of the plan's path (a) is this host, the second (b) the other one (docs/hosts.md).
    #[arg(long, value_name = "HOST[:PORT]")]
    pub to: Option<String>,
    /// With --to: traffic goes from that host to this one, which is the second node of the path then.
    #[arg(long, requires = "to")]
    pub reverse: bool,
    /// With --to: a host on the way to that one, where 'pathlab serve --observe' runs, too, with --tune if its knobs are to be changed: what becomes of frames there is in the ledger. Several
    /// times for several, in the order from this host; with NAME= before it that is the name of its node.
    #[arg(long, requires = "to", value_name = "[NAME=]HOST[:PORT]")]
    pub via: Vec<String>,
}

impl BetweenArgs {
    /// This host and that one, for tests of this kind.
    ///
    /// # Errors
    /// Input: hosts have the names of nodes.
    pub fn pair(&self, host: &str, spec: &TestSpec) -> Result<HostPair> {
        HostPair::of(host, spec, self.reverse).through(&self.via)
    }
}
