//! A way for frames: a transmitter, a receiver, and what is between them.

use super::stage::{Space, join, may_run};
use linux::port::{
    Frames, Hand, MAX_BATCH, Meta, Port, PortError, PortOptions, Receiver, Transmitter, Wait, open,
};
use record::PortSetting;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What is between both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Memory of this process.
    Memory,
    /// A file: written, closed, read.
    File,
    /// A veth pair between two namespaces, a port of the kind at each end.
    Veth,
    /// A tap; an `int:` on the same interface sends.
    TapReceives,
    /// A tap; an `int:` on the same interface receives.
    TapSends,
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub medium: Medium,
    pub uri: &'static str,
}

impl Kind {
    pub const fn of(medium: Medium, uri: &'static str) -> Kind {
        Kind { medium, uri }
    }

    pub fn has_interface(&self) -> bool {
        !matches!(self.medium, Medium::Memory | Medium::File)
    }

    /// The rigs to test: with offloads on and off where there are any. Empty when this user may not.
    pub fn rigs(&self, wish: &PortOptions) -> Vec<Rig> {
        if !self.has_interface() {
            return vec![Rig::new(self, wish, true)];
        }
        if !may_run(self.uri) {
            return vec![];
        }
        match self.medium {
            Medium::Veth => vec![Rig::new(self, wish, true), Rig::new(self, wish, false)],
            _ => vec![Rig::new(self, wish, true)],
        }
    }
}

/// A frame that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Came {
    pub bytes: Vec<u8>,
    pub wire_length: u32,
}

pub struct Rig {
    /// For messages.
    pub name: String,
    pub tx: Option<Box<dyn Transmitter>>,
    pub rx: Option<Box<dyn Receiver>>,
    /// Of the receiver.
    pub settings: Vec<PortSetting>,
    /// Halves of ports that are not used, but keep the interface alive.
    rest: Vec<Port>,
    /// Where both interfaces are, and what they are called.
    pub places: Vec<(Space, &'static str)>,
    wish: PortOptions,
    uri: String,
    medium: Medium,
    /// The folder of a file.
    _folder: Option<tempfile::TempDir>,
}

impl Rig {
    fn new(kind: &Kind, wish: &PortOptions, on: bool) -> Rig {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = (kind.medium == Medium::File).then(|| tempfile::tempdir().unwrap());
        let name = match &folder {
            Some(folder) => folder.path().join("frames").display().to_string(),
            None => format!("conformance-{number}"),
        };
        let places = match kind.medium {
            Medium::Memory | Medium::File => vec![],
            Medium::Veth => {
                let (a, b) = (Space::new(), Space::new());
                join((&a, "a0"), (&b, "b0"), on);
                vec![(a, "a0"), (b, "b0")]
            }
            Medium::TapReceives | Medium::TapSends => vec![(Space::new(), "tap0")],
        };
        let mut rig = Rig {
            name: format!("{} (offloads {})", kind.uri, if on { "on" } else { "off" }),
            tx: None,
            rx: None,
            settings: vec![],
            rest: vec![],
            places,
            wish: wish.clone(),
            uri: kind.uri.replace("NAME", &name),
            medium: kind.medium,
            _folder: folder,
        };
        rig.open();
        rig
    }

    /// Opens both ends (of a file, the one that writes).
    pub fn open(&mut self) {
        let at = |i: usize| self.uri.replace("IF", self.places[i].1);
        let plain = PortOptions::default();
        let (sender, receiver) = match self.medium {
            Medium::Memory => (open(&self.uri, &plain).unwrap(), Some(open(&self.uri, &self.wish).unwrap())),
            Medium::File => {
                let wish = PortOptions { direction: linux::port::Direction::Transmit, ..plain };
                (open(&self.uri, &wish).unwrap_or_else(|p| panic!("{p}")), None)
            }
            Medium::Veth => {
                let receiver = self.places[1].0.open(&at(1), &self.wish);
                (self.places[0].0.open(&at(0), &plain), Some(receiver))
            }
            Medium::TapReceives => {
                let receiver = self.places[0].0.open(&at(0), &self.wish);
                (self.places[0].0.open("int:tap0", &plain), Some(receiver))
            }
            Medium::TapSends => {
                let sender = self.places[0].0.open(&at(0), &plain);
                let receiver = self.places[0].0.open("int:tap0", &self.wish);
                (sender, Some(receiver))
            }
        };
        let (mut sender, mut receiver) = (sender, receiver);
        self.tx = sender.transmitter.take();
        if let Some(port) = &mut receiver {
            (self.rx, self.settings) = (port.receiver.take(), std::mem::take(&mut port.settings));
        }
        self.rest = vec![sender];
        self.rest.extend(receiver);
    }

