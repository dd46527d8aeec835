//! The passes: each makes the IR mean the same with less.
//!
//! **What.** [`PASSES`] in their order, one file each; [`run`] carries them out and shows the IR after each.
//!
//! **Why.** A pass that can be printed can be tested on text, and the verifier runs between every two of them, in every build.
//!
//! **Price.** The verifier's walk over all rules, once per pass.

mod contradictory;
mod dead;
mod exits;
mod hoist;
mod sets;
mod shadowed;
#[cfg(test)]
mod tests;
mod unreachable;

use crate::ir::{Body, Ir};
use crate::verify::{self, Broken};

/// A pass: its name, what it does in a sentence, and its function.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// One word.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    run: fn(&mut Ir),
}

/// All passes in their order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "contradictory",
        what: "rules that no frame can match are left out",
        run: contradictory::run,
    },
    Pass {
        name: "shadowed",
        what: "rules behind one that takes all their frames are left out",
        run: shadowed::run,
    },
    Pass { name: "unreachable", what: "tables that no rule names are left out", run: unreachable::run },
    Pass {
        name: "sets",
        what: "action sets are numbered, and carried out in the rule where they are known",
        run: sets::run,
    },
    Pass {
        name: "hoist",
        what: "a TTL is counted down before addresses are written, so that its exit finds the frame untouched",
        run: hoist::run,
    },
    Pass { name: "dead", what: "edits that nobody sees are left out", run: dead::run },
    Pass {
        name: "exits",
        what: "a rule whose next table always exits, exits itself; says whether frames have to be put back",
        run: exits::run,
    },
];

/// Verifies, and carries out every pass with a verification behind it; `see` gets the IR after each.
///
/// # Errors
/// The IR is broken: a mistake in this crate, which must not become code.
pub fn run(ir: &mut Ir, mut see: impl FnMut(&Pass, &Ir)) -> Result<(), Broken> {
    verify::lowered(ir)?;
    for pass in PASSES {
        (pass.run)(ir);
        verify::lowered(ir)?;
        see(pass, ir);
    }
    verify::ready(ir)
}

/// Lets rules that cannot but exit do so at once.
pub(crate) fn exit_early(ir: &mut Ir) {
    exits::run(ir);
}

/// What the passes that look at one body alone do.
pub(crate) fn tidy_body(body: &mut Body) {
    hoist::body(body);
    dead::cut(body);
}
