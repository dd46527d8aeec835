//! Mounts of namespace files, and a `/sys` that fits a namespace.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// Pins a namespace to a file, which must not exist yet, so that it outlives every process.
///
/// # Errors
/// `AlreadyExists` when the file exists; otherwise the system's error, and then the file is gone again.
pub fn pin(netns: BorrowedFd<'_>, file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(file)?;
    let source = format!("/proc/self/fd/{}", netns.as_raw_fd());
    mount(Some(source.as_str()), file, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|error| {
        let _ = std::fs::remove_file(file);
        error.into()
    })
}

/// Takes the mount off a file, if there is one; processes that are inside stay there.
///
/// # Errors
/// The system's error; a file that is no mount, or does not exist, is none.
pub fn unpin(file: &Path) -> io::Result<()> {
    match umount2(file, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens the namespace that is pinned to a file, if it is the one with this inode.
pub fn pinned(file: &Path, inode: u64) -> Option<File> {
    // A namespace file lies on nsfs, whose inode numbers name namespaces; an ordinary file with that number does not.
    let opened = File::open(file).ok()?;
    (is_namespace(file) && opened.metadata().is_ok_and(|meta| meta.ino() == inode)).then_some(opened)
}

/// True when some namespace is pinned to the file (or it is one of `/proc`'s).
pub fn is_namespace(file: &Path) -> bool {
    nix::sys::statfs::statfs(file).is_ok_and(|fs| fs.filesystem_type() == nix::sys::statfs::NSFS_MAGIC)
}

/// Gives the calling (single-threaded) process a `/sys` that shows the interfaces of its network namespace, in a mount
/// namespace of its own, as `ip netns exec` does.
///
/// # Errors
/// The system's error; the process then keeps the `/sys` of the host.
pub fn own_sysfs() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("sysfs"), "/sys", Some("sysfs"), flags, None::<&str>)?;
    Ok(())
}
