//! An AF_XDP socket: its options, its rings, its binding to a queue.

use super::ring::Ring;
use crate::port::Direction;
use crate::port::area::Area;
use crate::sys::socket::{self, CStruct};
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): how many frames one system call sends in copy mode; 32 when not set.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// How long a queue is waited for that another socket has just left: the kernel cleans up behind it later.
const PATIENCE: Duration = Duration::from_millis(500);

/// The sockets that registered an area, so that others can share it. An area that is gone is forgotten at the next use.
static REGISTERED: Mutex<Vec<(usize, Weak<Socket>)>> = Mutex::new(vec![]);

/// A socket, and the chunks that come back to the area once the kernel cannot touch them any more.
#[derive(Debug)]
pub struct Socket {
    fd: Option<OwnedFd>,
    pub area: Arc<Area>,
    orphans: Mutex<Vec<u32>>,
}

/// The rings of a receiver.
#[derive(Debug)]
pub struct Inward {
    pub frames: Ring<libc::xdp_desc>,
    pub fill: Ring<u64>,
}

/// The rings of a transmitter.
#[derive(Debug)]
pub struct Outward {
    pub frames: Ring<libc::xdp_desc>,
    pub completion: Ring<u64>,
}

/// How a socket shall be bound.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    pub interface: u32,
    pub queue: u32,
    /// `XDP_COPY`, `XDP_ZEROCOPY` or 0 for what goes best.
    pub copy: u16,
    pub wakeup: bool,
}

/// What a socket is made of.
#[derive(Debug)]
pub struct Parts {
    pub socket: Arc<Socket>,
    pub inward: Option<Inward>,
    pub outward: Option<Outward>,
    /// Another socket registered the memory, and its way of copying is this one's, too.
    pub shares: bool,
    /// Frames that one system call sends at most; none before Linux 6.17.
    pub budget: Option<u32>,
}

