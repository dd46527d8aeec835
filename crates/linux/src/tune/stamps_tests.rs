//! With a fake for a card that can stamp, and a veth for an interface that cannot.

use super::*;
use crate::journal;
use crate::sys::netns;
use crate::sys::process::ProcessIdentity;
use crate::tune::{Place, Scope, TuneStep};
use serde::Deserialize;
use serde_json::Value;
use std::os::fd::AsFd;

/// A card as drivers are: it takes what it can, or refuses.
#[derive(Default)]
struct Fake {
    config: StampConfig,
    refuses: Option<i32>,
    /// Takes this filter instead of the one that was asked for.
    takes: Option<i32>,
    sets: u32,
}

impl Card for Fake {
    fn get(&mut self) -> io::Result<StampConfig> {
        Ok(self.config)
    }

    fn set(&mut self, config: StampConfig) -> io::Result<()> {
        self.sets += 1;
        if let Some(errno) = self.refuses {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.config = config;
        self.config.receive = self.takes.take().unwrap_or(config.receive);
        Ok(())
    }
}

impl<C: Card> Card for &mut C {
    fn get(&mut self) -> io::Result<StampConfig> {
        (**self).get()
    }

    fn set(&mut self, config: StampConfig) -> io::Result<()> {
        (**self).set(config)
    }
}

/// The steps of this module.
fn steps(entry: &Value) -> Option<Box<dyn journal::UndoStep>> {
    TuneStep::deserialize(entry).ok().map(|step| Box::new(step) as _)
}

fn state() -> (tempfile::TempDir, Journals) {
    let temporary = tempfile::tempdir().unwrap();
    let state = Journals::at(&temporary.path().join("state"), steps).unwrap();
    (temporary, state)
}

/// An interface of a namespace that does not exist: a step finds nothing to do there.
fn nowhere() -> Place {
    Place { netns: 1, index: 7, name: "card0".into() }
}

/// Switches the stamps of a card on that is nowhere.
fn switch(card: &mut impl Card, side: Side, journals: &Journals) -> Result<Stamping> {
    on(Stamps { card, side }, nowhere(), journals)
}

/// Puts back what was set for one side.
fn put_back(card: &mut Fake, was: StampConfig, side: Side) -> Answer {
    crate::tune::put_back(&mut Stamps { card, side }, was)
}

fn config(transmit: i32, receive: i32) -> StampConfig {
    StampConfig { transmit, receive, ..StampConfig::default() }
}

#[test]
fn the_undo_is_on_disk_before_the_card_is_switched() {
    struct Looks<'a>(&'a Journals, Fake);
    impl Card for Looks<'_> {
        fn get(&mut self) -> io::Result<StampConfig> {
            self.1.get()
        }
        fn set(&mut self, config: StampConfig) -> io::Result<()> {
            let record = self.0.read(&self.0.names()[0]).unwrap().expect("a journal");
            let was = serde_json::json!(self.1.config);
            let step = TuneStep::Knob {
                knob: "stamps_receive".into(),
                at: Scope::Interface(nowhere()),
                was,
                wanted: None,
            };
            assert_eq!(record.steps, [serde_json::to_value(&step).unwrap()]);
            self.1.set(config)
        }
    }
    let (_temporary, state) = state();
    let mut card = Looks(&state, Fake { config: config(1, 0), ..Fake::default() });
    let stamping = switch(&mut card, Side::Receive, &state).unwrap();
    assert_eq!((card.1.config, card.1.sets), (config(1, ALL), 1), "the transmit side is left as it was");
    assert!(stamping.said.contains("stamps all frames"), "{}", stamping.said);
    stamping.put_back().unwrap();
    assert!(state.names().is_empty(), "the journal goes with it");
}

#[test]
fn a_card_that_refuses_leaves_one_sentence_and_no_journal() {
    for (errno, words) in [
        (libc::EOPNOTSUPP, "has no hardware stamps"),
        (libc::ERANGE, "only some kinds"),
        (libc::EPERM, "CAP_NET_ADMIN"),
        (libc::EIO, "Input/output error"),
    ] {
        let (_temporary, state) = state();
        let mut card = Fake { refuses: Some(errno), ..Fake::default() };
        let problem = switch(&mut card, Side::Receive, &state).unwrap_err();
        assert_eq!(problem.kind.exit_code(), 3);
        let text = problem.to_string();
        assert!(text.contains(words) && text.contains("card0") && !text.contains('\n'), "{text}");
        assert!(state.names().is_empty() && card.sets == 1);
    }
}

#[test]
fn a_card_that_stamps_already_or_only_some_frames_is_told() {
    let (_temporary, state) = state();
    let mut card = Fake { config: config(1, ALL), ..Fake::default() };
    let stamping = switch(&mut card, Side::Receive, &state).unwrap();
    assert!(stamping.said.contains("already") && card.sets == 0 && state.names().is_empty());
    let mut card = Fake { takes: Some(12), ..Fake::default() };
    let stamping = switch(&mut card, Side::Receive, &state).unwrap();
    assert!(stamping.said.contains("only some frames that come in (filter 12)"), "{}", stamping.said);
    drop(stamping);
    assert!(state.names().is_empty(), "dropping it puts it back, too");
}

