//! Offloads, queues and what a driver can do with XDP.
//!
//! **Why command numbers of our own.** netlink-bindings 0.3.5 counts ethtool's notifications among its commands, so its numbers are
//! wrong from the third one on; [`Ethtool`] holds the right ones.

use std::collections::BTreeMap;

use netlink_bindings::{ethtool, netdev};

use super::{Answer, Netlink, unless};

/// Requests of the ethtool family as `include/uapi/linux/ethtool_netlink.h` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ethtool {
    /// `ETHTOOL_MSG_FEATURES_GET`.
    FeaturesGet = 11,
    /// `ETHTOOL_MSG_FEATURES_SET`.
    FeaturesSet = 12,
    /// `ETHTOOL_MSG_CHANNELS_GET`.
    ChannelsGet = 17,
    /// `ETHTOOL_MSG_PAUSE_GET`.
    PauseGet = 21,
}

/// A part of segmentation, merging or checksumming that the kernel does later, earlier or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffloadFeature {
    /// TCP segmentation offload: TCP hands down super-frames.
    Tso,
    /// Generic segmentation offload: super-frames are cut just before the driver.
    Gso,
    /// Generic receive offload: frames are merged on arrival.
    Gro,
    /// Transmit checksum: the sender leaves it to the device (on a veth: nobody computes it).
    Tx,
    /// Receive checksum: the receiver trusts the device.
    Rx,
    /// Scatter/gather: a frame may lie in several pieces of memory.
    Sg,
    /// UDP segmentation offload.
    Uso,
}

impl OffloadFeature {
    /// The offloads by which frames are cut, merged and checked, each with its state: `tso on`, `gro off`, `tx-checksum on`.
    pub fn states(on: &BTreeMap<OffloadFeature, bool>) -> Vec<String> {
        let state = |offload: &OffloadFeature| {
            let is_checksum = matches!(offload, OffloadFeature::Tx | OffloadFeature::Rx);
            let (more, on) = (if is_checksum { "-checksum" } else { "" }, on.get(offload) == Some(&true));
            format!("{}{more} {}", offload.word(), if on { "on" } else { "off" })
        };
        OffloadFeature::ALL[..5].iter().map(state).collect()
    }

    /// Every offload, in the order in which they are printed.
    pub const ALL: [OffloadFeature; 7] = [
        OffloadFeature::Tso,
        OffloadFeature::Gso,
        OffloadFeature::Gro,
        OffloadFeature::Tx,
        OffloadFeature::Rx,
        OffloadFeature::Sg,
        OffloadFeature::Uso,
    ];

    /// The word in a topology, and the kernel's feature bits (`net/ethtool/common.c`, `netdev_features_strings`).
    fn row(self) -> (&'static str, &'static [&'static str]) {
        match self {
            OffloadFeature::Tso => ("tso", &TSO),
            OffloadFeature::Gso => ("gso", &["tx-generic-segmentation"]),
            OffloadFeature::Gro => ("gro", &["rx-gro"]),
            OffloadFeature::Tx => ("tx", &TX),
            OffloadFeature::Rx => ("rx", &["rx-checksum"]),
            OffloadFeature::Sg => ("sg", &["tx-scatter-gather", "tx-scatter-gather-fraglist"]),
            OffloadFeature::Uso => ("uso", &["tx-udp-segmentation"]),
        }
    }

    /// The word in a topology.
    pub fn word(self) -> &'static str {
        self.row().0
    }

    /// The kernel's feature bits that it stands for.
    pub fn features(self) -> &'static [&'static str] {
        self.row().1
    }
}

const TSO: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
];
const TX: [&str; 4] = ["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-sctp"];

impl Netlink {
    /// Switches offloads; those that the device does not let change stay as they are.
    pub fn set_offloads(&mut self, index: u32, offloads: &BTreeMap<OffloadFeature, bool>) -> Answer {
        let mut request = ethtool::Request::new().op_features_set_do();
        request.header_mut().cmd = Ethtool::FeaturesSet as u8;
        let mut bits =
            request.encode().nested_header().push_dev_index(index).end_nested().nested_wanted().nested_bits();
        for (offload, &on) in offloads {
            for feature in offload.features() {
                let mut bit = bits.nested_bit().push_name_bytes(feature.as_bytes());
                if on {
                    bit = bit.push_value(());
                }
                bits = bit.end_nested();
            }
        }
        drop(bits);
        self.acknowledged(&request)
    }

