//! A frame on its way through the pipeline: the bytes that came in, until an action changes them.
//!
//! **What.** A [`CarriedFrame`] reads from the memory that the frame came in; the first edit copies it into a
//! [`FrameBuf`], which is edited from then on. Each state of its bytes has a number, its *form*: 0 as it came
//! in, another one after each edit. What leaves is told with its form ([`LeavingFrame`]), so that whoever
//! takes it knows when the frame in hand will do.
//!
//! **Why.** Most frames leave as they came. Nobody has to copy these, and of one that was changed and leaves
//! by many ports there is one copy.
//!
//! **Price.** A frame that is edited is parsed once more. Two edits that cancel each other count as a change.

use crate::action::Action;
use crate::edits::edit;
use crate::field::{Field, Value};
use wire::edit::{FrameBuf, Refused};
use wire::headers::Headers;
use wire::offload::Offload;

/// Which state of its bytes a frame is in: 0 as it came in. Two of one frame with the same form are the same
/// bytes.
pub type FrameForm = u32;

/// A frame as it leaves.
#[derive(Debug, Clone, Copy)]
pub struct LeavingFrame<'a> {
    /// Which state of the frame this is.
    pub form: FrameForm,
    /// The bytes.
    pub bytes: &'a [u8],
    /// What is left to the hardware.
    pub offload: &'a Offload,
}

/// Buffers that are not in use, and the form that was given last: what an interpreter keeps from frame to
/// frame.
#[derive(Debug, Default)]
pub struct EditBuffers {
    spare: Vec<FrameBuf>,
    last: FrameForm,
}

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct CarriedFrame<'a> {
    arrived: &'a [u8],
    headers: Headers,
    offload: Offload,
    /// The copy, once something was changed.
    edited: Option<FrameBuf>,
    form: FrameForm,
}

impl<'a> CarriedFrame<'a> {
    /// A frame as it came in.
    pub fn new(arrived: &'a [u8], offload: Offload) -> CarriedFrame<'a> {
        CarriedFrame { arrived, headers: Headers::parse(arrived), offload, edited: None, form: 0 }
    }

    /// The bytes as they are now.
    pub fn bytes(&self) -> &[u8] {
        self.edited.as_ref().map_or(self.arrived, FrameBuf::bytes)
    }

    /// Where its headers stand now.
    pub fn headers(&self) -> &Headers {
        self.edited.as_ref().map_or(&self.headers, FrameBuf::headers)
    }

    /// What is left to the hardware, with places as they are now.
    pub fn offload(&self) -> &Offload {
        self.edited.as_ref().map_or(&self.offload, FrameBuf::offload)
    }

    /// The value of a field; none when the frame has no such header.
    pub fn get(&self, field: Field) -> Option<Value> {
        self.headers().get(self.bytes(), field)
    }

    /// The frame as it would leave now.
    pub fn leaving(&self) -> LeavingFrame<'_> {
        LeavingFrame { form: self.form, bytes: self.bytes(), offload: self.offload() }
    }

    /// Carries out an action that changes the frame.
    ///
    /// # Errors
    /// [`Refused`]: the frame is as it was.
    pub fn edit(&mut self, action: &Action, buffers: &mut EditBuffers) -> Result<(), Refused> {
        if let Some(own) = &mut self.edited {
            edit(own, action)?;
        } else {
            let mut own = buffers.spare.pop().unwrap_or_default();
            own.load(self.arrived, self.offload);
            let edited = edit(&mut own, action);
            if edited.is_err() {
                buffers.spare.push(own);
                return edited;
            }
            self.edited = Some(own);
        }
        buffers.last += 1;
        self.form = buffers.last;
        Ok(())
    }

    /// The same frame once more.
    pub fn copy(&self, buffers: &mut EditBuffers) -> CarriedFrame<'a> {
        let edited = self.edited.as_ref().map(|own| {
            let mut copy = buffers.spare.pop().unwrap_or_default();
            copy.clone_from(own);
            copy
        });
        CarriedFrame { edited, ..*self }
    }

    /// The frame is no longer needed.
    pub fn end(self, buffers: &mut EditBuffers) {
        buffers.spare.extend(self.edited);
    }
}

impl EditBuffers {
    /// Begins the next frame.
    pub(crate) fn begin(&mut self) {
        self.last = 0;
    }
}
