//! A program in the kernel, with its maps and what was told of its counters.

use flow::pipeline::Pipeline;
use jit::kernel::{Hook, KernelCounters, KernelMap, KernelProgram, MapRole, PortWord};
use linux::sys::bpf::{self, Map, TestRun};
use record::unit;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A program that was loaded.
pub struct LoadedProgram {
    /// What was loaded.
    pub program: KernelProgram,
    descriptor: OwnedFd,
    maps: Vec<Arc<Map>>,
    /// What was told already.
    before: KernelCounters,
    /// Frames about which it and the interpreter agreed, or why none could be tried.
    pub(super) compared: Result<usize, String>,
}

impl LoadedProgram {
    /// Makes the maps and loads the program. `userspace` is the map of the ways to user space, which outlives programs; without one,
    /// nothing leads there.
    ///
    /// # Errors
    /// In words: `bpf(2)` is refused, or the verifier refuses the program; then with the end of what it says.
    pub fn load(program: KernelProgram, userspace: Option<Arc<Map>>) -> Result<LoadedProgram, String> {
        let make = |map: &KernelMap| match (&userspace, map.role) {
            (Some(userspace), MapRole::Userspace) => Ok(userspace.clone()),
            _ => filled(map).map(Arc::new),
        };
        let maps = program.maps.iter().map(make).collect::<Result<Vec<_>, String>>()?;
        let descriptors: Vec<i32> = maps.iter().map(|map| map.raw_fd()).collect();
        let words = program.words(&descriptors);
        let descriptor = bpf::load_program(kind(program.hook), &words, c"GPL", "pathlab_rules");
        let descriptor = descriptor.map_err(|rejected| {
            let said = rejected.log.trim_end();
            let last: Vec<&str> = said.lines().rev().take(2).collect();
            format!("the kernel refuses the program: {} {}", rejected.error, last.join(" | "))
        })?;
        Ok(LoadedProgram { program, descriptor, maps, before: KernelCounters::default(), compared: Ok(0) })
    }

    /// Runs it so many times on a copy of a frame that came in by an interface of the calling thread's namespace
    /// ([`bpf::test_run_at`]).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn run(&self, interface: u32, frame: &[u8], segment: u32, repeat: u32) -> io::Result<TestRun> {
        let kind = kind(self.program.hook);
        bpf::test_run_at(self.descriptor(), kind, interface, frame, segment, repeat)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Where it runs.
    pub(crate) fn hook(&self) -> Hook {
        self.program.hook
    }

    /// Rules that the kernel does, and rules that user space does.
    pub(crate) fn rules(&self) -> (usize, usize) {
        (self.program.kernel_rules, self.program.userspace.len())
    }

    /// How it was compared with the interpreter, in words.
    pub(crate) fn compared(&self) -> String {
        match &self.compared {
            Ok(frames) => format!("compared with the interpreter on {}", unit::many(*frames as u64, "frame")),
            Err(why) => format!("not compared with the interpreter: {why}"),
        }
    }

    /// Why user space does the rules that it does, each reason once.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = vec![];
        for rule in &self.program.userspace {
            let reason = rule.reason.to_string();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// What was counted at ports; nothing of rules and tables.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read_ports(&self) -> io::Result<KernelCounters> {
        let ports = self.program.map(MapRole::PortCounters);
        self.program
            .counters(|index| if Some(index) == ports { self.maps[index].entries() } else { Ok(vec![]) })
    }

    /// All that was counted since it was loaded.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&self) -> io::Result<KernelCounters> {
        self.program.counters(|index| self.maps[index].entries())
    }

    /// What was counted until now is told already.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.before = self.read()?;
        Ok(())
    }

    /// Adds what was counted since the last time to the pipeline of whose rules it was made.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn settle(&mut self, pipeline: &mut Pipeline) -> io::Result<()> {
        let now = self.read()?;
        // Both clocks are CLOCK_MONOTONIC.
        let mut tally = self.program.tally(&self.before, &now, |ns| ns);
        for (index, port) in self.program.ports.iter().enumerate() {
            // What found no way to user space was lost before anything counted it.
            let lost = |counters: &KernelCounters| counters.port(index, PortWord::Lost);
            tally.port(port.number).rx_dropped += lost(&now).wrapping_sub(lost(&self.before));
        }
        tally.credit(&self.program.places, pipeline);
        self.before = now;
        Ok(())
    }
}

/// The kind of a program.
fn kind(hook: Hook) -> u32 {
    match hook {
        Hook::Xdp => bpf::PROG_XDP,
        Hook::Tcx => bpf::PROG_SCHED_CLS,
    }
}

/// A map with what is in it before the program runs.
fn filled(map: &KernelMap) -> Result<Map, String> {
    let sizes = (map.key_size, map.value_size);
    let made = Map::create_with((map.kind, map.flags), sizes, map.entries, "pathlab_rules")
        .map_err(|e| format!("cannot make a map for {:?}: {e}", map.role))?;
    for (key, value) in &map.contents {
        match made.update(key, value) {
            // An interface that is gone: its port sends nothing.
            Err(_) if map.role == MapRole::Devices => {}
            done => done.map_err(|e| format!("cannot fill the map for {:?}: {e}", map.role))?,
        }
    }
    Ok(made)
}
