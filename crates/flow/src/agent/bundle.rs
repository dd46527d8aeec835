//! Bundles (OpenFlow 1.4 §6.9 and §7.3.9): messages that are prepared, then made all or none.
//!
//! **What.** Each message is decoded and turned into a change when it is added, so that what cannot be is refused then;
//! what depends on the state is checked at the commit, on a copy, and only a bundle that went through as a whole
//! becomes the state. **Price.** Every bundle is atomic and ordered, whatever its flags ask for: that is more than asked.

use super::{Answer, OpenFlowAgent, Peer, Scene, change};
use crate::error::BundleFailed;
use crate::openflow::fault::Fault;
use crate::openflow::message::{Body, BundleAdd, Message};
use crate::openflow::misc::{BundleCommand, BundleControl, BundleFlags};
use crate::pipeline::Change;
use wire::refuse_if;

/// Bundles of one connection at most.
const MOST_BUNDLES: usize = 64;
/// Messages of one bundle at most.
const MOST_MESSAGES: usize = 1 << 20;

/// A bundle that is being filled.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    flags: BundleFlags,
    closed: bool,
    messages: Vec<Message>,
}

impl OpenFlowAgent {
    pub(super) fn bundle_control(&mut self, scene: &mut Scene<'_>, control: &BundleControl) -> Answer<()> {
        let Some(peer) = self.peers.get_mut(&scene.from.connection) else { return Ok(()) };
        let id = control.bundle_id;
        let answer = match control.kind {
            BundleCommand::OPEN_REQUEST => {
                if peer.bundles.contains_key(&id) {
                    // §7.3.9.2: an open bundle of that number is discarded, and the request refused.
                    peer.bundles.remove(&id);
                    return Err(BundleFailed::BundleExist.into());
                }
                peer.open(id, control.flags)?;
                BundleCommand::OPEN_REPLY
            }
            BundleCommand::CLOSE_REQUEST => {
                let bundle = peer.bundles.get_mut(&id).ok_or(BundleFailed::BadId)?;
                let (was_closed, same) = (bundle.closed, bundle.flags == control.flags);
                bundle.closed = true;
                if was_closed || !same {
                    peer.bundles.remove(&id);
                    let code = if was_closed { BundleFailed::BundleClosed } else { BundleFailed::BadFlags };
                    return Err(code.into());
                }
                BundleCommand::CLOSE_REPLY
            }
            BundleCommand::COMMIT_REQUEST => {
                // Whatever becomes of it, the bundle is gone afterwards (§7.3.9.4).
                let bundle = peer.bundles.remove(&id).ok_or(BundleFailed::BadId)?;
                refuse_if(bundle.flags != control.flags, BundleFailed::BadFlags)?;
                self.commit(scene, bundle)?;
                BundleCommand::COMMIT_REPLY
            }
            BundleCommand::DISCARD_REQUEST => {
                peer.bundles.remove(&id).ok_or(BundleFailed::BadId)?;
                BundleCommand::DISCARD_REPLY
            }
            _ => return Err(BundleFailed::BadType.into()),
        };
        scene.reply(Body::BundleControl(BundleControl {
            kind: answer,
            properties: vec![],
            ..control.clone()
        }));
        Ok(())
    }

    pub(super) fn bundle_add(&mut self, scene: &mut Scene<'_>, add: &BundleAdd) -> Result<(), Fault> {
        let Some(peer) = self.peers.get_mut(&scene.from.connection) else { return Ok(()) };
        if !peer.bundles.contains_key(&add.bundle_id) {
            // §7.3.9.5: a message for a bundle that is not open opens it.
            peer.open(add.bundle_id, add.flags)?;
        }
        let Some(bundle) = peer.bundles.get_mut(&add.bundle_id) else { return Ok(()) };
        let open = refuse_if(bundle.closed, BundleFailed::BundleClosed);
        if let Err(code) = open.and(refuse_if(bundle.flags != add.flags, BundleFailed::BadFlags)) {
            peer.bundles.remove(&add.bundle_id);
            return Err(code.into());
        }
        refuse_if(bundle.messages.len() >= MOST_MESSAGES, BundleFailed::MsgTooMany)?;
        let message = Message::decode(&add.message.0)?;
        refuse_if(message.xid != scene.from.xid, BundleFailed::MsgBadXid)?;
        refuse_if(message.version != scene.from.version, BundleFailed::MsgUnsup)?;
        // What can be said now is said now; the state is asked at the commit.
        change::read(scene.from.version, &message)?.ok_or(BundleFailed::MsgUnsup)?;
        bundle.messages.push(message);
        Ok(())
    }

    /// All or nothing. A message that fails is reported by an error of its own, then the commit by another (§7.3.9.4).
    fn commit(&mut self, scene: &mut Scene<'_>, bundle: Bundle) -> Result<(), Fault> {
        let read = |message| change::read(scene.from.version, message);
        let changes: Result<Vec<Change>, (usize, Fault)> = bundle
            .messages
            .iter()
            .enumerate()
            .filter_map(|(index, message)| read(message).map_err(|fault| (index, fault)).transpose())
            .collect();
        let done = changes.and_then(|changes| {
            scene.pipeline.bundle(scene.now, &changes).map_err(|(index, error)| (index, error.into()))
        });
        match done {
            Ok(events) => {
                for message in &bundle.messages {
                    self.forward_request(scene, message);
                }
                self.publish(&events, Some(scene.from), scene.pipeline, scene.effects);
                Ok(())
            }
            Err((index, fault)) => {
                scene.effects.refuse(scene.from, &bundle.messages[index], fault);
                Err(BundleFailed::MsgFailed.into())
            }
        }
    }
}

impl Peer {
    fn open(&mut self, id: u32, flags: BundleFlags) -> Result<(), BundleFailed> {
        refuse_if(self.bundles.len() >= MOST_BUNDLES, BundleFailed::OutOfBundles)?;
        refuse_if(!BundleFlags::ALL.has(flags), BundleFailed::BadFlags)?;
        self.bundles.insert(id, Bundle { flags, ..Bundle::default() });
        Ok(())
    }
}