impl Socket {
    /// Makes a socket over an area, with rings of `size`, for the directions that are wanted, and binds it.
    pub fn open(area: &Arc<Area>, size: u32, way: Direction, binding: &Binding) -> io::Result<Parts> {
        // SAFETY: a plain system call whose result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Socket { fd: Some(fd), area: area.clone(), orphans: Mutex::default() };
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|(_, socket)| socket.strong_count() > 0);
        let key = Arc::as_ptr(area) as usize;
        let first = registered.iter().find(|(area, _)| *area == key).and_then(|(_, first)| first.upgrade());
        if first.is_none() {
            socket.register()?;
        }
        socket.set(libc::XDP_UMEM_FILL_RING, &size)?;
        socket.set(libc::XDP_UMEM_COMPLETION_RING, &size)?;
        if way.receives() {
            socket.set(libc::XDP_RX_RING, &size)?;
        }
        let mut budget = None;
        if way.transmits() {
            socket.set(libc::XDP_TX_RING, &size)?;
            budget = socket.set(MAX_TX_SKB_BUDGET, &size).is_ok().then_some(size);
        }
        // Everything is mapped before binding, so that a socket that is bound is whole.
        let (inward, outward) = socket.map(size, way)?;
        socket.bind(binding, first.as_deref())?;
        let socket = Arc::new(socket);
        if first.is_none() {
            registered.push((key, Arc::downgrade(&socket)));
        }
        Ok(Parts { socket, inward, outward, shares: first.is_some(), budget })
    }

    fn register(&self) -> io::Result<()> {
        let mut umem: libc::xdp_umem_reg = socket::zeroed();
        umem.addr = self.area.base().as_ptr() as u64;
        umem.len = self.area.bytes() as u64;
        umem.chunk_size = self.area.chunk_bytes();
        self.set(libc::XDP_UMEM_REG, &umem)
    }

    fn map(&self, size: u32, way: Direction) -> io::Result<(Option<Inward>, Option<Outward>)> {
        let at: libc::xdp_mmap_offsets = self.get(libc::XDP_MMAP_OFFSETS)?;
        let fd = self.fd();
        let inward = way.receives().then(|| {
            let frames = Ring::map(fd, libc::XDP_PGOFF_RX_RING, &at.rx, size)?;
            let fill = Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, &at.fr, size)?;
            io::Result::Ok(Inward { frames, fill })
        });
        let outward = way.transmits().then(|| {
            let frames = Ring::map(fd, libc::XDP_PGOFF_TX_RING, &at.tx, size)?;
            let place = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
            let completion = Ring::map(fd, place, &at.cr, size)?;
            io::Result::Ok(Outward { frames, completion })
        });
        Ok((inward.transpose()?, outward.transpose()?))
    }

    fn bind(&self, binding: &Binding, first: Option<&Socket>) -> io::Result<()> {
        let mut address: libc::sockaddr_xdp = socket::zeroed();
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_ifindex = binding.interface;
        address.sxdp_queue_id = binding.queue;
        match first {
            // Who shares takes over how the first one copies and wakes.
            Some(first) => {
                address.sxdp_flags = libc::XDP_SHARED_UMEM;
                address.sxdp_shared_umem_fd = first.fd().as_raw_fd() as u32;
            }
            None => {
                address.sxdp_flags = binding.copy;
                if binding.wakeup {
                    address.sxdp_flags |= libc::XDP_USE_NEED_WAKEUP;
                }
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            // SAFETY: the address is a whole sockaddr_xdp of the length given.
            let done = unsafe {
                libc::bind(
                    self.fd().as_raw_fd(),
                    (&raw const address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                _ if done == 0 => return Ok(()),
                Some(libc::EBUSY) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return Err(error),
            }
        }
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("open until it is dropped").as_fd()
    }

    fn set<T: Copy>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        socket::set(self.fd(), libc::SOL_XDP, option, value)
    }

    fn get<T: CStruct>(&self, option: libc::c_int) -> io::Result<T> {
        socket::get_struct(self.fd(), libc::SOL_XDP, option)
    }

    /// True when frames move without being copied by the kernel.
    pub fn zero_copy(&self) -> bool {
        let options = self.get::<libc::xdp_options>(libc::XDP_OPTIONS);
        options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// The kernel's counters; they only grow.
    pub fn statistics(&self) -> libc::xdp_statistics {
        self.get(libc::XDP_STATISTICS).unwrap_or_else(|_| socket::zeroed())
    }

    /// Lets the kernel fill the receive ring.
    pub fn wake_receive(&self) {
        // SAFETY: no buffer is given. Its result says nothing that the rings do not show.
        unsafe {
            libc::recvfrom(
                self.fd().as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Lets the kernel send what is in the transmit ring.
    pub fn wake_transmit(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address is given.
        let done = unsafe {
            libc::sendto(self.fd().as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Chunks that the kernel may still hold: they come back when the socket is closed.
    pub fn leave(&self, chunks: impl Iterator<Item = u32>) {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).extend(chunks);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Closing waits until no CPU works on the rings any more (`xsk_release`, `synchronize_net`).
        self.fd = None;
        let orphans = self.orphans.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.area.give(orphans.drain(..));
    }
}

/// Which chunks the kernel holds for one ring.
#[derive(Debug)]
pub struct Held(Vec<bool>);

impl Held {
    /// None of so many.
    pub fn new(chunks: u32) -> Held {
        Held(vec![false; chunks as usize])
    }

    /// Gives one to the kernel.
    #[inline]
    pub fn add(&mut self, chunk: u32) {
        self.0[chunk as usize] = true;
    }

    /// Takes one back; false for a number that the kernel did not have (it would be an error of the kernel's).
    #[inline]
    pub fn remove(&mut self, chunk: u32) -> bool {
        self.0.get_mut(chunk as usize).is_some_and(std::mem::take)
    }

    /// All that the kernel holds.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.0).filter(|(_, held)| **held).map(|(chunk, _)| chunk)
    }
}
