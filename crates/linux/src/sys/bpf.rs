//! `bpf(2)`: maps, programs and raw tracepoints, and nothing else.
//!
//! **What.** Thin safe functions over the system call, on descriptors that release everything when they are dropped;
//! nothing is ever pinned, so a process that dies leaves nothing behind.
//!
//! **Why.** The programs of this project are assembled at run time, so no ELF loader, no compiler and no build script
//! are needed, and the verifier's own words reach the error message.
//!
//! **Price.** The layout of `union bpf_attr` is written out here by byte offset (`include/uapi/linux/bpf.h`); fields
//! are only ever appended to it by the kernel, so offsets do not move.

use super::owned;
use nix::errno::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const GET_FD_BY_ID: libc::c_long = 13;
const INFO_BY_FD: libc::c_long = 15;
const PROG_QUERY: libc::c_long = 16;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const MAP_LOOKUP_BATCH: libc::c_long = 24;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
const ENABLE_STATS: libc::c_long = 32;
const LINK_DETACH: libc::c_long = 34;

/// The size of `union bpf_attr` that this module fills; the rest is unknown to it, hence absent.
const ATTR_BYTES: usize = 128;

/// `BPF_MAP_TYPE_HASH`.
pub const MAP_HASH: u32 = 1;
/// `BPF_MAP_TYPE_ARRAY`.
pub const MAP_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_PROG_ARRAY`: programs that another one goes on with (`bpf_tail_call`).
pub const MAP_PROGRAMS: u32 = 3;
/// `BPF_MAP_TYPE_PERCPU_HASH`.
pub const MAP_PERCPU_HASH: u32 = 5;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub const MAP_PERCPU_ARRAY: u32 = 6;
/// `BPF_MAP_TYPE_LRU_HASH`: the oldest entry makes room for a new one.
pub const MAP_LRU_HASH: u32 = 9;
/// `BPF_MAP_TYPE_DEVMAP`.
pub const MAP_DEVICES: u32 = 14;
/// `BPF_MAP_TYPE_XSKMAP`.
pub const MAP_XSK: u32 = 17;
/// `BPF_MAP_TYPE_RINGBUF` (Linux 5.8): its entries are its bytes, a power of two of whole pages; keys and values have no size.
pub const MAP_RING: u32 = 27;
/// `BPF_PROG_TYPE_XDP`.
pub const PROG_XDP: u32 = 6;
/// `XDP_FLAGS_SKB_MODE`: run the program on socket buffers (generic XDP), which every interface can.
pub const XDP_GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: run the program in the driver (native XDP).
pub const XDP_NATIVE: u32 = 1 << 2;
/// `BPF_PROG_TYPE_SCHED_CLS`.
pub const PROG_SCHED_CLS: u32 = 3;
/// `BPF_TCX_INGRESS`: where [`attach_to_interface`] puts a [`PROG_SCHED_CLS`].
pub const TCX_INGRESS: u32 = 46;
/// `BPF_TCX_EGRESS`.
pub const TCX_EGRESS: u32 = 47;
/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
pub const PROG_RAW_TRACEPOINT: u32 = 17;
/// `BPF_PROG_TYPE_TRACING`.
const PROG_TRACING: u32 = 26;

/// Where in a function a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Before its first instruction (`BPF_TRACE_FENTRY`).
    Begin,
    /// When it returns (`BPF_TRACE_FEXIT`).
    End,
}

/// `union bpf_attr`, all zero until told otherwise.
#[repr(C, align(8))]
struct Attr([u8; ATTR_BYTES]);

impl Attr {
    fn new() -> Self {
        Attr([0; ATTR_BYTES])
    }

    fn u32(mut self, offset: usize, value: u32) -> Self {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, offset: usize, value: u64) -> Self {
        self.0[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, offset: usize, fd: RawFd) -> Self {
        self.u32(offset, fd as u32)
    }

    fn pointer<T: ?Sized>(self, offset: usize, target: *const T) -> Self {
        self.u64(offset, target.cast::<u8>() as u64)
    }

    fn name(mut self, offset: usize, name: &str) -> Self {
        let name: Vec<u8> =
            name.bytes().filter(|b| b.is_ascii_alphanumeric() || *b == b'_').take(15).collect();
        self.0[offset..offset + name.len()].copy_from_slice(&name);
        self
    }

    fn read_u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    /// Makes the call. Pointers inside must be valid for what the command reads and writes, which each caller below
    /// guarantees by checking the lengths of its slices against the map.
    fn call(&mut self, command: libc::c_long) -> io::Result<RawFd> {
        // SAFETY: the attribute block is owned, aligned and of the length given; see above for pointers in it.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), ATTR_BYTES) };
        Ok(Errno::result(result)? as RawFd)
    }

    fn call_for_fd(mut self, command: libc::c_long) -> io::Result<OwnedFd> {
        owned(self.call(command)?.into())
    }
}

/// A map. Per-CPU maps give one value for every possible CPU, each rounded up to eight bytes.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// What one lookup writes: for per-CPU maps the values of all possible CPUs.
    value_bytes: usize,
    max_entries: u32,
}

impl Map {
    /// Makes a map of the given type (`MAP_*`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOSYS` without BPF in the kernel, `EINVAL` for sizes the type does not take.
    pub fn create(kind: u32, key_size: u32, value_size: u32, entries: u32, name: &str) -> io::Result<Map> {
        Map::create_with((kind, 0), (key_size, value_size), entries, name)
    }

    /// The same of a type with flags (`BPF_F_*`), and with the sizes of a key and of a value.
    ///
    /// # Errors
    /// As [`Map::create`].
    pub fn create_with(
        (kind, flags): (u32, u32),
        (key_size, value_size): (u32, u32),
        entries: u32,
        name: &str,
    ) -> io::Result<Map> {
        let per_cpu = matches!(kind, MAP_PERCPU_HASH | MAP_PERCPU_ARRAY);
        let value_bytes = if per_cpu {
            value_size.next_multiple_of(8) as usize * possible_cpus()?
        } else {
            value_size as usize
        };
        let fd = Attr::new()
            .u32(0, kind)
            .u32(4, key_size)
            .u32(8, value_size)
            .u32(12, entries)
            .u32(16, flags)
            .name(28, name)
            .call_for_fd(MAP_CREATE)?;
        Ok(Map { fd, key_size: key_size as usize, value_bytes, max_entries: entries })
    }

    /// The descriptor, to be named in a program.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The descriptor, to be mapped.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of one looked-up value (all CPUs of a per-CPU map).
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    fn check(&self, key: &[u8], value: Option<usize>) -> io::Result<()> {
        let fits = key.len() == self.key_size && value.is_none_or(|bytes| bytes == self.value_bytes);
        if fits { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
    }

    /// A request about a key, without the place of its value.
    fn element(&self, key: &[u8]) -> Attr {
        Attr::new().fd(0, self.raw_fd()).pointer(8, key.as_ptr())
    }

    /// The value of a key; none if the key is not there.
    ///
    /// # Errors
    /// `InvalidInput` if the key has another size than the map's; else what the kernel says.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.check(key, None)?;
        let mut value = vec![0; self.value_bytes];
        match self.element(key).pointer(16, value.as_mut_ptr()).call(MAP_LOOKUP) {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key (all CPUs of a per-CPU map).
    ///
    /// # Errors
    /// `InvalidInput` for wrong sizes, `E2BIG` when the map is full; else what the kernel says.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, Some(value.len()))?;
        self.element(key).pointer(16, value.as_ptr()).call(MAP_UPDATE).map(drop)
    }

    /// Takes a key out; whether it was there.
    ///
    /// # Errors
    /// `InvalidInput` if the key has another size than the map's; else what the kernel says.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check(key, None)?;
        match self.element(key).call(MAP_DELETE) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every key with its value, in one call (Linux 5.6 for hash maps).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let room = self.max_entries as usize;
        let mut keys = vec![0u8; room * self.key_size];
        let mut values = vec![0u8; room * self.value_bytes];
        // The batch position of a hash map is a 32-bit bucket, of others a key; give it room for either.
        let mut position = vec![0u8; self.key_size.max(8)];
        let mut attr = Attr::new()
            .pointer(8, position.as_mut_ptr())
            .pointer(16, keys.as_mut_ptr())
            .pointer(24, values.as_mut_ptr())
            .u32(32, self.max_entries)
            .fd(36, self.raw_fd());
        match attr.call(MAP_LOOKUP_BATCH) {
            // ENOENT says that the end was reached, which is what one call with room for everything does.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let count = (attr.read_u32(32) as usize).min(room);
        let pair = |i: usize| {
            let (k, v) = (self.key_size, self.value_bytes);
            (keys[i * k..(i + 1) * k].to_vec(), values[i * v..(i + 1) * v].to_vec())
        };
        Ok((0..count).map(pair).collect())
    }
}

