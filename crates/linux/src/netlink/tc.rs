//! Rate limits at the roots of interfaces (`tbf`).

use std::collections::BTreeMap;

use netlink_bindings::tc;
use record::snapshot::TC_ROOT;

use super::{Answer, Netlink};

/// The handle of what a lab puts at the root of an interface, `1:` as tc writes it.
pub(super) const ROOT_HANDLE: u32 = 0x1_0000;
/// The one place inside that for another qdisc, `1:1` (`netem`).
const INSIDE: u32 = ROOT_HANDLE + 1;

/// A rate limit on what leaves an interface (`tbf`, `net/sched/sch_tbf.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaper {
    /// Bits per second of whole frames (with the Ethernet header, without preamble and check sequence).
    pub rate_bps: u64,
    /// How many bytes may wait; more are dropped.
    pub limit_bytes: u32,
    /// How many bytes may leave at once.
    pub burst_bytes: u32,
}

impl Netlink {
    /// Limits the rate of what leaves an interface: at its root, or inside the netem that is there ([`Netlink::set_emulation`]).
    pub fn set_shaper(&mut self, index: u32, shaper: Shaper, is_inside: bool) -> Answer {
        let bytes_per_second = shaper.rate_bps / 8;
        let (handle, parent) = if is_inside { (0x2_0000, INSIDE) } else { (ROOT_HANDLE, TC_ROOT) };
        let header = tc::Tcmsg { ifindex: index as i32, handle, parent, ..Default::default() };
        let mut parameters = tc::TcTbfQopt { limit: shaper.limit_bytes, ..Default::default() };
        parameters.rate.linklayer = 1; // TC_LINKLAYER_ETHERNET: no rate table is needed
        parameters.rate.rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
        let mut request = tc::Request::new().set_create().set_replace().op_newqdisc_do(&header);
        request
            .encode()
            .nested_options_tbf()
            .push_parms(parameters)
            .push_rate64(bytes_per_second)
            .push_burst(shaper.burst_bytes);
        self.acknowledged(&request)
    }

    /// The rate limits at the roots of all interfaces, or inside the netem there, by index; `burst_bytes` is as near as the kernel's ticks tell.
    pub fn shapers(&mut self) -> Answer<BTreeMap<u32, Shaper>> {
        let request = tc::Request::new().op_getqdisc_dump(&tc::Tcmsg::default());
        let shapers = self.replies(&request, |(header, attributes)| {
            let Ok(tc::OptionsMsg::Tbf(options)) = attributes.get_options() else { return None };
            let parameters = options.get_parms().ok()?;
            let rate = options.get_rate64().unwrap_or(u64::from(parameters.rate.rate));
            // A psched tick is 64 ns (include/net/pkt_sched.h, PSCHED_SHIFT 6).
            let burst = u128::from(parameters.buffer) * 64 * u128::from(rate) / 1_000_000_000;
            let shaper = Shaper {
                rate_bps: rate.saturating_mul(8),
                limit_bytes: parameters.limit,
                burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX),
            };
            [TC_ROOT, INSIDE].contains(&header.parent).then_some((header.ifindex as u32, shaper))
        })?;
        Ok(shapers.into_iter().collect())
    }
}