#[test]
fn what_was_set_is_put_back_unless_somebody_else_took_over() {
    let was = config(0, 0);
    let mut card = Fake { config: config(0, 12), ..Fake::default() };
    put_back(&mut card, was, Side::Receive).unwrap();
    assert_eq!((card.config, card.sets), (was, 1), "whatever filter the driver had made of ours");
    put_back(&mut card, was, Side::Receive).unwrap();
    assert_eq!(card.sets, 1, "undoing it again does nothing");
    let mut theirs = Fake { config: config(1, ALL), ..Fake::default() };
    put_back(&mut theirs, was, Side::Receive).unwrap();
    assert_eq!(theirs.sets, 0, "stamps of sent frames were switched on by somebody else");
    let mut stuck = Fake { config: config(0, ALL), refuses: Some(libc::EIO), ..Fake::default() };
    assert!(put_back(&mut stuck, was, Side::Receive).is_err());
}

#[test]
fn stamps_of_sent_frames_are_switched_on_their_own() {
    let (_temporary, state) = state();
    let mut card = Fake { config: config(0, 12), ..Fake::default() };
    let stamping = switch(&mut card, Side::Transmit, &state).unwrap();
    assert_eq!(card.config, config(ON, 12));
    assert!(stamping.said.contains("all frames that go out; it is put back"), "{}", stamping.said);
    drop(stamping);
    put_back(&mut card, config(0, 12), Side::Transmit).unwrap();
    assert_eq!(card.config, config(0, 12));
    let mut theirs = Fake { config: config(ON, ALL), ..Fake::default() };
    put_back(&mut theirs, config(0, 0), Side::Transmit).unwrap();
    assert_eq!(theirs.sets, 0, "stamps of received frames were switched on by somebody else");
    // One-step stamps (2) of somebody's PTP stay.
    let mut card = Fake { config: config(2, 0), ..Fake::default() };
    let stamping = switch(&mut card, Side::Transmit, &state).unwrap();
    assert!(stamping.said.contains("already") && card.sets == 0, "{}", stamping.said);
}

#[test]
fn the_journal_of_a_killed_process_is_replayed() {
    let (_temporary, state) = state();
    let was = config(1, 12);
    let step = TuneStep::Stamps { at: nowhere(), was, side: Side::Receive };
    let text = serde_json::to_string(&step).unwrap();
    assert_eq!(serde_json::from_str::<TuneStep>(&text).unwrap(), step, "{text}");
    // A journal of before there were sides is about frames that come in.
    let old = text.replace(",\"side\":\"receive\"", "");
    assert_eq!((serde_json::from_str::<TuneStep>(&old).unwrap(), old == text), (step.clone(), false));
    let dead = ProcessIdentity { start: 1, ..ProcessIdentity::own().unwrap() };
    state.leave_behind("stamps-card0-1", dead, &[step]);
    assert_eq!(state.clean().unwrap(), ["stamps-card0-1"]);
    assert!(state.names().is_empty());
}

/// Runs in a namespace of its own with the veth pair `a`, `b`; false: not permitted here.
fn with_veth(body: impl FnOnce() + Send) -> bool {
    let root = nix::unistd::geteuid().is_root();
    let Some(space) = netns::create().ok().filter(|_| root) else {
        println!("SKIP: hardware stamps on a veth: needs root (network namespaces)");
        return false;
    };
    let made = netns::within(space.as_fd(), || {
        let made = std::process::Command::new("ip")
            .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
            .args(["link", "add", "name", "a", "type", "veth", "peer", "name", "b"])
            .status();
        assert!(made.is_ok_and(|status| status.success()), "ip makes no veth");
        body();
    });
    made.is_ok()
}

#[test]
fn a_veth_says_that_it_cannot_and_is_left_alone() {
    with_veth(|| {
        let (_temporary, state) = state();
        let socket = packet::open().unwrap();
        let facts = packet::interface_named(&socket, "a").unwrap();
        let inode = netns::inode(netns::current().unwrap().as_fd()).unwrap();
        let problem = switch_on(&state, "a", Side::Receive).unwrap_err().to_string();
        assert!(problem.contains("no hardware stamps to be switched on"), "{problem}");
        let refusal = Interface { socket, name: "a" }.set(config(0, ALL)).unwrap_err();
        assert_eq!(refusal.raw_os_error(), Some(libc::EOPNOTSUPP));
        assert!(state.names().is_empty());
        // A journal about it, or about an interface that has another number now, is undone without a word.
        for (index, name) in [(facts.index, "a"), (facts.index + 100, "a"), (facts.index, "gone")] {
            let at = Place { netns: inode, index: index as u32, name: name.into() };
            let was = serde_json::json!(config(0, 0));
            journal::UndoStep::undo(&TuneStep::Knob {
                knob: "stamps_receive".into(),
                at: Scope::Interface(at),
                was,
                wanted: None,
            })
            .unwrap();
        }
    });
}
