//! Shadow mode: some frames go through the interpreter, too, and the program has to say the same.
//!
//! **What.** [`Shadow`] chooses frames of a batch. The interpreter decides about these; the program decides about a copy, counts nothing, and
//! is compared. A [`Divergence`] has the frame, the rules of that moment and what both said.
//!
//! **Why.** A mistake of the compiler would be silent: frames go where no rule sends them. Here it is found while it happens, kept as a case
//! that can be played again, and ended: from then on the interpreter carries all rules out.
//!
//! **Price.** A frame that is chosen costs both engines. Unless it is said which part of the frames is chosen, that is at most one in a hundred
//! of a port's time.

use flow::Pipeline;
use flow::interpret::{OutputFrame, Verdict};
use flow::port::PortNo;
use flow::text::{group, hex, meter, rule};
use linux::sys::clock;
use record::{Problem, Result, unit};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One of so many frames, when nothing is said.
const USUAL: u32 = 1000;
/// The time of a shadowed frame, times this, passes before the next one.
const TIMES: u64 = 100;

/// Which frames are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShadowRate {
    /// One of a thousand, as long as that takes no more than one in a hundred of a port's time.
    #[default]
    Auto,
    /// One of so many.
    OneOf(u32),
    /// None.
    Off,
}

impl ShadowRate {
    /// Reads `auto`, `off`, or a number of frames.
    ///
    /// # Errors
    /// Input: anything else.
    pub fn parse(text: &str) -> Result<ShadowRate> {
        match text {
            "auto" => Ok(ShadowRate::Auto),
            "off" => Ok(ShadowRate::Off),
            number => match unit::amount(number).ok().and_then(|number| u32::try_from(number).ok()) {
                Some(number @ 1..) => Ok(ShadowRate::OneOf(number)),
                _ => Err(Problem::input(format!("'{text}' is no part of the frames"))
                    .help("auto, off, or a number: 1000 compares one frame of a thousand")),
            },
        }
    }
}

/// Chooses frames for one port's thread.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    rate: ShadowRate,
    /// Frames until the next one that is chosen.
    left: u32,
    /// When the next one may be chosen.
    next_ns: u64,
}

impl Shadow {
    pub(crate) fn new(rate: ShadowRate) -> Shadow {
        Shadow { rate, ..Shadow::default() }
    }

    /// Sorts the frames of a batch into those that are chosen and the rest; false, and nothing is sorted, when none is.
    pub(crate) fn choose(
        &mut self,
        all: &[u16],
        now: u64,
        chosen: &mut Vec<u16>,
        rest: &mut Vec<u16>,
    ) -> bool {
        let every = match self.rate {
            ShadowRate::Off => return false,
            ShadowRate::Auto if now < self.next_ns => return false,
            ShadowRate::Auto => USUAL,
            ShadowRate::OneOf(every) => every,
        };
        if self.left as usize >= all.len() {
            self.left -= all.len() as u32;
            return false;
        }
        chosen.clear();
        rest.clear();
        for index in all {
            let is_chosen = self.left == 0;
            if is_chosen { &mut *chosen } else { &mut *rest }.push(*index);
            self.left = if is_chosen { every - 1 } else { self.left - 1 };
        }
        true
    }

    /// Frames that were chosen were compared, begun then.
    pub(crate) fn spent(&mut self, begun: u64) {
        let now = clock::monotonic_ns();
        self.next_ns = now.saturating_add(now.saturating_sub(begun).saturating_mul(TIMES));
    }
}

/// A frame about which two engines disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Divergence {
    /// The port that it came in by.
    pub port: PortNo,
    /// All there is to know, as a file of rules.
    text: String,
}

impl Divergence {
    /// What both said about a frame, with the rules by which they did; none when they agree.
    pub(crate) fn of(
        port: PortNo,
        frame: &[u8],
        meant: &Verdict,
        said: &[OutputFrame],
        pipeline: impl FnOnce() -> String,
    ) -> Option<Divergence> {
        if meant.sent == said && meant.packet_ins.is_empty() {
            return None;
        }
        let mut text = format!(
            "# An engine and the interpreter disagree about this frame. Please report this file.\n# in_port={port} frame={}\n",
            hex(frame)
        );
        for (who, sent) in [("interpreter", &meant.sent[..]), ("engine", said)] {
            let _ = writeln!(text, "# {who}: {} sent", unit::many(sent.len() as u64, "frame"));
            for OutputFrame { port, queue, frame, offload } in sent {
                let _ = writeln!(text, "#   port={port} queue={queue:?} {offload:?} {}", hex(frame));
            }
        }
        let _ = writeln!(
            text,
            "# interpreter: {} to the controllers",
            unit::many(meant.packet_ins.len() as u64, "frame")
        );
        Some(Divergence { port, text: text + &pipeline() })
    }

    /// Writes the file, under a name that is new; where.
    ///
    /// # Errors
    /// Host: the directory or the file cannot be made.
    pub(crate) fn save(&self, directory: &Path) -> Result<PathBuf> {
        let fault = |e: std::io::Error| {
            Problem::host(format!("cannot keep it: {e}")).at(directory.display().to_string())
        };
        std::fs::create_dir_all(directory).map_err(fault)?;
        for number in 1u32.. {
            let path = directory.join(format!("divergence-{number}.rules"));
            match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    std::io::Write::write_all(&mut file, self.text.as_bytes()).map_err(fault)?;
                    return Ok(path);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fault(e)),
            }
        }
        Err(Problem::host("there are too many files").at(directory.display().to_string()))
    }
}

/// All groups, meters and rules, as a file of rules has them.
pub(crate) fn rules_text(pipeline: &Pipeline) -> String {
    let groups = pipeline.groups().iter().map(|entry| group::show(&entry.group) + "\n");
    let meters = pipeline.meters().iter().map(|entry| meter::show(&entry.meter) + "\n");
    let rules = pipeline
        .tables()
        .flat_map(|table| table.rules().map(|(_, entry)| rule::show(table.number, &entry.rule) + "\n"));
    groups.chain(meters).chain(rules).collect()
}