/// Why a program was not loaded.
#[derive(Debug)]
pub struct Rejected {
    /// What the system call said.
    pub error: io::Error,
    /// What the verifier said; empty if it was not reached.
    pub log: String,
}

/// Loads a program (`PROG_*`) of eight-byte instructions. `license` decides which kernel functions it may call.
///
/// # Errors
/// [`Rejected`]: `EPERM` without `CAP_BPF`/`CAP_PERFMON`, else usually the verifier, with its log.
pub fn load_program(kind: u32, program: &[u64], license: &CStr, name: &str) -> Result<OwnedFd, Rejected> {
    load(program, license, name, |attr| attr.u32(0, kind))
}

/// Loads a program for a function of the kernel, by the number of the function in the kernel's BTF.
///
/// # Errors
/// As [`load_program`].
pub fn load_for_function(
    (function, edge): (u32, Edge),
    program: &[u64],
    license: &CStr,
    name: &str,
) -> Result<OwnedFd, Rejected> {
    let place = match edge {
        Edge::Begin => 24,
        Edge::End => 25,
    };
    load(program, license, name, |attr| attr.u32(0, PROG_TRACING).u32(68, place).u32(108, function))
}

fn load(
    program: &[u64],
    license: &CStr,
    name: &str,
    with: impl Fn(Attr) -> Attr,
) -> Result<OwnedFd, Rejected> {
    let attr = || {
        let of_all = Attr::new().u32(4, program.len() as u32).pointer(8, program.as_ptr());
        with(of_all.pointer(16, license.as_ptr()).name(48, name))
    };
    let error = match attr().call_for_fd(PROG_LOAD) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if error.raw_os_error() == Some(libc::EPERM) {
        return Err(Rejected { error, log: String::new() });
    }
    // Only a failed load pays for the log.
    let mut log = vec![0u8; 256 * 1024];
    let again =
        attr().u32(24, 1).u32(28, log.len() as u32).pointer(32, log.as_mut_ptr()).call_for_fd(PROG_LOAD);
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).into_owned();
    again.map_err(|error| Rejected { error, log })
}

