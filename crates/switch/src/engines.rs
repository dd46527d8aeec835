//! The table of engines: one more is its own file and a row.

use crate::native::NATIVE;
use crate::programs::{EngineKind, INTERPRETER};

/// The engines that there are.
pub static ENGINES: &[EngineKind] = &[INTERPRETER, NATIVE];

impl Default for EngineKind {
    /// Machine code; what it cannot do is interpreted.
    fn default() -> Self {
        NATIVE
    }
}
