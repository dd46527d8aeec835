//! `pathlab explain`: what a counter, a name of a drop, a reason of the kernel, a knob, a kind or a word means.

use crate::output::{Output, columns, object};
use clap::Args;
use record::Result;
use study::explain::{Explanation, Machine, text};

/// Columns of text that goes to no terminal.
const PLAIN_WIDTH: usize = 100;

/// Flags of `pathlab explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// A counter (rx_missed_errors, Udp.InDatagrams, UdpInDatagrams, tcpi_rtt, ixgbe:rx_no_dma_resources), a drop (qdisc_full), a reason of
    /// the kernel (NEIGH_FAILED), a knob, a kind of test or of port, a word of the documentation, an exported series; or how one of them begins.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// List all names.
    #[arg(long, conflicts_with = "names")]
    list: bool,
}

/// Explains, or lists.
pub fn run(args: ExplainArgs, output: &Output) -> Result<()> {
    let mut machine = Machine { knobs: knobs(), reasons: vec![] };
    if args.list {
        machine.reasons = reasons();
        let names = study::explain::list(&machine);
        let document = object! { schema: "pathlab/explain/1", names };
        return output.result(&document, |document| text::list(&document.names));
    }
    if args.names.iter().any(|name| is_reason(name)) {
        machine.reasons = reasons();
    }
    let mut names: Vec<Explanation> = vec![];
    for name in &args.names {
        names.extend(study::explain::explain(name, &machine)?);
    }
    let document = object! { schema: "pathlab/explain/1", names };
    output.result(&document, |document| text::explanations(&document.names, columns(PLAIN_WIDTH)))
}

fn knobs() -> Vec<(String, String)> {
    let rows = linux::tune::KNOBS.iter();
    rows.map(|row| (row.name.to_owned(), row.meaning.to_owned())).collect()
}

/// The kernel's reasons are in capitals; only for such a name is the kernel asked.
fn is_reason(name: &str) -> bool {
    name.len() > 2
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The running kernel's reasons; none where it does not tell them.
fn reasons() -> Vec<String> {
    linux::observe::drop_reasons().unwrap_or_default()
}
