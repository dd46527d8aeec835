//! Messages as bytes: a length of four bytes, big endian, then so many bytes of JSON.
//!
//! The decoder takes whatever a read brought and gives whole messages. It believes no length above [`MAX`] and makes
//! room only for bytes that came.

use record::problem::json_words;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message in bytes.
pub const MAX: usize = 16 << 20;

/// The message as bytes, or why it cannot be sent.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message).map_err(|error| format!("cannot write JSON: {error}"))?;
    let length = bytes.len() - 4;
    if length > MAX {
        return Err(format!("a message of {length} bytes is longer than the {MAX} that are allowed"));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Bytes on their way to become messages.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Takes bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// True when a message has begun but is not whole.
    pub fn is_waiting(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next whole message, none when more bytes are needed, or why the bytes cannot be one. After an error the
    /// rest of the bytes has no meaning.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let Some(length) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX {
            return Err(format!("announced a message of {length} bytes, which is not a pathlab message"));
        }
        let Some(body) = self.bytes.get(4..4 + length) else { return Ok(None) };
        let message = serde_json::from_slice(body)
            .map_err(|error| format!("sent something that is not a pathlab message: {}", json_words(&error)));
        self.bytes.drain(..4 + length);
        message.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::{Numbered, Reply, Request};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cut_gives_the_same_messages(ids in prop::collection::vec(any::<u64>(), 1..6), cut in 1usize..40) {
            let bytes: Vec<u8> =
                ids.iter().flat_map(|&id| encode(&Numbered { id, body: Request::Start }).unwrap()).collect();
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.take::<Numbered<Request>>().unwrap() {
                    got.push(message.id);
                }
            }
            prop_assert_eq!(got, ids);
            prop_assert!(!decoder.is_waiting());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), small: bool) {
            let mut decoder = Decoder::default();
            if small {
                decoder.push(&(bytes.len() as u32).to_be_bytes());
            }
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.take::<Numbered<Reply>>() {}
        }

        #[test]
        fn random_json_never_panics(text in r#"\{"id":[0-9]{1,3},"body":(\{"[a-z_]{1,8}":[0-9\{\}\[\]",]{0,20}\}|"[a-z_]{1,9}")\}"#) {
            let mut decoder = Decoder::default();
            decoder.push(&(text.len() as u32).to_be_bytes());
            decoder.push(text.as_bytes());
            let _ = decoder.take::<Numbered<Request>>();
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_any_room_is_made() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff; 4]);
        assert!(decoder.take::<Numbered<Reply>>().unwrap_err().contains("4294967295"));
    }
}