/// Runs a raw-tracepoint program at every event of that name until the returned descriptor is dropped.
///
/// # Errors
/// `ENOENT` if the kernel has no such tracepoint, `EPERM` without `CAP_PERFMON`.
pub fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Attr::new().pointer(0, name.as_ptr()).fd(8, program.as_raw_fd()).call_for_fd(RAW_TRACEPOINT_OPEN)
}

/// Runs a program of [`load_for_function`] whenever the function runs, until the returned descriptor is dropped.
///
/// # Errors
/// `ENOTSUPP` (524) if this kernel cannot change the function's code while it runs.
pub fn open_function(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Attr::new().fd(8, program.as_raw_fd()).call_for_fd(RAW_TRACEPOINT_OPEN)
}

/// A program at an interface (`bpf_link`). It is detached when this is dropped, whoever else holds the link: closing the descriptor would
/// do that only when no other process has it, and each child has it from `fork` to `exec`. Until then a frame would still go where nobody
/// reads (`bpf_xdp_link_detach` in `net/core/dev.c`, `tcx_link_detach` in `kernel/bpf/tcx.c`).
#[derive(Debug)]
pub struct Attachment(OwnedFd);

impl Attachment {
    /// Puts another program in the place of this one. Attaching waits for all CPUs, some 15 ms; this does not (`tcx_link_update` in
    /// `kernel/bpf/tcx.c`).
    ///
    /// # Errors
    /// `ENOLINK` when the interface has gone.
    pub fn exchange(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        Attr::new().fd(0, self.0.as_raw_fd()).fd(4, program.as_raw_fd()).call(LINK_UPDATE).map(|_| ())
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // What cannot be detached (Linux before 5.9) ends with its descriptor.
        drop(Attr::new().fd(0, self.0.as_raw_fd()).call(LINK_DETACH));
    }
}

