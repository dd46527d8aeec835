//! What only the first process of a machine does: load modules of the kernel, mount its file systems, switch the machine off.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The kernel unpacks the module itself (`MODULE_INIT_COMPRESSED_FILE` in linux/module.h, Linux 5.17).
const COMPRESSED: libc::c_int = 4;

/// Loads a module from its file, packed as it is (`*.ko.xz`, `.gz`, `.zst`) or not.
///
/// # Errors
/// The system's error; a module that is there already is none.
pub fn load_module(file: &Path) -> io::Result<()> {
    let opened = File::open(file)?;
    let flags = if file.extension().is_some_and(|last| last == "ko") { 0 } else { COMPRESSED };
    // SAFETY: the descriptor is open, and the parameters are an empty C string.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, opened.as_raw_fd(), c"".as_ptr(), flags) };
    match Errno::result(done) {
        Err(error) if error != Errno::EEXIST => Err(error.into()),
        _ => Ok(()),
    }
}

/// Mounts a file system in a folder, which is made if it is not there.
///
/// # Errors
/// The system's error.
pub fn mount_at(source: &str, folder: &Path, kind: &str, options: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    Ok(mount(Some(source), folder, Some(kind), MsFlags::empty(), Some(options))?)
}

/// Makes the first file system of a machine one that is only read: what would be written there, and be lost, is refused.
///
/// # Errors
/// The system's error.
pub fn protect_root() -> io::Result<()> {
    Ok(mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>)?)
}

/// Writes what is in memory to where it belongs, and switches the machine off.
pub fn power_off() -> io::Error {
    nix::unistd::sync();
    // SAFETY: takes no pointers; only the first process of a machine or one with CAP_SYS_BOOT is heard.
    let refused = Errno::result(unsafe { libc::reboot(libc::RB_POWER_OFF) });
    refused.err().unwrap_or(Errno::EIO).into()
}

/// Lets programs that are started have this descriptor open under the same number.
///
/// # Errors
/// The system's error.
pub fn hand_down(fd: &impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// A file in memory, which goes with its last descriptor; programs that are started have it open under the same number.
///
/// # Errors
/// The system's error.
pub fn file_in_memory(name: &str) -> io::Result<File> {
    let name = CString::new(name).map_err(io::Error::other)?;
    let owned: OwnedFd = memfd_create(name.as_c_str(), MFdFlags::empty())?;
    Ok(owned.into())
}
