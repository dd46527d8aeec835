//! Files for the tests: the formats written once more, slowly, in both byte orders and with everything that the writer of
//! the project does not make.

/// A file under construction.
pub(crate) struct Build {
    pub bytes: Vec<u8>,
    pub big: bool,
}

impl Build {
    pub(crate) fn new(big: bool) -> Self {
        Build { bytes: vec![], big }
    }

    pub(crate) fn n16(&self, number: u16) -> Vec<u8> {
        if self.big { number.to_be_bytes().into() } else { number.to_le_bytes().into() }
    }

    pub(crate) fn n32(&self, number: u32) -> Vec<u8> {
        if self.big { number.to_be_bytes().into() } else { number.to_le_bytes().into() }
    }

    pub(crate) fn n64(&self, number: u64) -> Vec<u8> {
        if self.big { number.to_be_bytes().into() } else { number.to_le_bytes().into() }
    }

    /// A time of pcapng: high half, low half.
    pub(crate) fn time(&self, ticks: u64) -> Vec<u8> {
        [self.n32((ticks >> 32) as u32), self.n32(ticks as u32)].concat()
    }

    pub(crate) fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.n16(code), self.n16(value.len() as u16), value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    pub(crate) fn block(&mut self, kind: u32, parts: &[Vec<u8>]) {
        let mut body = parts.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.n32(body.len() as u32 + 12);
        self.bytes.extend([self.n32(kind), length.clone(), body, length].concat());
    }

    /// A section header block.
    pub(crate) fn section(&mut self) {
        let fields = [self.n32(0x1a2b_3c4d), self.n16(1), self.n16(0), self.n64(u64::MAX)];
        self.block(0x0a0d_0d0a, &fields);
    }

    /// An interface description block with the options given (and their end, when there are any).
    pub(crate) fn interface(&mut self, link: u16, snap: u32, options: &[Vec<u8>]) {
        let mut fields = vec![self.n16(link), self.n16(0), self.n32(snap)];
        fields.extend_from_slice(options);
        if !options.is_empty() {
            fields.push(self.n32(0));
        }
        self.block(1, &fields);
    }

    /// An enhanced packet block.
    pub(crate) fn enhanced(
        &mut self,
        interface: u32,
        ticks: u64,
        bytes: &[u8],
        wire: u32,
        options: &[Vec<u8>],
    ) {
        let mut data = bytes.to_vec();
        data.resize(data.len().next_multiple_of(4), 0);
        let captured = self.n32(bytes.len() as u32);
        let mut fields = vec![self.n32(interface), self.time(ticks), captured, self.n32(wire), data];
        fields.extend_from_slice(options);
        self.block(6, &fields);
    }

    /// The header of a pcap file.
    pub(crate) fn pcap(&mut self, magic: u32, version: (u16, u16), snap: u32, network: u32) {
        let fields = [
            self.n32(magic),
            self.n16(version.0),
            self.n16(version.1),
            self.n64(0),
            self.n32(snap),
            self.n32(network),
        ];
        self.bytes.extend(fields.concat());
    }

    /// A record of a pcap file: two words of time, two lengths, whatever the variant has more, the bytes.
    pub(crate) fn record(&mut self, words: [u32; 4], more: &[u8], bytes: &[u8]) {
        let fields: Vec<u8> = words.iter().flat_map(|word| self.n32(*word)).collect();
        self.bytes.extend([&fields, more, bytes].concat());
    }
}
