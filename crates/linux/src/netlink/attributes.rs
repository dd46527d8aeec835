//! A walk over type-length-value attributes that never reads beyond what it was given.

/// A walk over attributes: number and content. Ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16_at(self.0, 0)? as usize;
        // The two top bits say "nested" and "big-endian" and are not part of the number.
        let number = u16_at(self.0, 2)? & 0x3fff;
        let content = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((number, content))
    }
}

impl<'a> Attributes<'a> {
    /// The content of the first with that number.
    pub fn get(&self, number: u16) -> Option<&'a [u8]> {
        self.clone().find(|(found, _)| *found == number).map(|(_, content)| content)
    }
}

/// The attributes after a fixed header of that many bytes; none if the message is shorter.
pub fn after(message: &[u8], header: usize) -> Attributes<'_> {
    Attributes(message.get(header..).unwrap_or(&[]))
}

/// Two bytes in the host's order.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Four bytes in the host's order.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Eight bytes in the host's order.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// One attribute, padded.
pub fn attribute(number: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Builds messages for the tests of the decoders.
#[cfg(test)]
pub mod build {
    pub use super::attribute;

    /// Several byte strings as one.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_are_walked_with_padding_and_flags() {
        let bytes =
            build::join(&[&build::attribute(3 | 0x8000, b"eth0\0"), &build::attribute(4, &[1, 2, 3, 4])]);
        let found: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(found, [(3, &b"eth0\0"[..]), (4, &[1, 2, 3, 4][..])]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            Attributes(&noise).for_each(|(_, content)| { let _ = u64_at(content, 0); });
        }
    }
}