/// Attaches a program to an interface of the calling thread's namespace (`TCX_*`, Linux 6.6): before all others at ingress, behind
/// all others at egress, so that it sees what comes from and goes to the link whatever they do.
///
/// # Errors
/// `ENODEV` without such an interface, `EINVAL` on kernels without tcx, `EPERM` without `CAP_NET_ADMIN`.
pub fn attach_to_interface(program: BorrowedFd<'_>, interface: u32, place: u32) -> io::Result<Attachment> {
    const BEFORE: u32 = 1 << 3;
    let order = if place == TCX_INGRESS { BEFORE } else { 0 };
    let attr = Attr::new().fd(0, program.as_raw_fd()).u32(4, interface).u32(8, place).u32(12, order);
    attr.call_for_fd(LINK_CREATE).map(Attachment)
}

/// Attaches a [`PROG_XDP`] to an interface of the calling thread's namespace (Linux 5.9). `mode` is [`XDP_NATIVE`] or [`XDP_GENERIC`].
///
/// # Errors
/// `EBUSY` when another program is attached, `EOPNOTSUPP` when the driver has no native XDP, `ERANGE` or `EINVAL` when
/// it has, but not with these settings (MTU, offloads), `ENODEV`, `EPERM`.
pub fn attach_xdp(program: BorrowedFd<'_>, interface: u32, mode: u32) -> io::Result<Attachment> {
    const BPF_XDP: u32 = 37;
    let attr = Attr::new().fd(0, program.as_raw_fd()).u32(4, interface).u32(8, BPF_XDP).u32(12, mode);
    attr.call_for_fd(LINK_CREATE).map(Attachment)
}

/// Runs a [`PROG_XDP`] on `repeat` frames that the kernel makes from `frame`, and does with each what the program says
/// (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18). The kernel uses a frame's memory again when it comes back, with whatever
/// was written into it, so a program must write what has to be there.
///
/// # Errors
/// `EINVAL` before 5.18 and for a frame longer than a page has room for, `EPERM`, `EINTR` when a signal came (some frames
/// were sent then), `ENOMEM`.
pub fn run_live_frames(program: BorrowedFd<'_>, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut attr = Attr::new()
        .fd(0, program.as_raw_fd())
        .u32(8, frame.len() as u32)
        .pointer(16, frame.as_ptr())
        .u32(32, repeat)
        .u32(64, LIVE_FRAMES)
        .u32(72, batch);
    attr.call(PROG_TEST_RUN).map(drop)
}

/// Runs a [`PROG_XDP`] or [`PROG_SCHED_CLS`] so many times on a copy of a frame of at least 14 bytes; returns what the last run
/// returned, and the nanoseconds of one (`BPF_PROG_TEST_RUN`).
///
/// # Errors
/// `EINVAL` for a frame that is too short or too long, `EPERM`.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    let mut attr = Attr::new()
        .fd(0, program.as_raw_fd())
        .u32(8, frame.len() as u32)
        .pointer(16, frame.as_ptr())
        .u32(32, repeat);
    attr.call(PROG_TEST_RUN)?;
    Ok((attr.read_u32(4), attr.read_u32(36)))
}

