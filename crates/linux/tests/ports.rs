//! One conformance test for every kind of port: same frames in, same frames out.
//!
//! The contract is written in `linux::port`; the bodies of the test are in `ports/body.rs`, and they know nothing of
//! kinds. A kind is one line of the table below. Kinds with an interface run in network namespaces that the test makes,
//! with the offloads of the interfaces on and off; without root they are skipped, visibly.
//!
//! Beside the table: the kernel's own traffic through forwarders of every pairing (`ports/traffic.rs`), our segments
//! against the kernel's (`ports/twin.rs`), 10⁹ frames through memory (`ports/many.rs`).

#[path = "ports/body.rs"]
mod body;
#[path = "ports/many.rs"]
mod many;
#[path = "ports/rig.rs"]
mod rig;
#[path = "ports/stage.rs"]
mod stage;
mod support;
#[path = "ports/traffic.rs"]
mod traffic;
#[path = "ports/twin.rs"]
mod twin;

use rig::{Kind, Medium};

/// Every kind meets every body.
macro_rules! conformance {
    ($($name:ident: $kind:expr;)*) => { $(
        mod $name {
            use super::*;
            const KIND: Kind = $kind;

            #[test]
            fn same_frames_in_and_out() { body::same_frames(&KIND) }
            #[test]
            fn any_batch_is_dealt_with() { body::batches(&KIND) }
            #[test]
            fn what_cannot_be_sent_is_refused_and_stops_nothing() { body::lengths(&KIND) }
            #[test]
            fn a_snap_length_cuts_and_says_so() { body::snap(&KIND) }
            #[test]
            fn a_link_may_go_down_and_come_back() { body::link_down(&KIND) }
            #[test]
            fn an_interface_may_vanish() { body::removed(&KIND) }
            #[test]
            fn an_end_may_close_with_frames_under_way() { body::closed(&KIND) }
        }
    )* };
}

conformance! {
    mem: Kind::of(Medium::Memory, "mem:NAME");
    fault_around_mem: Kind::of(Medium::Memory, "fault:mem:NAME?lose=0%");
    pcap: Kind::of(Medium::File, "pcap:NAME.pcap");
    pcapng: Kind::of(Medium::File, "pcap:NAME.pcapng");
    pcapng_zst: Kind::of(Medium::File, "pcap:NAME.pcapng.zst");
    int: Kind::of(Medium::Veth, "int:IF");
    int_plain: Kind::of(Medium::Veth, "int:IF?vnet=off");
    int_bypass: Kind::of(Medium::Veth, "int:IF?bypass=on");
    fault_around_int: Kind::of(Medium::Veth, "fault:int:IF?lose=0");
    ring: Kind::of(Medium::Veth, "ring:IF");
    ring_fast: Kind::of(Medium::Veth, "ring:IF?retire_ms=1&bypass=on");
    ring_v2: Kind::of(Medium::Veth, "ring:IF?version=2");
    xdp_native: Kind::of(Medium::Veth, "xdp:IF?mode=native&copy=copy");
    xdp_generic: Kind::of(Medium::Veth, "xdp:IF?mode=generic&copy=copy");
    tap_receives: Kind::of(Medium::TapReceives, "tap:IF");
    tap_sends: Kind::of(Medium::TapSends, "tap:IF");
    tap_receives_plain: Kind::of(Medium::TapReceives, "tap:IF?vnet=off");
    tap_sends_plain: Kind::of(Medium::TapSends, "tap:IF?vnet=off&queues=3");
}

#[test]
fn an_interface_may_leave_its_namespace_behind_its_last_frames() {
    for uri in ["int:IF", "ring:IF?retire_ms=100"] {
        body::moved(&Kind::of(Medium::Veth, uri));
    }
}
