//! BTF: where the running kernel keeps the fields that the witness reads.
//!
//! **What.** A parser of `/sys/kernel/btf/vmlinux` (`Documentation/bpf/btf.rst`) that answers four questions: the
//! offset and size of a member by its path, the values of an enum, how many arguments a function type has, and the number of a function.
//!
//! **Why.** Neither structure offsets nor drop-reason numbers are a stable interface; value 6 has been
//! `SOCKET_FILTER` and is `SOCKET_RCVBUFF` on Linux 6.18. They are always taken from the kernel that runs.
//!
//! **Price.** One pass over about 140 000 types (5.5 MB), once for a process; the types and their names (about 7 MB) stay in memory.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::netlink::u32_at;

const MAGIC: u16 = 0xeb9f;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const ENUM64: u32 = 19;

/// Anonymous members may nest; real kernels nest four deep.
const MAX_DEPTH: u32 = 16;

/// A parsed BTF blob.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Byte offset of each type, by its id less one.
    starts: Vec<u32>,
    /// Ids of structs and unions, enums, and typedefs, by name.
    named: HashMap<&'a str, u32>,
}

/// A member of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Offset from the start of the outer struct, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
}

/// One type record, decoded.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    flag: bool,
    count: usize,
    size_or_type: u32,
    /// Where the kind's own data begin.
    data: usize,
}

/// The types of the running kernel, read once for all programs of this process.
///
/// # Errors
/// The sentence why they cannot be read.
pub fn of_kernel() -> Result<&'static Btf<'static>, String> {
    static BLOB: OnceLock<Vec<u8>> = OnceLock::new();
    static TYPES: OnceLock<Result<Btf<'static>, String>> = OnceLock::new();
    let found = TYPES.get_or_init(|| {
        let blob = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| {
            format!("the kernel's own types cannot be read (/sys/kernel/btf/vmlinux: {error})")
        })?;
        Btf::parse(BLOB.get_or_init(|| blob)).ok_or_else(|| "the kernel's BTF cannot be read".into())
    });
    found.as_ref().map_err(Clone::clone)
}

/// Bytes that follow the common header of a type of that kind.
fn data_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        ARRAY => 12,
        STRUCT | UNION | 15 | ENUM64 => count * 12,
        ENUM | FUNC_PROTO => count * 8,
        PTR | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

