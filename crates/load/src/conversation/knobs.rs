//! Knobs of a host that are changed for a controller at another one, for as long as its connection lasts or for good.
//!
//! **What.** [`Knobs`] is whoever changes them at the agent's host; [`RemoteKnobs`] asks for it from afar.
//!
//! **Price.** A control connection for what is held: when it ends, for whatever reason, all is put back.

use super::link::AgentLink;
use crate::protocol::message::{PeerHost, Reply, Request, Tune, name};
use record::knob::KnobChange;
use record::{Problem, Result};

/// How long a change may take, links that come up again included, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;

/// What to do where the server is gone: killed, it puts nothing back itself.
const GONE: &str = "look whether 'pathlab serve' still runs there; what one that was killed had set, 'pathlab tune diff' there puts back";

/// Changes knobs of this host; what it holds is put back when it is dropped.
pub trait Knobs {
    /// Changes or compares them.
    ///
    /// # Errors
    /// Input: no such knob or value. Host: the kernel refuses.
    fn tune(&mut self, asked: &Tune) -> Result<Vec<KnobChange>>;

    /// Puts back what is held, the last first.
    ///
    /// # Errors
    /// Host: the kernel refuses one; its journal stays.
    fn put_back(&mut self) -> Result<()>;
}

/// Begins to change knobs for one connection.
pub type OpenKnobs = fn() -> Box<dyn Knobs>;

/// The knobs of the host behind a control connection.
pub struct RemoteKnobs(AgentLink);

impl RemoteKnobs {
    /// By a connection on which nothing else is asked.
    pub fn new(link: AgentLink) -> RemoteKnobs {
        RemoteKnobs(link)
    }

    /// Changes or compares them there.
    ///
    /// # Errors
    /// As [`Knobs::tune`], with the name of the host; or it does not answer, or lets nobody change its knobs.
    pub fn tune(&mut self, asked: Tune) -> Result<Vec<KnobChange>> {
        self.ask(Request::Tune(asked))
    }

    /// Puts back what is held there.
    ///
    /// # Errors
    /// As [`Knobs::put_back`]; or it does not answer.
    pub fn put_back(&mut self) -> Result<()> {
        self.ask(Request::PutBack).map(drop)
    }

    /// Which host it is, and by which interface it reaches us, whose knobs may be those to change.
    ///
    /// # Errors
    /// Host: it does not answer, or tells nobody.
    pub fn about(&mut self) -> Result<PeerHost> {
        match self.exchange(Request::About)? {
            Reply::About(about) => Ok(*about),
            other => Err(self.lost(&format!("answered '{}'", name(&other)))),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Vec<KnobChange>> {
        match self.exchange(request)? {
            Reply::Tuned(changes) => Ok(changes),
            other => Err(self.lost(&format!("answered '{}'", name(&other)))),
        }
    }

    fn exchange(&mut self, request: Request) -> Result<Reply> {
        match self.0.exchange(request, PATIENCE_NS) {
            // Where it was wrong is what was asked for.
            Ok(Reply::Failed(failure)) => {
                Err(Problem { place: self.0.peer.clone(), ..Problem::from(&failure) })
            }
            Ok(reply) => Ok(reply),
            Err(why) => Err(self.lost(&why).help(GONE)),
        }
    }

    fn lost(&self, why: &str) -> Problem {
        let what = format!("{} {why} when it was asked for its knobs", self.0.peer);
        Problem::host(what).help("use the same version of pathlab on both hosts")
    }
}
