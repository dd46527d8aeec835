//! The layouts of OpenFlow: how a table of fields becomes a reader, a writer and a line of text.
//!
//! **What.** [`Part`] is anything that a message is made of. `layout!` makes one from a list of fields in the order of the
//! standard (`_ 4;` are four bytes of padding), `tagged!` one from a list of *number => body*, `tlv!` gives such a choice the
//! usual type and length in front, `codes!` names the values of a number.
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
use crate::error::{BadProperty, BadRequest};
use wire::refuse_if;

/// Bytes of the header of a message.
pub const HEADER: usize = 8;
/// The longest message that the header's 16 bits of length can say.
pub const LONGEST: usize = 0xffff;

/// What does not fit into a message: its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong(pub usize);

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a message of {} bytes; OpenFlow's length field ends at {LONGEST}", self.0)
    }
}

impl std::error::Error for TooLong {}

/// Bytes that are read from the beginning on. No length in them is trusted: every step checks what is left.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The version of the message.
    pub version: Version,
    /// The fault of too few bytes, or too many, at this place.
    pub short: Fault,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes` that answers `short` when they end too early.
    pub fn new(bytes: &'a [u8], version: Version, short: impl Into<Fault>) -> Self {
        Reader { bytes, at: 0, version, short: short.into() }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let taken = self.bytes[self.at..].get(..count).ok_or(self.short)?;
        self.at += count;
        Ok(taken)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Leaves out padding; its value is the sender's business.
    pub fn skip(&mut self, count: usize) -> Result<(), Fault> {
        self.take(count).map(drop)
    }

    /// Leaves out padding to a multiple of eight bytes since the beginning.
    pub fn align(&mut self) -> Result<(), Fault> {
        self.skip(self.at.next_multiple_of(8) - self.at)
    }

    /// A reader of the next `count` bytes, with a fault of its own.
    pub fn part(&mut self, count: usize, short: impl Into<Fault>) -> Result<Reader<'a>, Fault> {
        let short = short.into();
        let bytes = self.take(count).map_err(|_| short)?;
        Ok(Reader::new(bytes, self.version, short))
    }

    /// A reader of a structure that says its own length, header included, in 16 bits at `at`.
    pub fn measured(&mut self, at: usize) -> Result<Reader<'a>, Fault> {
        let length = usize::from(self.number_at(self.at + at).ok_or(self.short)?);
        refuse_if(length < at + 2, self.short)?;
        self.part(length, self.short)
    }

    /// That nothing is left.
    pub fn end(&self) -> Result<(), Fault> {
        if self.left() == 0 { Ok(()) } else { Err(self.short) }
    }

    /// The next 16 bits, not consumed.
    pub fn peek16(&self) -> Option<u16> {
        self.number_at(self.at)
    }

    /// The 16 bits that begin so many bytes before this place: a length that was left out.
    pub fn behind16(&self, distance: usize) -> Result<u16, Fault> {
        self.at.checked_sub(distance).and_then(|at| self.number_at(at)).ok_or(self.short)
    }

    fn number_at(&self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
    }
}

/// A message that is being written.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    /// The version to write.
    pub version: Version,
}

impl Writer {
    /// An empty one.
    pub fn new(version: Version) -> Self {
        Writer { out: vec![], version }
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
        self.measure_at(start, start + at);
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
    /// Its bytes, cut where a multipart answer may be cut: a list between its items, anything else nowhere.
    fn pieces(&self, version: Version) -> Vec<Vec<u8>> {
        let mut w = Writer::new(version);
        self.write(&mut w);
        vec![w.done()]
    }
    /// Puts the next part of a multipart message to this one and gives how long it is now: to a list, to bytes, and to a structure
    /// with the same fields before them. `None` for what has one part only.
    fn continue_with(&mut self, _more: Self) -> Option<usize> {
        None
    }
    /// A random one that can be written and read.
    #[cfg(test)]
    fn sample(s: &mut super::sample::Sampler) -> Self;
}

macro_rules! numbers {
    ($($Type:ident)*) => {$(
        impl Part for $Type {
            fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
                let bytes = r.take(size_of::<Self>())?;
                Ok($Type::from_be_bytes(bytes.try_into().map_err(|_| r.short)?))
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
            refuse_if(r.left() == before, r.short)?;
        }
        Ok(all)
    }
    fn write(&self, w: &mut Writer) {
        self.iter().for_each(|one| one.write(w));
    }
    fn tree(&self) -> Tree {
        Tree::List(self.iter().map(Part::tree).collect())
    }
    fn pieces(&self, version: Version) -> Vec<Vec<u8>> {
        self.iter().flat_map(|one| one.pieces(version)).collect()
    }
    fn continue_with(&mut self, more: Self) -> Option<usize> {
        self.extend(more);
        Some(self.len())
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
    fn continue_with(&mut self, more: Self) -> Option<usize> {
        self.0.extend(more.0);
        Some(self.0.len())
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
        Ok(Name(bytes.try_into().map_err(|_| r.short)?))
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

/// Another way to read, and maybe to write, a field than its type's.
pub trait FieldForm<T: Part> {
    /// Reads it.
    fn read(&self, r: &mut Reader<'_>) -> Result<T, Fault>;
    /// Writes it.
    fn write(&self, value: &T, w: &mut Writer) {
        value.write(w);
    }
    /// A random value that can be written and read.
    #[cfg(test)]
    fn sample(&self, s: &mut super::sample::Sampler) -> T {
        T::sample(s)
    }
}

/// A field as its type reads and writes it, or in another form.
macro_rules! field {
    (read $r:ident) => {
        $crate::openflow::bytes::Part::read($r)?
    };
    (read $r:ident $form:expr) => {
        $crate::openflow::bytes::FieldForm::read(&$form, $r)?
    };
    (write $value:expr, $w:ident) => {
        $crate::openflow::bytes::Part::write(&$value, $w)
    };
    (write $value:expr, $w:ident $form:expr) => {
        $crate::openflow::bytes::FieldForm::write(&$form, &$value, $w)
    };
    (sample $s:ident) => {
        $crate::openflow::bytes::Part::sample($s)
    };
    (sample $s:ident $form:expr) => {
        $crate::openflow::bytes::FieldForm::sample(&$form, $s)
    };
}

/// Bytes of padding that only some versions have; all, when none is named.
pub(crate) fn padding(count: usize, version: Version, only: &[Version]) -> usize {
    if only.is_empty() || only.contains(&version) { count } else { 0 }
}

/// A structure as the standard prints it. `[length at N]` says where its own 16-bit length stands; those two bytes are then
/// listed as padding, which may be `in` one version only. `as` gives a field another [`FieldForm`] than its type's. Where OpenFlow 1.3 has
/// other fields or another order, `in 1.3` lists them; those that are not listed are what they are by default.
macro_rules! layout {
    ($($(#[$meta:meta])* pub struct $Name:ident $text:literal $([length at $at:literal])? {
        $(_ $first:literal $(in $first_only:ident)?;)?
        $($(#[$about:meta])* $field:ident: $Type:ty $(as $form:expr)?; $(_ $pad:literal $(in $only:ident)?;)*)*
    } $(in 1.3 $([length at $old_at:literal])? {
        $(_ $old_first:literal;)?
        $($old:ident $(as $old_form:expr)?; $(_ $old_pad:literal;)*)*
    })?)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $Name {
            $($(#[$about])* pub $field: $Type,)*
        }

        #[allow(unused, reason = "some structures have no fields and no padding")]
        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                use $crate::openflow::bytes::{Version, field, padding};
                let version = r.version;
                $(if version == Version::V13 {
                    let mut part = $Name::default();
                    $(let mut inner = r.measured($old_at)?; let r = &mut inner;)?
                    $(r.skip($old_first)?;)?
                    $(
                        part.$old = field!(read r $($old_form)?);
                        $(r.skip($old_pad)?;)*
                    )*
                    $(let _: u16 = $old_at; r.end()?;)?
                    return Ok(part);
                })?
                $(let mut inner = r.measured($at)?; let r = &mut inner;)?
                $(r.skip(padding($first, version, &[$(Version::$first_only)?]))?;)?
                $(
                    let $field: $Type = field!(read r $($form)?);
                    $(r.skip(padding($pad, version, &[$(Version::$only)?]))?;)*
                )*
                $(let _: u16 = $at; r.end()?;)?
                Ok($Name { $($field),* })
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                use $crate::openflow::bytes::{Version, field, padding};
                let (version, start) = (w.version, w.at());
                $(if version == Version::V13 {
                    $(w.zeros($old_first);)?
                    $(
                        field!(write self.$old, w $($old_form)?);
                        $(w.zeros($old_pad);)*
                    )*
                    $(w.measure(start, $old_at);)?
                    return;
                })?
                $(w.zeros(padding($first, version, &[$(Version::$first_only)?]));)?
                $(
                    field!(write self.$field, w $($form)?);
                    $(w.zeros(padding($pad, version, &[$(Version::$only)?]));)*
                )*
                $(w.measure(start, $at);)?
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Part($text, vec![
                    $((stringify!($field), $crate::openflow::bytes::Part::tree(&self.$field)),)*
                ])
            }
            fn continue_with(&mut self, more: Self) -> Option<usize> {
                let mut length = None;
                $(
                    let is_same = self.$field == more.$field;
                    match $crate::openflow::bytes::Part::continue_with(&mut self.$field, more.$field) {
                        None if !is_same => return None,
                        longer => length = longer.or(length),
                    }
                )*
                length
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                use $crate::openflow::bytes::field;
                $(if s.version() == $crate::openflow::bytes::Version::V13 {
                    let mut part = $Name::default();
                    $(part.$old = field!(sample s $($old_form)?);)*
                    return part;
                })?
                $Name { $($field: field!(sample s $($form)?)),* }
            }
        }
    )*};
}

/// A choice by a number of 16 bits: what `tagged!` makes.
pub trait Tagged: Sized {
    /// The number on the wire.
    fn number(&self) -> u16;
    /// Its name in the words of the standard.
    fn name(&self) -> &'static str;
    /// Whether this version has a case of that number.
    fn knows(number: u16, version: Version) -> bool;
    /// Reads the body that the number chooses; `unknown` when this version has none.
    fn read_body(number: u16, r: &mut Reader<'_>, unknown: impl Into<Fault>) -> Result<Self, Fault>;
    /// Writes the body alone.
    fn write_body(&self, w: &mut Writer);
    /// Names and values under the name of the case.
    fn body_tree(&self) -> Tree;
    /// The pieces of the body, as [`Part::pieces`] gives them.
    fn body_pieces(&self, version: Version) -> Vec<Vec<u8>>;
    /// As [`Part::continue_with`]; `None` when the cases differ, too.
    fn continue_body(&mut self, more: Self) -> Option<usize>;
    /// A random case of this number.
    #[cfg(test)]
    fn sample_of(number: u16, s: &mut super::sample::Sampler) -> Self;
    /// A random case that the version has.
    #[cfg(test)]
    fn sample_body(s: &mut super::sample::Sampler) -> Self;
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

        impl $crate::openflow::bytes::Tagged for $Name {
            fn number(&self) -> u16 {
                match self {
                    $($Name::$Case(_) => $number,)*
                }
            }
            fn name(&self) -> &'static str {
                match self {
                    $($Name::$Case(_) => $text,)*
                }
            }
            fn knows(number: u16, _version: $crate::openflow::bytes::Version) -> bool {
                match number {
                    $($number => true $(&& _version == $crate::openflow::bytes::Version::$only)?,)*
                    _ => false,
                }
            }
            fn read_body(
                number: u16,
                r: &mut $crate::openflow::bytes::Reader<'_>,
                unknown: impl Into<$crate::openflow::fault::Fault>,
            ) -> Result<Self, $crate::openflow::fault::Fault> {
                match number {
                    _ if !Self::knows(number, r.version) => Err(unknown.into()),
                    $($number => <$Body as $crate::openflow::bytes::Part>::read(r).map($Name::$Case),)*
                    _ => Err(unknown.into()),
                }
            }
            fn write_body(&self, w: &mut $crate::openflow::bytes::Writer) {
                match self {
                    $($Name::$Case(body) => $crate::openflow::bytes::Part::write(body, w),)*
                }
            }
            fn body_tree(&self) -> $crate::openflow::tree::Tree {
                match self {
                    $($Name::$Case(body) => $crate::openflow::bytes::Part::tree(body).named($text),)*
                }
            }
            fn body_pieces(&self, version: $crate::openflow::bytes::Version) -> Vec<Vec<u8>> {
                match self {
                    $($Name::$Case(body) => $crate::openflow::bytes::Part::pieces(body, version),)*
                }
            }
            fn continue_body(&mut self, more: Self) -> Option<usize> {
                match (self, more) {
                    $(($Name::$Case(body), $Name::$Case(more)) => {
                        $crate::openflow::bytes::Part::continue_with(body, more)
                    })*
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }
            #[cfg(test)]
            fn sample_of(number: u16, s: &mut $crate::openflow::sample::Sampler) -> Self {
                match number {
                    $($number => $Name::$Case($crate::openflow::bytes::Part::sample(s)),)*
                    _ => unreachable!("a number of the table"),
                }
            }
            #[cfg(test)]
            fn sample_body(s: &mut $crate::openflow::sample::Sampler) -> Self {
                let numbers: Vec<u16> =
                    [$($number),*].into_iter().filter(|number| Self::knows(*number, s.version())).collect();
                Self::sample_of(numbers[s.below(numbers.len() as u64) as usize], s)
            }
        }
    };
}

/// Where the padding of a type-length-value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Counted by its length, which is a multiple of eight (actions, instructions, bands).
    Inside,
    /// After it, not counted (properties, hello elements).
    Outside,
    /// Nowhere: the next one follows at once (1.3's queues).
    Absent,
}

/// How a kind of type-length-value is padded, and the faults that it can have.
#[derive(Debug, Clone, Copy)]
pub struct Tlv {
    /// Where its padding stands.
    pub padding: Padding,
    /// Its type is not known.
    pub unknown: Fault,
    /// Its length cannot be.
    pub length: Fault,
}

impl Tlv {
    /// Those of OpenFlow.
    pub fn new(padding: Padding, unknown: impl Into<Fault>, length: impl Into<Fault>) -> Tlv {
        Tlv { padding, unknown: unknown.into(), length: length.into() }
    }

    /// Properties. OpenFlow 1.3 has them in hello, queues and table features only, and no error type of their own.
    pub fn property(version: Version) -> Tlv {
        match version {
            Version::V13 => Tlv::new(Padding::Outside, BadRequest::BadType, BadRequest::BadLen),
            Version::V14 => Tlv::new(Padding::Outside, BadProperty::BadType, BadProperty::BadLen),
        }
    }

    /// The number of the next one and a reader of its body.
    pub fn open<'a>(&self, r: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Fault> {
        let number = r.peek16().ok_or(self.length)?;
        let mut whole = Reader { short: self.length, ..r.clone() };
        let mut body = whole.measured(2)?;
        let length = body.left();
        body.skip(4)?;
        match self.padding {
            Padding::Inside if !length.is_multiple_of(8) => return Err(self.length),
            Padding::Inside | Padding::Absent => {}
            Padding::Outside => whole.skip(length.next_multiple_of(8) - length)?,
        }
        r.at = whole.at;
        Ok((number, body))
    }

    /// Reads one.
    pub fn read<T: Tagged>(&self, r: &mut Reader<'_>) -> Result<T, Fault> {
        let (number, mut body) = self.open(r)?;
        let part = T::read_body(number, &mut body, self.unknown)?;
        body.end()?;
        Ok(part)
    }

    /// Writes one of this number with what `body` writes.
    pub fn write(&self, number: u16, w: &mut Writer, body: impl FnOnce(&mut Writer)) {
        let start = w.at();
        number.write(w);
        w.zeros(2);
        body(w);
        if self.padding == Padding::Inside {
            w.align(start);
        }
        w.measure(start, 2);
        if self.padding == Padding::Outside {
            w.align(start);
        }
    }
}

/// Makes a part of a choice: type, length, body, with the [`Tlv`] of a version.
macro_rules! tlv {
    ($Name:ident, $tlv:expr) => {
        impl $crate::openflow::bytes::Part for $Name {
            fn read(
                r: &mut $crate::openflow::bytes::Reader<'_>,
            ) -> Result<Self, $crate::openflow::fault::Fault> {
                $tlv(r.version).read(r)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $tlv(w.version).write(self.number(), w, |w| self.write_body(w));
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                self.body_tree()
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                // An experimenter's bytes end where the padding inside ends.
                let mut w = $crate::openflow::bytes::Writer::new(s.version());
                Self::sample_body(s).write(&mut w);
                let bytes = w.done();
                let short = $crate::error::BadRequest::BadLen;
                Self::read(&mut $crate::openflow::bytes::Reader::new(&bytes, s.version(), short)).unwrap()
            }
        }
    };
}

pub(crate) use super::names::{codes, flag_sets};
pub(crate) use {field, layout, tagged, tlv};