impl<'a> Btf<'a> {
    /// Indexes the blob. None if it is not BTF or is cut short.
    pub fn parse(blob: &'a [u8]) -> Option<Btf<'a>> {
        if blob.get(..2)? != MAGIC.to_ne_bytes() {
            return None;
        }
        let header = u32_at(blob, 4)? as usize;
        let section = |offset: usize| {
            let start = header.checked_add(u32_at(blob, offset)? as usize)?;
            blob.get(start..start.checked_add(u32_at(blob, offset + 4)? as usize)?)
        };
        let mut btf =
            Btf { types: section(8)?, strings: section(16)?, starts: Vec::new(), named: HashMap::new() };
        btf.index()?;
        Some(btf)
    }

    /// The offset of a member that has so many bytes.
    ///
    /// # Errors
    /// The sentence that this kernel has no such member, or has it in another size.
    pub fn offset(&self, outer: &str, path: &str, size: u32) -> Result<u32, String> {
        match self.member(outer, path) {
            Some(Member { offset, size: found }) if found == size => Ok(offset),
            Some(Member { size: found, .. }) => {
                Err(format!("{outer}.{path} has {found} bytes in this kernel, not {size}"))
            }
            None => Err(format!("this kernel has no {outer}.{path}")),
        }
    }

    fn index(&mut self) -> Option<()> {
        let mut at = 0;
        while at < self.types.len() {
            let found = self.type_at(at)?;
            self.starts.push(at as u32);
            at = found.data.checked_add(data_bytes(found.kind, found.count)?)?;
            if !matches!(found.kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF) || found.name == 0 {
                continue;
            }
            // The first definition of a name wins.
            if let Some(name) = self.string(found.name) {
                self.named.entry(name).or_insert(self.starts.len() as u32);
            }
        }
        (at == self.types.len()).then_some(())
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let info = u32_at(self.types, at + 4)?;
        Some(Type {
            name: u32_at(self.types, at)?,
            kind: (info >> 24) & 0x1f,
            flag: info >> 31 != 0,
            count: (info & 0xffff) as usize,
            size_or_type: u32_at(self.types, at + 8)?,
            data: at + 12,
        })
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        self.type_at(*self.starts.get(id.checked_sub(1)? as usize)? as usize)
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let tail = self.strings.get(offset as usize..)?;
        std::str::from_utf8(&tail[..tail.iter().position(|&byte| byte == 0)?]).ok()
    }

    /// Follows typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_DEPTH {
            let found = self.type_of(id)?;
            match found.kind {
                TYPEDEF | 9 | 10 | 11 | 18 => id = found.size_or_type,
                _ => return Some(found),
            }
        }
        None
    }

    fn size_of(&self, id: u32, depth: u32) -> Option<u32> {
        let found = self.resolve(id)?;
        match found.kind {
            PTR => Some(size_of::<usize>() as u32),
            ARRAY if depth < MAX_DEPTH => {
                let element = self.size_of(u32_at(self.types, found.data)?, depth + 1)?;
                element.checked_mul(u32_at(self.types, found.data + 8)?)
            }
            1 | STRUCT | UNION | ENUM | ENUM64 => Some(found.size_or_type),
            _ => None,
        }
    }

    /// Finds a member of a struct or union by name, also inside anonymous members: its bit offset and type.
    fn find(&self, outer: Type, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH || !matches!(outer.kind, STRUCT | UNION) {
            return None;
        }
        for i in 0..outer.count {
            let at = outer.data + i * 12;
            let raw = u32_at(self.types, at + 8)?;
            let (bits, bitfield) = if outer.flag { (raw & 0xff_ffff, raw >> 24) } else { (raw, 0) };
            let (named, id) = (self.string(u32_at(self.types, at)?)?, u32_at(self.types, at + 4)?);
            if named == name {
                return (bitfield == 0).then_some((bits, id));
            }
            if named.is_empty()
                && let Some((inner, id)) = self.find(self.resolve(id)?, name, depth + 1)
            {
                return Some((bits.checked_add(inner)?, id));
            }
        }
        None
    }

    /// The place of a member, e.g. `("net_device", "nd_net.net")`. A path goes through members that are structs,
    /// never through pointers. None if the kernel has no such member, or has it as a bit field.
    pub fn member(&self, outer: &str, path: &str) -> Option<Member> {
        let mut current = self.type_of(*self.named.get(outer)?)?;
        let mut bits = 0u32;
        let mut id = 0;
        for name in path.split('.') {
            let (offset, inner) = self.find(current, name, 0)?;
            bits = bits.checked_add(offset)?;
            id = inner;
            current = self.resolve(inner)?;
        }
        bits.is_multiple_of(8).then_some(Member { offset: bits / 8, size: self.size_of(id, 0)? })
    }

    /// The values of an enum, in its own order. None if there is no such enum.
    pub fn values(&self, name: &str) -> Option<Vec<(&'a str, u32)>> {
        let found = self.type_of(*self.named.get(name)?)?;
        let step = match found.kind {
            ENUM => 8,
            ENUM64 => 12,
            _ => return None,
        };
        let value = |i: usize| {
            let at = found.data + i * step;
            Some((self.string(u32_at(self.types, at)?)?, u32_at(self.types, at + 4)?))
        };
        (0..found.count).map(value).collect()
    }

    /// The number of a function of the kernel. None if it has none of that name, or in a module only.
    pub fn function(&self, name: &str) -> Option<u32> {
        let is_it = |start: &u32| {
            let found = self.type_at(*start as usize).filter(|found| found.kind == FUNC);
            found.and_then(|found| self.string(found.name)) == Some(name)
        };
        self.starts.iter().position(is_it).map(|place| place as u32 + 1)
    }

    /// How many arguments the function has that a typedef points at, e.g. `btf_trace_kfree_skb`, whose first
    /// argument is the tracepoint's own and not the event's.
    pub fn arguments(&self, typedef: &str) -> Option<usize> {
        let pointer = self.resolve(*self.named.get(typedef)?)?;
        let function = (pointer.kind == PTR).then(|| self.resolve(pointer.size_or_type))??;
        (function.kind == FUNC_PROTO).then_some(function.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a small BTF blob: `struct outer { int a; union { struct { u16 deep; }; long wide; }; struct inner in; }`.
    fn small() -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let (int, short, outer, a, deep, wide, inner, member, within) = (
            name("int"),
            name("u16"),
            name("outer"),
            name("a"),
            name("deep"),
            name("wide"),
            name("inner"),
            name("member"),
            name("within"),
        );
        let (colour, red, blue, bits) = (name("colour"), name("RED"), name("BLUE"), name("bits"));
        let mut types = Vec::new();
        let mut put =
            |words: &[u32]| words.iter().for_each(|word| types.extend_from_slice(&word.to_ne_bytes()));
        let info = |kind: u32, count: u32| kind << 24 | count;
        put(&[int, info(1, 0), 4, 0]); // 1
        put(&[short, info(1, 0), 2, 0]); // 2
        put(&[0, info(STRUCT, 1), 8, deep, 2, 16]); // 3: deep at bit 16
        put(&[0, info(UNION, 2), 8, 0, 3, 0, wide, 1, 0]); // 4
        put(&[inner, info(STRUCT, 1) | 1 << 31, 8, member, 1, 32]); // 5
        put(&[
            outer,
            info(STRUCT, 4) | 1 << 31,
            32,
            a,
            1,
            0,
            0,
            4,
            64,
            within,
            5,
            128,
            bits,
            1,
            3 << 24 | 192,
        ]); // 6
        put(&[colour, info(ENUM, 2), 4, red, 0, blue, 7]); // 7
        put(&[0, info(FUNC_PROTO, 0), 1]); // 8
        put(&[red, info(FUNC, 0), 8]); // 9: a function
        let mut blob = Vec::new();
        blob.extend_from_slice(&MAGIC.to_ne_bytes());
        blob.extend_from_slice(&[1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            blob.extend_from_slice(&word.to_ne_bytes());
        }
        blob.extend_from_slice(&types);
        blob.extend_from_slice(&strings);
        blob
    }

    #[test]
    fn members_are_found_through_anonymous_ones_and_paths() {
        let blob = small();
        let btf = Btf::parse(&blob).expect("well formed");
        assert_eq!(btf.member("outer", "a"), Some(Member { offset: 0, size: 4 }));
        assert_eq!(btf.member("outer", "deep"), Some(Member { offset: 10, size: 2 }));
        assert_eq!(btf.member("outer", "within.member"), Some(Member { offset: 20, size: 4 }));
        assert_eq!(btf.member("outer", "bits"), None, "a bit field has no byte offset");
        assert_eq!(btf.member("outer", "absent"), None);
        assert_eq!(btf.values("colour"), Some(vec![("RED", 0), ("BLUE", 7)]));
        assert_eq!(btf.arguments("colour"), None);
        assert_eq!((btf.function("RED"), btf.function("colour")), (Some(9), None));
    }

    #[test]
    fn the_running_kernel_is_understood_quickly() {
        let Ok(blob) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return println!("SKIP: this kernel has no BTF");
        };
        let before = crate::sys::clock::thread_cpu_ns();
        let btf = Btf::parse(&blob).expect("BTF");
        let took = crate::sys::clock::thread_cpu_ns() - before;
        println!("BTF: {} types of {} bytes in {} us", btf.starts.len(), blob.len(), took / 1000);
        assert_eq!(btf.member("sk_buff", "network_header").map(|m| m.size), Some(2));
        assert_eq!(btf.member("net", "ns.inum").map(|m| m.size), Some(4));
        assert!(btf.member("sk_buff", "dev").is_some());
        assert!(btf.function("netif_receive_skb").is_some());
    }

    proptest! {
        #[test]
        fn a_damaged_blob_gives_nothing_or_something_but_never_a_panic(
            cut in 0usize..400, changes in prop::collection::vec((0usize..400, any::<u8>()), 0..8)
        ) {
            let mut blob = small();
            for (at, byte) in changes {
                if let Some(place) = blob.get_mut(at) { *place = byte; }
            }
            blob.truncate(cut.max(2));
            if let Some(btf) = Btf::parse(&blob) {
                for path in ["a", "deep", "within.member", "wide", "bits", "no.such"] { let _ = btf.member("outer", path); }
                let _ = btf.values("colour");
                let _ = btf.arguments("inner");
            }
        }

        #[test]
        fn noise_is_not_btf(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Btf::parse(&noise);
        }
    }
}
