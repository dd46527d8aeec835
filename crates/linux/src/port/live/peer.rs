//! The other end of a veth: whether it takes redirected frames, and how to make it.
//!
//! A veth hands a redirected frame to its peer only while the peer polls (`veth_xdp_xmit`), that is, with an XDP program
//! or with GRO. The kernel says so in the XDP features of *this* end. The peer may be in any namespace; it is found
//! through the number that this namespace has for that one (`RTM_GETNSID`), so equal indices elsewhere do not confuse.

use super::super::interface::Interface;
use crate::netlink::Netlink;
use crate::port::sink;
use crate::sys::bpf::Attachment;
use crate::sys::netns;
use record::{Problem, Result};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// `XDP_PASS` of linux/bpf.h.
const XDP_PASS: i32 = 2;

/// Our program at the other end of a veth, until this goes, or until a port of this process opens that end for itself: what it attaches
/// there opens the veth as well.
#[derive(Debug)]
pub struct PassingProgram(#[expect(dead_code, reason = "it is held")] Arc<Mutex<Option<Attachment>>>);

/// Namespace and index of an interface, and our program there.
type Passing = ((u64, u32), Weak<Mutex<Option<Attachment>>>);
static PASSING: Mutex<Vec<Passing>> = Mutex::new(vec![]);

impl PassingProgram {
    fn new(key: (u64, u32), program: Attachment) -> PassingProgram {
        let program = Arc::new(Mutex::new(Some(program)));
        let mut passing = PASSING.lock().unwrap_or_else(PoisonError::into_inner);
        passing.retain(|(_, program)| program.strong_count() > 0);
        passing.push((key, Arc::downgrade(&program)));
        PassingProgram(program)
    }
}

/// Takes the programs of this process that pass everything off an interface.
pub(in crate::port) fn give_way(key: (u64, u32)) {
    let passing = PASSING.lock().unwrap_or_else(PoisonError::into_inner);
    let there =
        passing.iter().filter(|(other, _)| *other == key).filter_map(|(_, program)| program.upgrade());
    there.for_each(|program| *program.lock().unwrap_or_else(PoisonError::into_inner) = None);
}

/// What was found, and done.
pub(in crate::port) struct Peer {
    /// Holds our program at the other end, if there is one.
    pub program: Option<PassingProgram>,
    /// In words.
    pub note: String,
}

/// Makes sure that redirected frames can leave through the interface.
pub(super) fn open(interface: &Interface, wanted: bool, place: &str) -> Result<Peer> {
    let name = &interface.link.name;
    match interface.takes_redirected() {
        Some(true) => return Ok(Peer { program: None, note: "takes redirected frames as it is".into() }),
        None if !wanted => {
            return Ok(Peer { program: None, note: "unknown: the kernel does not tell".into() });
        }
        _ => {}
    }
    if interface.link.kind != "veth" {
        let problem = Problem::host(format!("the driver of {name} takes no redirected frames"));
        return Err(problem.at(place).help("use ring: or xdp: instead"));
    }
    let refused = |why: String| {
        Problem::host(format!("frames redirected to {name} are lost: the veth's other end {why}"))
            .at(place)
            .help(match wanted {
                true => "there, run 'ethtool -K INTERFACE gro on', or attach an XDP program",
                false => "there, run 'ethtool -K INTERFACE gro on', or attach an XDP program; or ask for ?peer=open",
            })
    };
    if !wanted {
        return Err(refused("has neither an XDP program nor GRO".into()));
    }
    let Some(namespace) = namespace_of_peer(interface) else {
        return Err(refused("is in a namespace that cannot be reached from here".into()));
    };
    let attached =
        netns::within(namespace.as_fd(), || sink::answer(interface.link.peer, XDP_PASS, "pathlab_pass"))
            .and_then(|done| done);
    let program = attached.map_err(|e| refused(format!("takes no program: {e}")))?;
    let key = (netns::inode(namespace.as_fd()).unwrap_or(0), interface.link.peer);
    let program = PassingProgram::new(key, program);
    Ok(Peer { program: Some(program), note: "our program passes everything on, as long as this runs".into() })
}

/// The namespace of the other end, if it is this one or one that has a name or a process.
fn namespace_of_peer(interface: &Interface) -> Option<OwnedFd> {
    let own = netns::current().ok()?;
    let Some(wanted) = interface.link.peer_netns else { return Some(own) };
    let mut netlink = Netlink::open();
    candidates().filter_map(|path| Some(OwnedFd::from(File::open(path).ok()?))).find(|namespace| {
        netlink.number_of(namespace.as_fd()).is_ok_and(|number| number == Some(wanted))
            && !netns::same(namespace, &own).unwrap_or(true)
    })
}

fn candidates() -> impl Iterator<Item = PathBuf> {
    let entries = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries("/run/netns").map(|entry| entry.path());
    let process = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let held = entries("/proc/self/fd").map(|entry| entry.path());
    let held = held.filter(|path| std::fs::read_link(path).is_ok_and(|to| is_netns(&to)));
    let lived = entries("/proc").filter(move |entry| process(&entry.file_name()));
    named.chain(held).chain(lived.map(|entry| entry.path().join("ns/net")))
}

/// A descriptor of a namespace links to `net:[4026531840]`.
fn is_netns(target: &std::path::Path) -> bool {
    target.to_str().is_some_and(|text| text.starts_with("net:["))
}
