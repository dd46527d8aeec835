//! Mounts of namespace files, and a `/sys` that fits a namespace.
//!
//! **A pin that something lies over.** Whoever mounts over `/run/netns` hides the pins in it: no path leads to them any
//! more, but they are still there and keep their namespaces alive. What the kernel has is in its list of mounts
//! (`mountinfo`), where a pin is recognised by the namespace that it holds. To reach it, [`uncovered`] takes what lies over
//! it away in a mount namespace that is a thread's own, so nobody else notices. There a pin is unmounted for that thread
//! alone; but a file that is removed where nothing is mounted on it loses what is mounted on it everywhere else
//! (`vfs_unlink` and `detach_mounts` in fs/namei.c and fs/namespace.c, since Linux 4.0), and that is how the pin goes.

use std::ffi::CStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::owned;

const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Unmount what is in use, too, and exactly what the path says.
const DETACH: MntFlags = MntFlags::MNT_DETACH.union(MntFlags::UMOUNT_NOFOLLOW);

/// Where `ip netns` looks for namespaces.
pub const NETNS_DIRECTORY: &str = "/run/netns";

/// Pins a namespace to a file, which must not exist yet, so that it outlives every process.
///
/// # Errors
/// `AlreadyExists` when the file exists; otherwise the system's error, and then the file is gone again.
pub fn pin(netns: BorrowedFd<'_>, file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(file)?;
    let source = format!("/proc/self/fd/{}", netns.as_raw_fd());
    mount(Some(source.as_str()), file, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|error| {
        let _ = fs::remove_file(file);
        error.into()
    })
}

/// Makes a directory of pins what iproute2 makes of it (`netns_add` in ip/ipnetns.c): a mount of its own that is shared.
/// Whoever does so later, by the first `ip netns add`, would else hide the pins that are there; and a pin that is taken off
/// goes in every mount namespace that got a copy of it. It stays, as iproute2 leaves it.
///
/// # Errors
/// The system's error.
pub fn share_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).recursive(true).create(directory)?;
    // iproute2 takes the same lock, so that only one of several makes the mount.
    let lock = File::open(directory)?;
    lock.lock()?;
    let none = None::<&str>;
    let share = || mount(none, directory, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    match share() {
        // It is no mount yet.
        Err(Errno::EINVAL) => {
            mount(Some(directory), directory, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}

/// Takes every mount of the namespace off the file, also when another mount lies over it, and removes the file if it is
/// empty and nothing else is mounted on it. Processes that are inside the namespace stay there.
///
/// # Errors
/// The system's error, and when the namespace is still pinned there afterwards; no mount and no file is none.
pub fn unpin(file: &Path, inode: u64) -> io::Result<()> {
    remove(file, inode)?;
    if !places(file, inode)?.is_empty() {
        uncovered(file, || {
            // Copies of the pin in other parts of the tree: the file cannot be removed before them.
            let reached = |place: &PathBuf| opened(place, inode).is_some();
            for place in places(file, inode)?.iter().filter(|place| reached(place)) {
                let _ = umount2(place, DETACH);
            }
            Ok(remove(file, inode).is_ok_and(|gone| gone).then_some(()))
        })?;
    }
    let left: Vec<String> = places(file, inode)?.iter().map(|place| place.display().to_string()).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("the namespace is still mounted at {}", left.join(", ")))),
    }
}

/// Takes the mounts of the namespace off the file where the path leads, and removes the file; false when there is none or
/// it is somebody else's.
fn remove(file: &Path, inode: u64) -> io::Result<bool> {
    while opened(file, inode).is_some() {
        match umount2(file, DETACH) {
            // A link that somebody put here, not a mount.
            Err(Errno::EINVAL) => break,
            done => done?,
        }
    }
    match fs::symlink_metadata(file) {
        // Empty and ordinary: made by us and not (or no longer) mounted upon. Anything else is somebody else's.
        Ok(meta) if meta.is_file() && meta.len() == 0 && !is_namespace(file) => match fs::remove_file(file) {
            // Mounted upon in another place of the tree.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            done => done.map(|()| true),
        },
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the namespace is pinned to files of that name, whether or not a path leads there.
fn places(file: &Path, inode: u64) -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let root = format!("net:[{inode}]");
    // The fourth field is what is mounted, the fifth where (proc_pid_mountinfo(5)).
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let ours = fields.next() == Some(&root);
        fields.next().map(PathBuf::from).filter(|place| ours && place.file_name() == file.file_name())
    };
    Ok(mounts.lines().filter_map(place).collect())
}

/// Does `work` on a thread whose mounts are its own, and takes one mount after the other away that lies on the way to the
/// file until `work` has what it wants; none when there is no more to take away.
fn uncovered<T: Send>(
    file: &Path,
    mut work: impl FnMut() -> io::Result<Option<T>> + Send,
) -> io::Result<Option<T>> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || -> io::Result<Option<T>> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
            let below_root = || file.ancestors().skip(1).filter(|directory| directory.parent().is_some());
            let unmount = |directory| umount2(directory, DETACH);
            loop {
                if let Some(got) = work()? {
                    return Ok(Some(got));
                }
                if !below_root().any(|directory| unmount(directory).is_ok()) {
                    return Ok(None);
                }
            }
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens the namespace that is pinned to a file, if it is the one with this inode, also when another mount lies over it.
pub fn pinned(file: &Path, inode: u64) -> Option<File> {
    opened(file, inode).or_else(|| match places(file, inode) {
        Ok(places) if !places.is_empty() => uncovered(file, || Ok(opened(file, inode))).ok().flatten(),
        _ => None,
    })
}

/// The names in [`NETNS_DIRECTORY`] that begin so and have a namespace, sorted.
pub fn pins_named(begin: &str) -> Vec<String> {
    let entries = fs::read_dir(NETNS_DIRECTORY).into_iter().flatten().flatten();
    let pins = entries.filter(|entry| is_namespace(&entry.path()));
    let mut names: Vec<String> = pins.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with(begin));
    names.sort();
    names
}

/// The namespace with this inode, if the path leads to it.
fn opened(file: &Path, inode: u64) -> Option<File> {
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

/// A file system as a descriptor of its root (fsopen(2), Linux 5.2); it ends with the descriptor.
/// A `sysfs` shows the interfaces of the calling thread's network namespace.
///
/// # Errors
/// The system's error: no permission, an older kernel.
pub fn detached_mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid C string; FSOPEN_CLOEXEC is 1.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1 as libc::c_uint) })?;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the create command takes no key, no value and 0.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0 as libc::c_int,
        )
    };
    Errno::result(created)?;
    // SAFETY: the context is open; FSMOUNT_CLOEXEC is 1, no mount attributes.
    owned(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1 as libc::c_uint, 0 as libc::c_uint)
    })
}
