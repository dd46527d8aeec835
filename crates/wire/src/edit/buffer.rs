//! A frame that can grow at its front, and knows its headers.

use super::{Refused, Ttl};
use crate::frame::{Ethernet, MPLS, MPLS_MULTICAST, PBB};
use crate::headers::{Field, Headers, TAG, is_vlan};
use crate::offload::Offload;
use crate::refuse_if;

/// Bytes that are free in front of a frame when it is loaded: three PBB headers and two tags.
pub const HEADROOM: usize = 64;
/// The longest frame that a push may make: what a length of 16 bits can say.
pub const LONGEST: usize = 65535;

/// The shortest frame on a real Ethernet, without FCS (IEEE 802.3 section 3.2.8).
pub const SHORTEST: usize = 60;

/// Both addresses of the Ethernet header.
const ADDRESSES: usize = 12;
/// What a PBB push puts in front: addresses, ethertype, tag.
const BACKBONE: usize = ADDRESSES + 2 + TAG;

/// A frame in a buffer with room in front, its headers, and what was left to the hardware. A push moves the bytes in
/// front of the new tag, at most a few tags; the rest stays where it is. A pop does not make a frame of 60 bytes or more
/// shorter than 60: zeros follow its end ([`SHORTEST`]). Loading the next frame reuses the memory.
///
/// ```
/// use wire::edit::FrameBuf;
/// use wire::headers::{Field, VLAN};
/// use wire::offload::Offload;
///
/// let mut frame = FrameBuf::new();
/// frame.load(&[0; 60], Offload::NONE);
/// frame.push_vlan(VLAN).unwrap();
/// frame.set(Field::VlanVid, 0x1000 | 100).unwrap();
/// assert_eq!(frame.bytes()[12..18], [0x81, 0, 0, 100, 0, 0]);
/// assert_eq!(frame.get(Field::VlanVid), Some(0x1064));
/// ```
#[derive(Debug)]
pub struct FrameBuf {
    room: Vec<u8>,
    start: usize,
    headers: Headers,
    offload: Offload,
}

impl Default for FrameBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for FrameBuf {
    fn clone(&self) -> Self {
        FrameBuf { room: self.room.clone(), ..*self }
    }

    /// Without allocating, once the memory is large enough.
    fn clone_from(&mut self, other: &Self) {
        self.room.clone_from(&other.room);
        (self.start, self.headers, self.offload) = (other.start, other.headers, other.offload);
    }
}

impl FrameBuf {
    /// An empty frame.
    pub fn new() -> FrameBuf {
        FrameBuf {
            room: vec![0; HEADROOM],
            start: HEADROOM,
            headers: Headers::default(),
            offload: Offload::NONE,
        }
    }

    /// Takes a copy of a frame and parses it.
    pub fn load(&mut self, frame: &[u8], offload: Offload) {
        self.room.resize(HEADROOM, 0);
        self.room.extend_from_slice(frame);
        self.start = HEADROOM;
        self.offload = offload;
        self.parse();
    }