/// What a program did with a copy of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// What it returned, the last time.
    pub returned: u32,
    /// Nanoseconds of one run, on average.
    pub ns: u32,
    /// The frame as it was then.
    pub frame: Vec<u8>,
}

/// Runs a [`PROG_XDP`] or [`PROG_SCHED_CLS`] so many times on the same copy of a frame that came in by an interface of the calling thread's
/// namespace. A super-frame (tcx only) says how many bytes its segments have.
///
/// # Errors
/// `EINVAL` for a frame that is too short or too long, `ENODEV`, `EPERM`.
pub fn test_run_at(
    program: BorrowedFd<'_>,
    kind: u32,
    interface: u32,
    frame: &[u8],
    segment: u32,
    repeat: u32,
) -> io::Result<TestRun> {
    // struct xdp_md: data_end, ingress_ifindex; struct __sk_buff: ingress_ifindex, ifindex, gso_segs, gso_size.
    let mut context = [0u32; 48];
    let words = if kind == PROG_XDP { 6 } else { 48 };
    if kind == PROG_XDP {
        (context[1], context[3]) = (frame.len() as u32, interface);
    } else {
        (context[9], context[10], context[44]) = (interface, interface, segment);
    }
    // Room for what may be pushed.
    let mut out = vec![0u8; frame.len() + 64];
    let mut attr = Attr::new()
        .fd(0, program.as_raw_fd())
        .u32(8, frame.len() as u32)
        .u32(12, out.len() as u32)
        .pointer(16, frame.as_ptr())
        .pointer(24, out.as_mut_ptr())
        .u32(32, repeat)
        .u32(40, words * 4)
        .pointer(48, context.as_ptr());
    attr.call(PROG_TEST_RUN)?;
    out.truncate(attr.read_u32(12) as usize);
    Ok(TestRun { returned: attr.read_u32(4), ns: attr.read_u32(36), frame: out })
}

/// Waits until every program that ran on a frame when this was called has ended (`MEMBARRIER_CMD_GLOBAL`, which is
/// `synchronize_rcu`; Linux 4.3): 8 to 16 ms at 250 ticks a second, whatever the load.
///
/// # Errors
/// `EINVAL` on a kernel with CPUs that have no tick (`nohz_full`), `ENOSYS` without the call.
pub fn wait_for_running_programs() -> io::Result<()> {
    const GLOBAL: libc::c_long = 1;
    // SAFETY: the call takes no memory.
    Errno::result(unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) })?;
    Ok(())
}

/// The numbers of the programs at a place (`TCX_*`) of an interface of the calling thread's namespace (`BPF_PROG_QUERY`, Linux 6.6), in the
/// order in which they run, as many as 64.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` on kernels without tcx, `ENODEV`.
pub fn programs_at(interface: u32, place: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; 64];
    let mut attr =
        Attr::new().u32(0, interface).u32(4, place).pointer(16, ids.as_mut_ptr()).u32(24, ids.len() as u32);
    match attr.call(PROG_QUERY) {
        // No program was ever there.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(vec![]),
        answer => answer?,
    };
    let count = (attr.read_u32(24) as usize).min(ids.len());
    Ok(ids[..count].to_vec())
}

/// A program by the kernel's number of it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` when it is gone.
pub fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    Attr::new().u32(0, id).call_for_fd(GET_FD_BY_ID)
}

/// The name that a program was loaded with; empty when it was loaded without one.
///
/// # Errors
/// What the kernel says.
pub fn program_name(program: BorrowedFd<'_>) -> io::Result<String> {
    const OFFSET: usize = 64;
    let (info, _) = information(program)?;
    let bytes = info[OFFSET / 8..OFFSET / 8 + 2].iter().flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// How often the program was not run because it was already running on that CPU (`recursion_misses` of
/// `struct bpf_prog_info`, Linux 5.12); none on kernels that do not tell.
///
/// # Errors
/// What the kernel says.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    const OFFSET: usize = 208;
    let (info, told) = information(program)?;
    Ok((told >= OFFSET + 8).then(|| info[OFFSET / 8]))
}

