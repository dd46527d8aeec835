//! The qdisc at the root of an interface: read, replaced, and made again as it was.
//!
//! **What.** [`Root`] keeps kind, handle and the bytes of the options as the kernel tells them, so that a qdisc without classes can be made
//! again, whatever its options mean; of an HTB, whose options the kernel tells otherwise than it takes them, as it takes them.
//!
//! **Price.** Classes and filters below a root are not kept, nor is what the kernel does not tell of some kinds: what would be lost is told
//! by [`Netlink::root`], and the qdisc shall be left alone then. What waits in a qdisc that is replaced is lost, and its counters begin anew.

use record::snapshot::TC_ROOT;

use super::attributes::{after, attribute, u32_at};
use super::settings::text;
use super::{Answer, Dump, Family, Netlink};

/// `RTM_NEWQDISC`, `RTM_DELQDISC`, `RTM_GETQDISC`, `RTM_GETTCLASS`, `RTM_GETTFILTER`.
const NEW: u16 = 36;
const DELETE: u16 = 37;
const GET: u16 = 38;
const GET_CLASS: u16 = 42;
const GET_FILTER: u16 = 46;
/// `NLM_F_REPLACE`, `NLM_F_CREATE`.
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
/// Bytes of `struct tcmsg`.
const HEADER_BYTES: usize = 20;
/// `TCA_KIND`, `TCA_OPTIONS`, `TCA_STAB`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const SIZES: u16 = 8;

/// The kinds whose classes somebody makes, one by one.
const TREES: [&str; 5] = ["htb", "hfsc", "drr", "qfq", "cbq"];

/// A qdisc at the root of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Root {
    /// Its kind.
    pub kind: String,
    /// Its handle; 0 for the one that the kernel puts there by itself.
    pub handle: u32,
    /// Its options.
    pub options: Vec<u8>,
    /// What it has that could not be put back, if anything.
    pub lost: Option<&'static str>,
}

/// `struct tcmsg`.
fn header(index: u32, handle: u32, parent: u32) -> Vec<u8> {
    [0, index, handle, parent, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Netlink {
    /// The qdisc at the root of an interface; none where there is none at all.
    pub fn root(&mut self, index: u32) -> Answer<Option<Root>> {
        let all = self.below(GET, index)?;
        let is_root = |message: &&Vec<u8>| u32_at(message, 12) == Some(TC_ROOT);
        let Some(mut root) = all.iter().find(is_root).map(|message| parse(message)) else { return Ok(None) };
        // Queues of mq that the kernel made have no handle of their own.
        let made =
            |message: &&Vec<u8>| !is_root(message) && !is_ingress(message) && u32_at(message, 8) != Some(0);
        // All others have the classes that their options say, or that the interface's queues are.
        let is_tree = TREES.contains(&root.kind.as_str()) && !self.below(GET_CLASS, index)?.is_empty();
        let has_others = is_tree
            || all.iter().any(|message| made(&message))
            || (root.handle != 0 && !self.filters(index, root.handle)?.is_empty());
        root.lost = has_others.then_some("classes, filters or other qdiscs below it").or(root.lost);
        Ok(Some(root))
    }

    /// The messages of a dump that are about that interface.
    fn below(&mut self, kind: u16, index: u32) -> Answer<Vec<Vec<u8>>> {
        let body = header(index, 0, 0);
        let dump = Dump { family: Family::Route, kind, body: &body };
        let is_its = |message: &[u8]| u32_at(message, 4) == Some(index);
        Ok(self.dump(&dump, |message| is_its(message).then(|| message.to_vec()))?)
    }

    fn filters(&mut self, index: u32, parent: u32) -> Answer<Vec<()>> {
        let body = header(index, 0, parent);
        Ok(self.dump(&Dump { family: Family::Route, kind: GET_FILTER, body: &body }, |_| Some(()))?)
    }

    /// Puts a qdisc at the root of an interface, in the place of the one that is there. One without a handle is the kernel's own.
    pub fn set_root(&mut self, index: u32, root: &Root) -> Answer {
        if root.kind.is_empty() {
            let delete = self.plain((Family::Route, DELETE, 0), &header(index, 0, TC_ROOT), |_| None::<()>);
            return match delete {
                // There is none that somebody made.
                Err(refusal) if matches!(refusal.errno, Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
                other => other.map(drop),
            };
        }
        let mut body = header(index, root.handle, TC_ROOT);
        body.extend(attribute(KIND, &[root.kind.as_bytes(), &[0]].concat()));
        if !root.options.is_empty() {
            body.extend(attribute(OPTIONS, &root.options));
        }
        self.plain((Family::Route, NEW, CREATE | REPLACE), &body, |_| None::<()>).map(drop)
    }
}

/// The hook of frames that come in (`TC_H_INGRESS`): it is beside the root, not below it.
fn is_ingress(message: &[u8]) -> bool {
    u32_at(message, 12) == Some(0xffff_fff1)
}

fn parse(message: &[u8]) -> Root {
    let attributes = after(message, HEADER_BYTES);
    let kind = attributes.get(KIND).map(text).unwrap_or_default();
    let mut options = attributes.get(OPTIONS).unwrap_or_default().to_vec();
    if kind == "htb" {
        as_taken(&mut options);
    }
    let lost = match kind.as_str() {
        _ if attributes.get(SIZES).is_some() => Some("a table of sizes (stab)"),
        // `TCA_RED_STAB` and its like are required and never told.
        "red" | "gred" | "choke" => Some("a table of averages that the kernel does not tell"),
        // The last word of `struct tc_netem_qopt`; its distribution (`TCA_NETEM_DELAY_DIST`) is never told.
        "netem" if u32_at(&options, 20).is_some_and(|jitter| jitter > 0) => {
            Some("a distribution of its jitter that the kernel does not tell")
        }
        _ => None,
    };
    Root { kind, handle: u32_at(message, 8).unwrap_or(0), options, lost }
}

/// `TCA_HTB_INIT`, and the version that `htb_init` wants: the high half of what `htb_dump` tells.
const HTB_INIT: [u8; 2] = 2u16.to_ne_bytes();
const HTB_VERSION: [u8; 4] = 3u32.to_ne_bytes();

/// The options of an HTB as the kernel takes them: `struct tc_htb_glob` comes first, and its last word counts frames without a class.
fn as_taken(options: &mut [u8]) {
    if options.len() >= 24 && options[2..4] == HTB_INIT {
        options[4..8].copy_from_slice(&HTB_VERSION);
        options[20..24].fill(0);
    }
}