    /// The frame.
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..]
    }

    /// Where its headers stand, as it is now.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// What is left to the hardware, with places as they are now.
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// The value of a field; none when the frame has no such header.
    pub fn get(&self, field: Field) -> Option<u128> {
        self.headers.get(self.bytes(), field)
    }

    /// Writes a field and mends every checksum that covers it.
    ///
    /// # Errors
    /// [`Refused`]: nothing was changed.
    pub fn set(&mut self, field: Field, value: u128) -> Result<(), Refused> {
        let partial = self.offload.partial;
        super::set(&mut self.room[self.start..], &self.headers, partial, field, value)?;
        if matches!(field, Field::EthType | Field::IpProto | Field::Icmpv6Type) {
            self.parse();
        }
        Ok(())
    }

    /// Puts a VLAN tag in front of all others, a copy of the outermost (VLAN and priority), else zero.
    ///
    /// # Errors
    /// [`Refused::Ethertype`] unless 0x8100 or 0x88a8; [`Refused::Absent`], [`Refused::TooLong`].
    pub fn push_vlan(&mut self, ethertype: u16) -> Result<(), Refused> {
        refuse_if(!is_vlan(ethertype), Refused::Ethertype)?;
        let vlan = self.get(Field::VlanVid).unwrap_or(0) & 0xfff;
        let priority = self.get(Field::VlanPcp).unwrap_or(0);
        self.push_tag(ethertype, (priority as u16) << 13 | vlan as u16)
    }

    /// Puts the ethertype and 16 bits behind the addresses.
    fn push_tag(&mut self, ethertype: u16, bits: u16) -> Result<(), Refused> {
        self.open(ADDRESSES, TAG)?;
        let at = self.start + ADDRESSES;
        self.room[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
        self.room[at + 2..at + 4].copy_from_slice(&bits.to_be_bytes());
        self.parse();
        Ok(())
    }

    /// Takes away the outermost VLAN tag.
    ///
    /// # Errors
    /// [`Refused::Absent`]: there is none.
    pub fn pop_vlan(&mut self) -> Result<(), Refused> {
        refuse_if(self.headers.tags() == 0, Refused::Absent)?;
        self.close(ADDRESSES, TAG);
        Ok(())
    }

    /// Puts an MPLS entry behind the addresses, in front of all tags. Label, traffic class and TTL are those of the
    /// outermost entry; without one the TTL is that of IP, and all else is zero. The bottom-of-stack bit is set unless an
    /// entry follows.
    ///
    /// # Errors
    /// [`Refused::Ethertype`] unless 0x8847 or 0x8848; [`Refused::Absent`], [`Refused::TooLong`].
    pub fn push_mpls(&mut self, ethertype: u16) -> Result<(), Refused> {
        refuse_if(!is_mpls(ethertype), Refused::Ethertype)?;
        let frame = self.bytes();
        let mut entry = match Ttl::outermost(&self.headers) {
            Ok(Ttl::Mpls(at)) => [frame[at], frame[at + 1], frame[at + 2] & 0xfe, frame[at + 3]],
            Ok(ip) => [0, 0, 0, frame[ip.at()]],
            Err(_) => [0; TAG],
        };
        let is_stacked = self.headers.mpls() == Some(Ethernet::LENGTH);
        entry[2] |= u8::from(!is_stacked);
        self.open(Ethernet::LENGTH, TAG)?;
        let at = self.start + Ethernet::LENGTH;
        self.room[at..at + TAG].copy_from_slice(&entry);
        self.room[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
        self.parse();
        Ok(())
    }

    /// Takes away the outermost MPLS entry; what follows is of the given ethertype, which nothing in the frame says.
    ///
    /// # Errors
    /// [`Refused::Absent`]: there is none.
    pub fn pop_mpls(&mut self, ethertype: u16) -> Result<(), Refused> {
        let entry = self.headers.mpls().ok_or(Refused::Absent)?;
        let at = self.start + entry;
        self.room[at - 2..at].copy_from_slice(&ethertype.to_be_bytes());
        self.close(entry, TAG);
        Ok(())
    }

    /// Puts a backbone Ethernet header and a service instance tag in front of the frame. The addresses are copied; the
    /// instance is that of the outermost PBB header, the priority that of the outermost VLAN tag, else zero. A backbone
    /// VLAN tag is a push of its own.
    ///
    /// # Errors
    /// [`Refused::Ethertype`] unless 0x88e7; [`Refused::Absent`], [`Refused::TooLong`].
    pub fn push_pbb(&mut self, ethertype: u16) -> Result<(), Refused> {
        refuse_if(ethertype != PBB, Refused::Ethertype)?;
        let instance = self.get(Field::PbbIsid).unwrap_or(0) as u32;
        let priority = self.get(Field::VlanPcp).unwrap_or(0) as u32;
        self.open(0, BACKBONE)?;
        let (head, rest) = self.room[self.start..].split_at_mut(BACKBONE);
        head[..ADDRESSES].copy_from_slice(&rest[..ADDRESSES]);
        head[ADDRESSES..ADDRESSES + 2].copy_from_slice(&PBB.to_be_bytes());
        head[ADDRESSES + 2..].copy_from_slice(&(priority << 29 | instance).to_be_bytes());
        self.parse();
        Ok(())
    }

    /// Takes away the outermost service instance tag and the backbone addresses: the customer's become the frame's.
    /// VLAN tags in front of it stay ("does not include removing the backbone VLAN tag").
    ///
    /// # Errors
    /// [`Refused::Absent`]: there is none, or the customer's Ethernet header is cut.
    pub fn pop_pbb(&mut self) -> Result<(), Refused> {
        let tag = self.headers.pbb().ok_or(Refused::Absent)?;
        let customer = self.start + tag + TAG;
        refuse_if(self.room.len() < customer + Ethernet::LENGTH, Refused::Absent)?;
        let mut addresses = [0; ADDRESSES];
        addresses.copy_from_slice(&self.room[customer..customer + ADDRESSES]);
        self.room[self.start..self.start + ADDRESSES].copy_from_slice(&addresses);
        self.close(tag - 2, BACKBONE);
        Ok(())
    }

    /// Sets the TTL of IPv4, or the hop limit of IPv6.
    ///
    /// # Errors
    /// [`Refused::Absent`]: not an IP frame.
    pub fn set_nw_ttl(&mut self, ttl: u8) -> Result<(), Refused> {
        Ttl::nw(&self.headers).map(|header| header.write(self.bytes_mut(), ttl))
    }

    /// Counts down the TTL of IPv4, or the hop limit of IPv6.
    ///
    /// # Errors
    /// [`Refused::Expired`] when it is 0 or 1; [`Refused::Absent`].
    pub fn dec_nw_ttl(&mut self) -> Result<(), Refused> {
        Ttl::nw(&self.headers)?.decrement(self.bytes_mut())
    }

    /// Sets the TTL of the outermost MPLS entry.
    ///
    /// # Errors
    /// [`Refused::Absent`]: not an MPLS frame.
    pub fn set_mpls_ttl(&mut self, ttl: u8) -> Result<(), Refused> {
        Ttl::mpls(&self.headers).map(|header| header.write(self.bytes_mut(), ttl))
    }

    /// Counts down the TTL of the outermost MPLS entry.
    ///
    /// # Errors
    /// [`Refused::Expired`] when it is 0 or 1; [`Refused::Absent`].
    pub fn dec_mpls_ttl(&mut self) -> Result<(), Refused> {
        Ttl::mpls(&self.headers)?.decrement(self.bytes_mut())
    }

    /// Copies the TTL from the second header with one to the outermost: MPLS to MPLS, IP to MPLS, or IP to IP.
    ///
    /// # Errors
    /// [`Refused::Absent`]: there are no two such headers.
    pub fn copy_ttl_out(&mut self) -> Result<(), Refused> {
        let (outer, inner) = Ttl::outer_and_inner(self.bytes(), &self.headers)?;
        self.copy_ttl(inner, outer);
        Ok(())
    }

    /// Copies the TTL from the outermost header with one to the second: MPLS to MPLS, MPLS to IP, or IP to IP.
    ///
    /// # Errors
    /// [`Refused::Absent`]: there are no two such headers.
    pub fn copy_ttl_in(&mut self) -> Result<(), Refused> {
        let (outer, inner) = Ttl::outer_and_inner(self.bytes(), &self.headers)?;
        self.copy_ttl(outer, inner);
        Ok(())
    }

    fn copy_ttl(&mut self, from: Ttl, to: Ttl) {
        let ttl = self.bytes()[from.at()];
        to.write(self.bytes_mut(), ttl);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..]
    }

    fn parse(&mut self) {
        self.headers = Headers::parse(&self.room[self.start..]);
    }

    /// Makes room for so many bytes at `at`: what stands in front moves. The headers are to be parsed again.
    fn open(&mut self, at: usize, count: usize) -> Result<(), Refused> {
        refuse_if(!self.headers.is_ethernet(), Refused::Absent)?;
        refuse_if(self.bytes().len() + count > LONGEST, Refused::TooLong)?;
        if self.start < count {
            // Rare: more pushes than there is room for. Once moved, there is room for many more.
            self.room.splice(0..0, [0; HEADROOM]);
            self.start += HEADROOM;
        }
        self.room.copy_within(self.start..self.start + at, self.start - count);
        self.start -= count;
        self.shift_offload(|place| place.saturating_add(count as u16));
        Ok(())
    }

    /// Takes away so many bytes at `at`, and parses what is left.
    fn close(&mut self, at: usize, count: usize) {
        let was_long = self.bytes().len() >= SHORTEST;
        self.room.copy_within(self.start..self.start + at, self.start + count);
        self.start += count;
        // Who takes a tag away has to fill the frame up again, as bridges do. Not a frame that was too short for a wire
        // already, and not one whose checksum is still to be summed up to its end.
        if was_long && self.bytes().len() < SHORTEST && self.offload.partial.is_none() {
            self.room.resize(self.start + SHORTEST, 0);
        }
        self.shift_offload(|place| place.saturating_sub(count as u16));
        self.parse();
    }

    /// What the hardware is to do stands behind all tags; no frame is so long that the places overflow.
    fn shift_offload(&mut self, shift: impl Fn(u16) -> u16) {
        if let Some(partial) = &mut self.offload.partial {
            partial.start = shift(partial.start);
        }
        if let Some(segments) = &mut self.offload.segments
            && segments.header != 0
        {
            segments.header = shift(segments.header);
        }
    }
}

fn is_mpls(ethertype: u16) -> bool {
    matches!(ethertype, MPLS | MPLS_MULTICAST)
}