/// How long and how often the program ran while the kernel measured it ([`measure_programs`]): nanoseconds and runs
/// (`run_time_ns` and `run_cnt` of `struct bpf_prog_info`, Linux 5.1); none on kernels that do not tell.
///
/// # Errors
/// What the kernel says.
pub fn run_time(program: BorrowedFd<'_>) -> io::Result<Option<(u64, u64)>> {
    const OFFSET: usize = 192;
    let (info, told) = information(program)?;
    Ok((told >= OFFSET + 16).then(|| (info[OFFSET / 8], info[OFFSET / 8 + 1])))
}

/// `struct bpf_prog_info` as words, and how many bytes of it the kernel told.
fn information(program: BorrowedFd<'_>) -> io::Result<([u64; 32], usize)> {
    let mut info = [0u64; 32];
    let bytes = size_of_val(&info) as u32;
    let mut attr = Attr::new().fd(0, program.as_raw_fd()).u32(4, bytes).pointer(8, info.as_mut_ptr());
    attr.call(INFO_BY_FD)?;
    let told = attr.read_u32(4) as usize;
    Ok((info, told))
}

/// Lets the kernel measure how long programs run, all of the host, until the returned descriptor is dropped
/// (`BPF_ENABLE_STATS`, Linux 5.8).
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` on older kernels.
pub fn measure_programs() -> io::Result<OwnedFd> {
    const RUN_TIME: u32 = 0;
    Attr::new().u32(0, RUN_TIME).call_for_fd(ENABLE_STATS)
}

/// How many values a per-CPU map holds for each key: the CPUs that may ever come online.
///
/// # Errors
/// When `/sys/devices/system/cpu/possible` cannot be read or understood.
pub fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    highest_cpu(&text)
        .map(|cpu| cpu + 1)
        .ok_or_else(|| io::Error::other("cannot read the list of possible CPUs"))
}

/// The highest number in a list like `0-3,8`.
fn highest_cpu(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok().filter(|&cpu: &usize| cpu < 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_possible_cpus_is_read() {
        assert_eq!(highest_cpu("0-1\n"), Some(1));
        assert_eq!(highest_cpu("0"), Some(0));
        assert_eq!(highest_cpu("0-3,8-11\n"), Some(11));
        assert_eq!(highest_cpu("\n"), None);
        assert_eq!(highest_cpu("a-b"), None);
    }

    #[test]
    fn a_batch_read_gives_what_lookups_give() {
        let map = match Map::create(MAP_PERCPU_HASH, 8, 16, 64, "pathlab_test") {
            Ok(map) => map,
            Err(error) => return println!("SKIP: bpf(2) is not available here: {error}"),
        };
        for i in 0u64..40 {
            let value: Vec<u8> = (0..map.value_bytes()).map(|byte| (byte as u64 * 3 + i) as u8).collect();
            map.update(&i.to_ne_bytes(), &value).expect("room for 40 of 64 keys");
        }
        let mut fast = map.entries().expect("batch");
        fast.sort();
        let keys: std::collections::BTreeSet<_> = (0u64..40).map(|i| i.to_ne_bytes().to_vec()).collect();
        let one = |key: Vec<u8>| (key.clone(), map.lookup(&key).expect("lookup").expect("it is there"));
        let slow: Vec<_> = keys.into_iter().map(one).collect();
        assert_eq!(fast, slow);
        assert_eq!(map.lookup(&99u64.to_ne_bytes()).expect("lookup"), None);
        assert!(
            map.lookup(&[0; 4]).is_err(),
            "a key of another size is refused here, not read beyond its end"
        );
    }
}
