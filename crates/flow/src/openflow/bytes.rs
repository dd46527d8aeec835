//! The layouts of OpenFlow: how a table of fields becomes a reader, a writer and a line of text.
//!
//! **What.** [`Part`] is anything that a message is made of. `layout!` makes one from a list of fields in the order of the
//! standard (`_ 4;` are four bytes of padding), `tagged!` one from a list of *number => body*, `tlv!` gives such a choice the
//! usual type and length in front, `codes!` and `flags!` name the values of a number.
//!
//! **Why.** OpenFlow 1.3 and 1.4 have some 150 structures. Written once, as the standard prints them, they cannot be read one
//! way and written another, and the text of a message, the tests' random messages and the comparison with other
//! implementations come from the same lines.
//!
//! **Price.** Errors inside a macro are hard to read, and every list is a `Vec`: this is for the channel to controllers, not for
//! frames.

use super::fault::Fault;
use super::tree::Tree;
pub use super::version::Version;

/// Bytes of the header of a message.
pub const HEADER: usize = 8;
/// The longest message that the header's 16 bits of length can say.
pub const LONGEST: usize = 0xffff;

/// Bytes that are yet to be read. No length in them is trusted: every step checks what is left.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    version: Version,
    short: Fault,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes` that answers `short` when they end too early.
    pub fn new(bytes: &'a [u8], version: Version, short: impl Into<Fault>) -> Self {
        Reader { bytes, version, short: short.into() }
    }

    /// The version of the message.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The fault of too few bytes, or too many, at this place.
    pub fn short(&self) -> Fault {
        self.short
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(self.short)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Leaves out padding; its value is the sender's business.
    pub fn skip(&mut self, count: usize) -> Result<(), Fault> {
        self.take(count).map(drop)
    }

    /// A reader of the next `count` bytes, with a fault of its own.
    pub fn part(&mut self, count: usize, short: impl Into<Fault>) -> Result<Reader<'a>, Fault> {
        let short = short.into();
        let bytes = self.bytes.split_at_checked(count).ok_or(short)?;
        self.bytes = bytes.1;
        Ok(Reader { bytes: bytes.0, version: self.version, short })
    }

    /// A reader of a structure that says its own length, header included, in 16 bits at `at`.
    pub fn measured(&mut self, at: usize) -> Result<Reader<'a>, Fault> {
        let length = self.bytes.get(at..at + 2).ok_or(self.short)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < at + 2 {
            return Err(self.short);
        }
        self.part(length, self.short)
    }

    /// That nothing is left.
    pub fn end(&self) -> Result<(), Fault> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.short) }
    }

    /// The next 16 bits, not consumed.
    pub fn peek16(&self) -> Option<u16> {
        self.bytes.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
    }
}

/// A message that is being written.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    version: Version,
}

impl Writer {
    /// An empty one.
    pub fn new(version: Version) -> Self {
        Writer { out: vec![], version }
    }

    /// The version to write.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes so far.
    pub fn at(&self) -> usize {
        self.out.len()
    }

    /// More bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Padding.
    pub fn zeros(&mut self, count: usize) {
        self.out.resize(self.out.len() + count, 0);
    }

    /// Pads what began at `start` to a multiple of eight bytes.
    pub fn align(&mut self, start: usize) {
        self.zeros((self.at() - start).next_multiple_of(8) - (self.at() - start));
    }

    /// Writes the length of what began at `start` into its 16 bits at `at`. A length that does not fit is cut here and refused
    /// as a whole by the message's own check: what contains it is longer still.
    pub fn measure(&mut self, start: usize, at: usize) {
        let length = (self.at() - start) as u16;
        self.out[start + at..start + at + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Writes the length of what began at `start` into the 16 bits at `at` of the whole message.
    pub fn measure_at(&mut self, start: usize, at: usize) {
        let length = (self.at() - start) as u16;
        self.out[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// The bytes.
    pub fn done(self) -> Vec<u8> {
        self.out
    }
}

/// Nanoseconds as the standard's two numbers: seconds, and nanoseconds of the last one.
pub fn duration(ns: u64) -> (u32, u32) {
    const SECOND: u64 = 1_000_000_000;
    ((ns / SECOND).min(u64::from(u32::MAX)) as u32, (ns % SECOND) as u32)
}

/// Something that messages are made of.
pub trait Part: Sized {
    /// Reads it, strictly.
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault>;
    /// Writes it.
    fn write(&self, w: &mut Writer);
    /// Its names and values.
    fn tree(&self) -> Tree;
    /// A random one that can be written and read.
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self;
}

macro_rules! numbers {
    ($($Type:ident)*) => {$(
        impl Part for $Type {
            fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
                let bytes = r.take(size_of::<Self>())?;
                Ok($Type::from_be_bytes(bytes.try_into().map_err(|_| r.short())?))
            }
            fn write(&self, w: &mut Writer) {
                w.put(&self.to_be_bytes());
            }
            fn tree(&self) -> Tree {
                Tree::Number(u64::from(*self))
            }
            #[cfg(test)]
            fn sample(s: &mut super::sample::Sampler) -> Self {
                s.number(size_of::<Self>() * 8) as $Type
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

impl<T: Part + Copy + Default, const N: usize> Part for [T; N] {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::read(r)?;
        }
        Ok(all)
    }
    fn write(&self, w: &mut Writer) {
        self.iter().for_each(|one| one.write(w));
    }
    fn tree(&self) -> Tree {
        Tree::List(self.iter().map(Part::tree).collect())
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        std::array::from_fn(|_| T::sample(s))
    }
}

impl<T: Part> Part for Box<T> {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        T::read(r).map(Box::new)
    }
    fn write(&self, w: &mut Writer) {
        (**self).write(w);
    }
    fn tree(&self) -> Tree {
        (**self).tree()
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Box::new(T::sample(s))
    }
}

/// As many as there are until the end of what contains them.
impl<T: Part> Part for Vec<T> {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut all = vec![];
        while r.left() > 0 {
            let before = r.left();
            all.push(T::read(r)?);
            if r.left() == before {
                return Err(r.short());
            }
        }
        Ok(all)
    }
    fn write(&self, w: &mut Writer) {
        self.iter().for_each(|one| one.write(w));
    }
    fn tree(&self) -> Tree {
        Tree::List(self.iter().map(Part::tree).collect())
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        (0..s.below(4)).map(|_| T::sample(s)).collect()
    }
}

/// A number whose bits matter more than its value: written in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hex<T>(pub T);

impl<T: Part + Copy> Part for Hex<T> {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        T::read(r).map(Hex)
    }
    fn write(&self, w: &mut Writer) {
        self.0.write(w);
    }
    fn tree(&self) -> Tree {
        match self.0.tree() {
            Tree::Number(number) => Tree::Code(number, format!("{number:#x}")),
            other => other,
        }
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Hex(T::sample(s))
    }
}

/// Bytes until the end of what contains them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Bytes(pub Vec<u8>);

impl Part for Bytes {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Bytes(r.rest().to_vec()))
    }
    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn tree(&self) -> Tree {
        Tree::Bytes(self.0.clone())
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        Bytes((0..s.below(20)).map(|_| s.number(8) as u8).collect())
    }
}

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct HardwareAddress(pub [u8; 6]);

impl Part for HardwareAddress {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Part::read(r).map(HardwareAddress)
    }
    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn tree(&self) -> Tree {
        Tree::Text(self.0.map(|byte| format!("{byte:02x}")).join(":"))
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        HardwareAddress(std::array::from_fn(|_| s.number(8) as u8))
    }
}

/// Text in a fixed number of bytes, filled up with zeros. All bytes are kept, whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Name<N> {
    fn default() -> Self {
        Name([0; N])
    }
}

impl<const N: usize> Name<N> {
    /// `text`, cut to what fits with a zero after it.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let mut length = text.len().min(N.saturating_sub(1));
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Name(bytes)
    }

    /// The text up to the first zero; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

impl<const N: usize> Part for Name<N> {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let bytes = r.take(N)?;
        Ok(Name(bytes.try_into().map_err(|_| r.short())?))
    }
    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn tree(&self) -> Tree {
        Tree::Text(self.text())
    }
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self {
        let length = s.below(N as u64);
        Name::new(&(0..length).map(|_| char::from(b'a' + s.below(26) as u8)).collect::<String>())
    }
}

/// A structure as the standard prints it. `[length at N]` says where its own 16-bit length stands; those two bytes are then
/// listed as padding. `[1.3 Old]` names the layout that OpenFlow 1.3 has instead (all of those are in `older`).
macro_rules! layout {
    ($($(#[$meta:meta])* pub struct $Name:ident $text:literal $([length at $at:literal])? $([1.3 $Old:ident])? {
        $(_ $first:literal;)?
        $($(#[$about:meta])* $field:ident: $Type:ty; $(_ $pad:literal;)?)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $Name {
            $($(#[$about])* pub $field: $Type,)*
        }

        #[allow(unused_variables)]
        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                $(if r.version() == $crate::openflow::bytes::Version::V13 {
                    return <$Old as $crate::openflow::bytes::Part>::read(r).map(Into::into);
                })?
                $(let mut inner = r.measured($at)?; let r = &mut inner;)?
                $(r.skip($first)?;)?
                $(
                    let $field = <$Type as $crate::openflow::bytes::Part>::read(r)?;
                    $(r.skip($pad)?;)?
                )*
                $(let _: u16 = $at; r.end()?;)?
                Ok($Name { $($field),* })
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $(if w.version() == $crate::openflow::bytes::Version::V13 {
                    return $crate::openflow::bytes::Part::write(&$Old::from(self), w);
                })?
                $(let _: u16 = $at; let start = w.at();)?
                $(w.zeros($first);)?
                $(
                    $crate::openflow::bytes::Part::write(&self.$field, w);
                    $(w.zeros($pad);)?
                )*
                $(w.measure(start, $at);)?
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Part($text, vec![
                    $((stringify!($field), $crate::openflow::bytes::Part::tree(&self.$field)),)*
                ])
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                $(if s.version() == $crate::openflow::bytes::Version::V13 {
                    return <$Old as $crate::openflow::bytes::Part>::sample(s).into();
                })?
                $Name { $($field: $crate::openflow::bytes::Part::sample(s)),* }
            }
        }
    )*};
}

/// A choice by a number of 16 bits. Bodies are parts; `in V14` says that only this version has it.
macro_rules! tagged {
    ($(#[$meta:meta])* pub enum $Name:ident {
        $($(#[$about:meta])* $number:literal $text:literal => $Case:ident($Body:ty) $(in $only:ident)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$about])* $Case($Body),)*
        }

        impl $Name {
            /// The number on the wire.
            pub fn number(&self) -> u16 {
                match self {
                    $($Name::$Case(_) => $number,)*
                }
            }

            /// Its name in the words of the standard.
            pub fn name(&self) -> &'static str {
                match self {
                    $($Name::$Case(_) => $text,)*
                }
            }

            /// Whether this version has a case of that number.
            pub fn knows(number: u16, version: $crate::openflow::bytes::Version) -> bool {
                let _ = version;
                match number {
                    $($number => true $(&& version == $crate::openflow::bytes::Version::$only)?,)*
                    _ => false,
                }
            }

            /// Reads the body that the number chooses; `unknown` when this version has none.
            pub(crate) fn read_body(
                number: u16,
                r: &mut $crate::openflow::bytes::Reader<'_>,
                unknown: impl Into<$crate::openflow::fault::Fault>,
            ) -> Result<Self, $crate::openflow::fault::Fault> {
                match number {
                    _ if !Self::knows(number, r.version()) => Err(unknown.into()),
                    $($number => <$Body as $crate::openflow::bytes::Part>::read(r).map($Name::$Case),)*
                    _ => Err(unknown.into()),
                }
            }

            /// Writes the body alone.
            pub(crate) fn write_body(&self, w: &mut $crate::openflow::bytes::Writer) {
                match self {
                    $($Name::$Case(body) => $crate::openflow::bytes::Part::write(body, w),)*
                }
            }

            /// Names and values under the name of the case.
            pub(crate) fn body_tree(&self) -> $crate::openflow::tree::Tree {
                match self {
                    $($Name::$Case(body) => $crate::openflow::bytes::Part::tree(body).named($text),)*
                }
            }

            /// A random case that the version has.
            #[cfg(test)]
            pub(crate) fn sample_body(s: &mut $crate::openflow::sample::Sampler) -> Self {
                let numbers: Vec<u16> =
                    [$($number),*].into_iter().filter(|number| Self::knows(*number, s.version())).collect();
                let number = numbers[s.below(numbers.len() as u64) as usize];
                match number {
                    $($number => $Name::$Case($crate::openflow::bytes::Part::sample(s)),)*
                    _ => unreachable!("a number of the table"),
                }
            }
        }
    };
}

/// Makes a part of a choice: type, length, body. `inside`: the length counts the padding and is a multiple of eight (actions,
/// instructions, bands); `outside`: it does not, and padding follows (properties, hello elements). `Absent`: there
/// is none (1.3's queues).
macro_rules! tlv {
    ($Name:ident, $bad:expr, $padding:ident) => {
        impl $crate::openflow::bytes::Part for $Name {
            fn read(
                r: &mut $crate::openflow::bytes::Reader<'_>,
            ) -> Result<Self, $crate::openflow::fault::Fault> {
                let bad: $crate::openflow::fault::Bad = $bad(r.version());
                let (number, mut body) = r.tlv(bad.length, $crate::openflow::bytes::Padding::$padding)?;
                let part = $Name::read_body(number, &mut body, bad.kind)?;
                body.end()?;
                Ok(part)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                let start = w.at();
                w.put(&self.number().to_be_bytes());
                w.zeros(2);
                self.write_body(w);
                if matches!(
                    $crate::openflow::bytes::Padding::$padding,
                    $crate::openflow::bytes::Padding::Inside
                ) {
                    w.align(start);
                }
                w.measure(start, 2);
                if !matches!(
                    $crate::openflow::bytes::Padding::$padding,
                    $crate::openflow::bytes::Padding::Absent
                ) {
                    w.align(start);
                }
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                self.body_tree()
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                let mut part = Self::sample_body(s);
                // An experimenter's bytes in it end where the padding ends.
                if matches!(
                    $crate::openflow::bytes::Padding::$padding,
                    $crate::openflow::bytes::Padding::Inside
                ) {
                    let mut w = $crate::openflow::bytes::Writer::new(s.version());
                    part.write(&mut w);
                    let bytes = w.done();
                    let short = $crate::error::BadRequest::BadLen;
                    part = Self::read(&mut $crate::openflow::bytes::Reader::new(&bytes, s.version(), short))
                        .unwrap();
                }
                part
            }
        }
    };
}

/// Where the padding of a type-length-value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Counted by its length.
    Inside,
    /// After it.
    Outside,
    /// Nowhere: the next one follows at once.
    Absent,
}

impl<'a> Reader<'a> {
    /// The type of the next type-length-value and a reader of its body.
    pub fn tlv(&mut self, bad: impl Into<Fault>, padding: Padding) -> Result<(u16, Reader<'a>), Fault> {
        let bad = bad.into();
        let number = self.peek16().ok_or(bad)?;
        let mut whole = self.clone();
        whole.short = bad;
        let length = whole.left();
        let mut body = whole.measured(2)?;
        let length = length - whole.left();
        body.skip(4)?;
        let more = match padding {
            Padding::Inside if !length.is_multiple_of(8) => return Err(bad),
            Padding::Inside | Padding::Absent => 0,
            Padding::Outside => length.next_multiple_of(8) - length,
        };
        whole.skip(more)?;
        self.bytes = whole.bytes;
        Ok((number, body))
    }
}

/// A number with names for some of its values. Others are kept as they are.
macro_rules! codes {
    ($($(#[$meta:meta])* pub $Name:ident($Number:ty) { $($CONST:ident = $value:literal $text:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $Name(pub $Number);

        impl $Name {
            $(#[doc = concat!("`", $text, "`.")] pub const $CONST: $Name = $Name($value);)*

            /// The name, if the value has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                <$Number as $crate::openflow::bytes::Part>::read(r).map($Name)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $crate::openflow::bytes::Part::write(&self.0, w);
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Code(u64::from(self.0), self.to_string())
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                let known = [$($value),*];
                match s.below(known.len() as u64 + 1) as usize {
                    index if index < known.len() => $Name(known[index]),
                    _ => $Name($crate::openflow::bytes::Part::sample(s)),
                }
            }
        }
    )*};
}

/// A set of bits with names for some of them. Others are kept as they are.
macro_rules! flags {
    ($($(#[$meta:meta])* pub $Name:ident($Number:ty) {
        $($(#[$about:meta])* $CONST:ident = $value:literal $text:literal),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $Name(pub $Number);

        impl $Name {
            $(#[doc = concat!("`", $text, "`.")] $(#[$about])* pub const $CONST: $Name = $Name($value);)*

            /// Every bit that the standard names.
            pub const ALL: $Name = $Name(0 $(| $value)*);

            /// Whether all bits of `other` are set.
            pub const fn has(self, other: $Name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Both sets together.
            pub const fn with(self, other: $Name) -> $Name {
                $Name(self.0 | other.0)
            }

            /// These flags; none when there is a bit that the standard does not have.
            pub fn known(self) -> Option<$Name> {
                $Name::ALL.has(self).then_some(self)
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut names: Vec<String> = vec![];
                $(if self.0 & $value != 0 { names.push($text.to_owned()); })*
                let rest = self.0 & !Self::ALL.0;
                if rest != 0 || names.is_empty() {
                    names.push(if rest == 0 { "0".to_owned() } else { format!("{rest:#x}") });
                }
                f.write_str(&names.join("|"))
            }
        }

        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                <$Number as $crate::openflow::bytes::Part>::read(r).map($Name)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $crate::openflow::bytes::Part::write(&self.0, w);
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Code(u64::from(self.0), self.to_string())
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                $Name($crate::openflow::bytes::Part::sample(s))
            }
        }
    )*};
}

pub(crate) use {codes, flags, layout, tagged, tlv};
