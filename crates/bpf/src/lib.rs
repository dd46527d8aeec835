//! Instructions of the kernel's virtual machine: assemble, interpret, disassemble.
//!
//! **What.** [`Instruction`] is one instruction of RFC 9669 as a value, with its bytes in both directions. An
//! [`Assembler`] puts instructions and labels together to a program; [`interpret::run`] carries a program out over memory and
//! functions that the caller gives; [`disassemble`] writes it as text.
//!
//! **Why.** A program is assembled for the kernel that runs it, with structure offsets and ports as plain constants, so it
//! needs no compiler, no relocation and no configuration map. That it does what its description says is tested in the
//! interpreter, on random inputs and without a kernel.
//!
//! **Price.** The basic instructions, 32 and 64 bits wide, with multiplication and division; no atomic and no
//! sign-extending ones (version 4), no packet access of old. The bytes are those of a little-endian host. No register
//! allocation, and no checks beyond what the verifier does anyway.

mod assemble;
mod disassemble;
mod instruction;
pub mod interpret;

pub use assemble::{AssembleError, Assembler, Label};
pub use disassemble::disassemble;
pub use instruction::{Constant, Instruction, Op, Operand, Order, Reg, When, Width};
