//! The evaluator of the IR: the slow twin of the machine code, and the engine where there is no machine code.
//!
//! **What.** [`walk`] takes a frame through an [`Ir`], rule by rule and op by op, with the headers and the edits of `wire`.
//!
//! **Why.** Between the pipeline and the machine code stand lowering, passes, strategies and emission. This cuts the way in half: what
//! differs here is a mistake of the first half.
//!
//! **Price.** As slow as the interpreter.

use crate::ir::{Body, End, Exit, Ir, IrRule, IrTable, Op, Test};
use crate::path::{Asked, Ingress, MISS, NO_QUEUE, Passed};
use flow::edits::edit;
use flow::field::{Field, Value};
use wire::edit::{FrameBuf, Refused};
use wire::layers::Fragment;
use wire::offload::Offload;

/// What became of a frame, with all that was sent.
#[derive(Debug, Default)]
pub struct Walked {
    /// The tables.
    pub passed: Vec<Passed>,
    /// The outputs, each with its frame.
    pub sent: Vec<(Asked, Vec<u8>, Offload)>,
}

struct Traveller<'a> {
    ir: &'a Ir,
    frame: FrameBuf,
    ingress: Ingress,
    metadata: u64,
    tunnel_id: u64,
    queue: u64,
    set: u32,
    walked: Walked,
}

/// Takes a frame through the tables; the exit when the interpreter has to do it.
///
/// # Errors
/// Why the interpreter has to do it; the frame is a copy, so nothing was changed.
pub fn walk(ir: &Ir, ingress: Ingress, bytes: &[u8], offload: Offload) -> Result<Walked, Exit> {
    let mut frame = FrameBuf::new();
    frame.load(bytes, offload);
    let fragment = frame.headers().ip().map(|ip| ip.fragment);
    if ir.exits_fragments && matches!(fragment, Some(Fragment::First | Fragment::Later)) {
        return Err(Exit::Fragment);
    }
    let (metadata, tunnel_id, walked) = (0, ingress.tunnel_id, Walked::default());
    let mut traveller =
        Traveller { ir, frame, ingress, metadata, tunnel_id, queue: NO_QUEUE, set: 0, walked };
    traveller.tables()?;
    Ok(traveller.walked)
}

impl<'a> Traveller<'a> {
    fn tables(&mut self) -> Result<(), Exit> {
        let mut next = Some(0);
        while let Some(table) = next.and_then(|number| self.ir.table(number)) {
            next = self.table(table)?;
        }
        Ok(())
    }

    /// Carries out the rule that wins in a table; the next table.
    fn table(&mut self, table: &'a IrTable) -> Result<Option<u8>, Exit> {
        let Some(rule) = self.find(table) else {
            self.pass(MISS | u32::from(table.number));
            return Ok(None);
        };
        self.pass(rule.slot);
        self.body(&rule.body)
    }

    fn pass(&mut self, slot: u32) {
        self.walked.passed.push(Passed { slot, length: self.frame.bytes().len() as u32 });
    }

    fn find(&self, table: &'a IrTable) -> Option<&'a IrRule> {
        table.rules.iter().find(|rule| rule.tests.iter().all(|test| self.passes(test)))
    }

    fn passes(&self, test: &Test) -> bool {
        test.accepts(self.get(test.field))
    }

    fn get(&self, field: Field) -> Option<Value> {
        match field {
            Field::InPort => Some(self.ingress.port.0.into()),
            Field::InPhyPort => Some(self.ingress.phy_port.0.into()),
            Field::Metadata => Some(self.metadata.into()),
            Field::TunnelId => Some(self.tunnel_id.into()),
            _ => self.frame.get(field),
        }
    }

    /// Carries out the ops; the next table.
    fn body(&mut self, body: &Body) -> Result<Option<u8>, Exit> {
        body.ops.iter().try_for_each(|op| self.op(op))?;
        self.end(body.end)
    }

    /// What comes behind the ops; the next table.
    fn end(&mut self, end: End) -> Result<Option<u8>, Exit> {
        match end {
            End::Goto(table) => Ok(Some(table)),
            End::Done => Ok(None),
            End::Exit(exit) => Err(exit),
            End::Finish => self.body(&self.ir.sets[self.set as usize]),
        }
    }

    fn op(&mut self, op: &Op) -> Result<(), Exit> {
        match op {
            Op::Output(port) => {
                let bytes = self.frame.bytes();
                let asked = Asked { port: port.0, length: bytes.len() as u32, queue: self.queue };
                self.walked.sent.push((asked, bytes.to_vec(), *self.frame.offload()));
            }
            Op::Queue(queue) => self.queue = u64::from(*queue),
            Op::Register { field: Field::Metadata, value, mask } => {
                self.metadata = self.metadata & !mask | value;
            }
            Op::Register { value, mask, .. } => self.tunnel_id = self.tunnel_id & !mask | value,
            Op::Edit(action) => {
                if edit(&mut self.frame, action) == Err(Refused::Expired) {
                    return Err(Exit::Controller);
                }
            }
            Op::SetTo(set) => self.set = *set,
            Op::SetMap(row) => self.set = self.ir.maps[*row as usize][self.set as usize],
            Op::Clear | Op::Write(_) => unreachable!("the verifier lets no write through"),
        }
        Ok(())
    }
}