    /// Waits until frames cross. A tap has a link while somebody reads it; until the kernel has noticed that, it drops what is sent and says that all is well.
    pub fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut probe = Frames::new(1, 64);
        assert!(probe.push(&frame(0, 60), Meta::default()));
        let mut came = vec![];
        while came.is_empty() {
            assert!(Instant::now() < deadline, "{}: its link does not come up", self.name);
            self.tx().transmit(&mut probe.batch(), &[0], Hand::Over).unwrap();
            self.tx().flush(Duration::from_millis(1)).unwrap();
            self.take(&mut came, Wait::For(Duration::from_millis(5)));
        }
        self.take(&mut came, Wait::For(Duration::from_millis(20)));
    }

    /// Closes both ends.
    pub fn close(&mut self) {
        (self.tx, self.rx) = (None, None);
        self.rest.clear();
    }

    pub fn tx(&mut self) -> &mut dyn Transmitter {
        self.tx.as_mut().unwrap().as_mut()
    }

    pub fn rx(&mut self) -> &mut dyn Receiver {
        self.rx.as_mut().unwrap().as_mut()
    }

    /// Offers the frames until all are dealt with, taking meanwhile what comes; then takes the rest. `batch` frames at a
    /// time.
    pub fn exchange(&mut self, frames: &[Vec<u8>], batch: usize) -> Vec<Came> {
        let mut came = vec![];
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut refused = 0;
        for group in frames.chunks(batch) {
            let longest = group.iter().map(Vec::len).max().unwrap_or(0);
            let mut memory = Frames::new(group.len(), longest);
            for frame in group {
                assert!(memory.push(frame, Meta::default()));
            }
            let mut lent = memory.batch();
            let which = lent.all();
            let mut next = 0;
            while next < which.len() {
                assert!(Instant::now() < deadline, "{}: it stays full", self.name);
                let sent = self.tx().transmit(&mut lent, &which[next..], Hand::Over).unwrap();
                (next, refused) = (next + sent.dealt, refused + sent.refused);
                if sent.dealt == 0 {
                    self.tx().flush(Duration::from_millis(1)).unwrap();
                }
                self.take(&mut came, Wait::Poll);
            }
        }
        while self.tx().flush(Duration::from_millis(100)).unwrap() > 0 {
            assert!(Instant::now() < deadline, "{}: frames never leave", self.name);
            self.take(&mut came, Wait::Poll);
        }
        if self.medium == Medium::File {
            (self.tx, self.rest) = (None, vec![]);
            let wish = PortOptions { direction: linux::port::Direction::Receive, ..self.wish.clone() };
            let port = open(&self.uri, &wish).unwrap_or_else(|p| panic!("{p}"));
            (self.rx, self.settings) = (port.receiver, port.settings);
        }
        let wanted = frames.len() - refused;
        while came.len() < wanted
            && Instant::now() < deadline
            && self.take(&mut came, Wait::For(Duration::from_millis(200)))
        {}
        // Nothing else may come.
        self.take(&mut came, Wait::For(Duration::from_millis(20)));
        came
    }

    /// Takes what is there; false when nothing will come any more.
    pub fn take(&mut self, came: &mut Vec<Came>, wait: Wait) -> bool {
        let Some(rx) = &mut self.rx else { return true };
        loop {
            match rx.receive(MAX_BATCH, wait) {
                Ok(batch) if batch.is_empty() => return true,
                Ok(batch) => came.extend((0..batch.len()).map(|i| Came {
                    bytes: batch.bytes(i).to_vec(),
                    wire_length: batch.meta(i).wire_length,
                })),
                Err(PortError::Ended) => return false,
                // Said once; a veth may flap while an XDP program is attached.
                Err(PortError::Down) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }
}

/// A frame of the ethertype for local experiments (IEEE 802, 0x88b5), its content told by its number.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    bytes.extend(number.to_be_bytes());
    bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length.saturating_sub(bytes.len())));
    bytes.truncate(length);
    bytes
}
