//! The kernel's messages, as `dmesg` shows them (`/dev/kmsg`, Documentation/ABI/testing/dev-kmsg).
//!
//! **What.** Those that the kernel still has, and whether it still has all since it started. **Why.** What a driver found when it was loaded it says
//! there alone. **Price.** One system call for each message, some thousand: read only where a driver is known to say something.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The longest record (`CONSOLE_EXT_LOG_MAX` in include/linux/printk.h).
const LONGEST: usize = 8192;

/// What the kernel still has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelMessages {
    /// The texts, oldest first.
    pub texts: Vec<String>,
    /// None was overwritten by a later one.
    pub is_whole: bool,
}

/// Reads them all.
///
/// # Errors
/// What the kernel says: `EPERM` without `CAP_SYSLOG` where `kernel.dmesg_restrict` is 1.
pub fn read() -> io::Result<KernelMessages> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
    let mut buffer = [0; LONGEST];
    of(|| match file.read(&mut buffer) {
        Ok(length) => Ok(Some(buffer[..length].to_vec())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    })
}

/// What record after record has, until there is none.
fn of(mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>) -> io::Result<KernelMessages> {
    let mut all = KernelMessages::default();
    let mut is_first = true;
    loop {
        match next() {
            Ok(Some(record)) => {
                let Some((number, text)) = parse(&record) else { continue };
                all.is_whole |= is_first && number == 0;
                is_first = false;
                all.texts.push(text);
            }
            Ok(None) => return Ok(all),
            // Overwritten while it was read: the next is the oldest that is left.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                all.is_whole = false;
                is_first = false;
            }
            Err(error) => return Err(error),
        }
    }
}

/// `priority,number,microseconds,flags[,…];text`, then lines of properties that begin with a space.
fn parse(record: &[u8]) -> Option<(u64, String)> {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';')?;
    let number = head.split(',').nth(1)?.parse().ok()?;
    Some((number, text.lines().next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_of(records: &[Result<&str, i32>]) -> KernelMessages {
        let mut records = records.iter();
        of(|| match records.next() {
            Some(Ok(record)) => Ok(Some(record.as_bytes().to_vec())),
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(None),
        })
        .unwrap()
    }

    #[test]
    fn it_is_known_whether_the_first_is_still_there() {
        let first = Ok("6,0,0,-;Linux version 6.12\n");
        let ice =
            Ok("3,812,9,-;ice 0000:01:00.0: Entering Safe Mode\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n");
        let all = read_of(&[first, ice]);
        assert_eq!(all.texts, ["Linux version 6.12", "ice 0000:01:00.0: Entering Safe Mode"]);
        assert!(all.is_whole);
        assert!(!read_of(&[ice]).is_whole && !read_of(&[first, Err(libc::EPIPE), ice]).is_whole);
        assert_eq!(read_of(&[]), KernelMessages::default());
    }

    #[test]
    fn this_kernel_has_some_messages() {
        match read() {
            Ok(all) => assert!(!all.texts.is_empty()),
            Err(error) => println!("SKIP: messages of the kernel: {error}"),
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&noise);
        }
    }
}
