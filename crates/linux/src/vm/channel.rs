//! What a virtual machine and its host tell each other, over one serial port: messages of a kind, a length and bytes.
//!
//! **Price.** Nothing is repeated and nothing is checked twice: the port loses nothing. Bytes that are no message end the conversation.

use std::io::{self, Read, Write};
use std::time::Duration;

/// The longest body of a message, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// How often a machine says that it is there.
pub const ALIVE: Duration = Duration::from_secs(5);

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VmMessage {
    /// The machine is up and begins its command.
    Ready,
    /// Bytes of the command's standard output.
    Output(Vec<u8>),
    /// Bytes of its standard error.
    Errors(Vec<u8>),
    /// It ended with this exit code.
    Ended(u8),
    /// It could not be begun, or what was asked of the machine failed: a sentence.
    Failed(String),
    /// To the machine: ask the command to end.
    Interrupt,
    /// The command runs on: said every [`ALIVE`], whatever it says itself.
    Alive,
}

impl VmMessage {
    fn kind(&self) -> u8 {
        match self {
            VmMessage::Ready => 0,
            VmMessage::Output(_) => 1,
            VmMessage::Errors(_) => 2,
            VmMessage::Ended(_) => 3,
            VmMessage::Failed(_) => 4,
            VmMessage::Interrupt => 5,
            VmMessage::Alive => 6,
        }
    }

    /// Writes it, as one piece.
    ///
    /// # Errors
    /// The writer's error.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let code;
        let body: &[u8] = match self {
            VmMessage::Ready | VmMessage::Interrupt | VmMessage::Alive => &[],
            VmMessage::Output(bytes) | VmMessage::Errors(bytes) => bytes,
            VmMessage::Ended(ended) => {
                code = [*ended];
                &code
            }
            VmMessage::Failed(sentence) => sentence.as_bytes(),
        };
        let body = &body[..body.len().min(LONGEST)];
        let mut bytes = vec![self.kind()];
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// Reads the next one; none at the end.
    ///
    /// # Errors
    /// The reader's error; `InvalidData` for what is no message.
    pub fn read(from: &mut impl Read) -> io::Result<Option<VmMessage>> {
        let mut head = [0; 5];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "this is no message of a virtual machine");
        if length > LONGEST {
            return Err(broken());
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        match (kind, &body[..]) {
            (0, []) => Ok(VmMessage::Ready),
            (1, _) => Ok(VmMessage::Output(body)),
            (2, _) => Ok(VmMessage::Errors(body)),
            (3, [code]) => Ok(VmMessage::Ended(*code)),
            (4, _) => Ok(VmMessage::Failed(String::from_utf8_lossy(&body).into_owned())),
            (5, []) => Ok(VmMessage::Interrupt),
            (6, []) => Ok(VmMessage::Alive),
            _ => Err(broken()),
        }
        .map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn messages() -> impl Strategy<Value = VmMessage> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            Just(VmMessage::Ready),
            bytes().prop_map(VmMessage::Output),
            bytes().prop_map(VmMessage::Errors),
            any::<u8>().prop_map(VmMessage::Ended),
            "\\PC{0,40}".prop_map(VmMessage::Failed),
            Just(VmMessage::Interrupt),
            Just(VmMessage::Alive),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(sent in prop::collection::vec(messages(), 0..9)) {
            let mut bytes = vec![];
            for message in &sent {
                message.write(&mut bytes).unwrap();
            }
            let mut from = &bytes[..];
            let mut read = vec![];
            while let Some(message) = VmMessage::read(&mut from).unwrap() {
                read.push(message);
            }
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut from = &noise[..];
            while let Ok(Some(_)) = VmMessage::read(&mut from) {}
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let bytes = [&[1u8][..], &(LONGEST as u32 + 1).to_le_bytes()].concat();
        assert_eq!(VmMessage::read(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
