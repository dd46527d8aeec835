//! The clock of a network card against that of the system (`include/uapi/linux/ptp_clock.h`).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;

/// How often the card's clock is read between two readings of the system's; at most 25.
const SAMPLES: usize = 15;
/// `PTP_SYS_OFFSET`: `_IOW('=', 5, struct ptp_sys_offset)`.
const PTP_SYS_OFFSET: libc::c_ulong = 0x4340_3d05;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PtpTime {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

/// `struct ptp_sys_offset`: times of the system and of the card in turn, one more of the system.
#[repr(C)]
struct SystemOffset {
    samples: u32,
    reserved: [u32; 3],
    times: [PtpTime; 51],
}

/// What a card's clock is ahead of `CLOCK_REALTIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds; negative when the card is behind.
    pub offset_ns: i128,
    /// At most so far from the truth: half of the time that the reading took.
    pub error_ns: i128,
}

/// Compares the clock of a device (`/dev/ptp0`) with the system's.
///
/// # Errors
/// What open(2) or ioctl(2) says; `ENODATA` when no reading was possible.
pub fn offset(device: &Path) -> io::Result<ClockOffset> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(device)?;
    let mut request =
        SystemOffset { samples: SAMPLES as u32, reserved: [0; 3], times: [PtpTime::default(); 51] };
    // SAFETY: the request is the structure that this number names, and lives until the call returns.
    let done = unsafe {
        libc::ioctl(file.as_raw_fd(), PTP_SYS_OFFSET as libc::Ioctl, std::ptr::from_mut(&mut request))
    };
    Errno::result(done)?;
    let ns = |time: &PtpTime| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let times: Vec<i128> = request.times[..=2 * SAMPLES].iter().map(ns).collect();
    closest(&times).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODATA))
}

/// The offset by the reading that took least, of times of the system and of the card in turn.
fn closest(times: &[i128]) -> Option<ClockOffset> {
    let readings = times.windows(3).step_by(2).filter(|reading| reading[2] >= reading[0]);
    let best = readings.min_by_key(|reading| reading[2] - reading[0])?;
    let middle = (best[0] + best[2]) / 2;
    Some(ClockOffset { offset_ns: best[1] - middle, error_ns: (best[2] - best[0]).div_euclid(2) + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_reading_tells_the_offset() {
        // The second reading took 400 ns, the others microseconds; the card is 37 s ahead.
        let card = |system: i128| system + 37_000_000_000;
        let times = [1_000, card(4_000), 9_000, card(9_210), 9_400, card(12_000), 20_000];
        assert_eq!(closest(&times), Some(ClockOffset { offset_ns: 37_000_000_010, error_ns: 201 }));
        // A clock that was set back between two readings.
        assert_eq!(closest(&[5_000, 1, 4_000]), None);
        assert_eq!(closest(&[]), None);
    }

    #[test]
    fn the_structure_is_the_kernels() {
        let bytes = std::mem::size_of::<SystemOffset>();
        assert_eq!((bytes as libc::c_ulong) << 16 | 0x4000_3d05, PTP_SYS_OFFSET);
    }

    #[test]
    fn what_is_no_clock_says_so() {
        assert_eq!(offset(Path::new("/dev/null")).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
