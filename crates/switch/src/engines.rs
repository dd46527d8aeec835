//! The table of engines: one more is its own file and a row.

use crate::kernel::{Hook, KernelWish};
use crate::native::NATIVE;
use crate::programs::{EngineKind, INTERPRETER};

/// The engines that there are.
pub static ENGINES: &[EngineKind] = &[
    INTERPRETER,
    NATIVE,
    in_kernel("xdp", KernelWish::At(Hook::Xdp)),
    in_kernel("tcx", KernelWish::At(Hook::Tcx)),
    in_kernel("auto", KernelWish::Auto),
];

/// Rules run in the kernel; what it does not do, machine code does.
const fn in_kernel(name: &'static str, wish: KernelWish) -> EngineKind {
    EngineKind { name, kernel: Some(wish), ..NATIVE }
}

impl Default for EngineKind {
    /// Machine code; what it cannot do is interpreted.
    fn default() -> Self {
        NATIVE
    }
}