    /// Which offloads are on. An offload that stands for several features is on when one of them is.
    pub fn offloads(&mut self, index: u32) -> Answer<BTreeMap<OffloadFeature, bool>> {
        let mut request = ethtool::Request::new().op_features_get_do();
        request.header_mut().cmd = Ethtool::FeaturesGet as u8;
        request.encode().nested_header().push_dev_index(index);
        let on = self.replies(&request, |features| {
            let bits = features.get_active().and_then(|active| active.get_bits()).ok()?;
            let names: Vec<&[u8]> =
                bits.get_bit().filter_map(|bit| Some(bit.get_name().ok()?.to_bytes())).collect();
            let active =
                |offload: &OffloadFeature| offload.features().iter().any(|f| names.contains(&f.as_bytes()));
            Some(OffloadFeature::ALL.into_iter().map(|offload| (offload, active(&offload))).collect())
        })?;
        Ok(on.into_iter().next().unwrap_or_default())
    }

    /// Receive and transmit queues in use; none when the device does not tell.
    pub fn queues(&mut self, index: u32) -> Answer<Option<(u32, u32)>> {
        let mut request = ethtool::Request::new().op_channels_get_do();
        request.header_mut().cmd = Ethtool::ChannelsGet as u8;
        request.encode().nested_header().push_dev_index(index);
        let answer = self.replies(&request, |channels| {
            let both = channels.get_combined_count().unwrap_or(0);
            Some((both + channels.get_rx_count().unwrap_or(0), both + channels.get_tx_count().unwrap_or(0)))
        });
        unless(answer, &[libc::EOPNOTSUPP])
    }

    /// Pause frames received and sent; none when the driver does not count them here (`ETHTOOL_FLAG_STATS`, Linux 5.10).
    pub fn pause_frames(&mut self, index: u32) -> Answer<Option<(u64, u64)>> {
        const FLAG_STATS: u32 = 1 << 2;
        let mut request = ethtool::Request::new().op_pause_get_do();
        request.header_mut().cmd = Ethtool::PauseGet as u8;
        request.encode().nested_header().push_dev_index(index).push_flags(FLAG_STATS);
        let answer = self.replies(&request, |pause| {
            let stats = pause.get_stats().ok()?;
            // A driver that counts only one of them leaves the other out.
            let (received, sent) = (stats.get_rx_frames().ok(), stats.get_tx_frames().ok());
            received.or(sent).map(|_| (received.unwrap_or(0), sent.unwrap_or(0)))
        });
        unless(answer, &[libc::EOPNOTSUPP])
    }

    /// What the interface's driver can do with XDP (`enum netdev_xdp_act`, Linux 6.3); none when the kernel does not tell.
    pub fn xdp_features(&mut self, index: u32) -> Answer<Option<u64>> {
        let mut request = netdev::Request::new().op_dev_get_do();
        request.encode().push_ifindex(index);
        let answer = self.replies(&request, |device| device.get_xdp_features().ok());
        // Before Linux 6.3 there is no such family.
        unless(answer, &[libc::ENOENT, libc::EOPNOTSUPP])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `include/uapi/linux/ethtool_netlink.h`, where every request counts once and no notification.
    #[test]
    fn ethtool_requests_have_the_numbers_of_the_kernel() {
        let names = [
            "STRSET_GET",
            "LINKINFO_GET",
            "LINKINFO_SET",
            "LINKMODES_GET",
            "LINKMODES_SET",
            "LINKSTATE_GET",
            "DEBUG_GET",
            "DEBUG_SET",
            "WOL_GET",
            "WOL_SET",
            "FEATURES_GET",
            "FEATURES_SET",
            "PRIVFLAGS_GET",
            "PRIVFLAGS_SET",
            "RINGS_GET",
            "RINGS_SET",
            "CHANNELS_GET",
            "CHANNELS_SET",
            "COALESCE_GET",
            "COALESCE_SET",
            "PAUSE_GET",
        ];
        let number = |wanted: &str| names.iter().position(|name| *name == wanted).unwrap() as u8 + 1;
        assert_eq!(Ethtool::FeaturesGet as u8, number("FEATURES_GET"));
        assert_eq!(Ethtool::FeaturesSet as u8, number("FEATURES_SET"));
        assert_eq!(Ethtool::ChannelsGet as u8, number("CHANNELS_GET"));
        assert_eq!(Ethtool::PauseGet as u8, number("PAUSE_GET"));
    }
}
