//! Any bytes as an OpenFlow message.

use flow::openflow::message::{Header, Message};

/// A message is read or refused; what was read is written, read the same and shown in one line. What it says of itself in
/// its header is tried as it is and, so that the fuzzer need not find it, set right.
pub fn openflow_message(bytes: &[u8]) {
    keeps(bytes);
    let mut whole = bytes.to_vec();
    if let (Some(_), Ok(length)) = (Header::parse(bytes), u16::try_from(bytes.len())) {
        whole[0] = 4 + (whole[0] & 1);
        whole[2..4].copy_from_slice(&length.to_be_bytes());
        keeps(&whole);
    }
}

fn keeps(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let again = message.encode().expect("it is not longer than it was");
    assert!(again.len() <= bytes.len());
    assert_eq!(Message::decode(&again).as_ref(), Ok(&message));
    let line = message.to_string();
    assert!(!line.is_empty() && !line.contains('\n'));
}
