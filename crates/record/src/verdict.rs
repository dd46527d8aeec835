//! The words of verdicts on what limited a test: one table, a row a word.
//!
//! A loss has the word of its drop ([`crate::drop`]); these are the words for everything else. `docs/verdicts.md` is made of these rows.

use crate::drop;

/// One word.
#[derive(Debug, Clone, Copy)]
pub struct VerdictWord {
    /// The word, as in `limit.what`.
    pub word: &'static str,
    /// What it says, in a clause.
    pub meaning: &'static str,
    /// What to do about it, in a clause.
    pub advice: &'static str,
}

macro_rules! verdicts {
    ($($(#[doc = $meaning:literal])+ $constant:ident $word:literal: $advice:literal)*) => {
        $($(#[doc = $meaning])+ pub const $constant: &str = $word;)*

        /// Every word that is not that of a drop.
        pub const VERDICTS: &[VerdictWord] = &[$(VerdictWord {
            word: $word, meaning: concat!($($meaning),+), advice: $advice
        }),*];
    };
}

verdicts! {
    /// A thread of the sender used a CPU whole.
    GENERATOR_CPU "generator_cpu": "send with larger writes or batches, over more connections, or from a faster CPU"
    /// A thread of the receiver used a CPU whole.
    RECEIVER_CPU "receiver_cpu": "receive on more connections or on a faster CPU"
    /// The program that hands the frames on used a CPU whole.
    FORWARDER_CPU "forwarder_cpu": "give the program faster ports, or take it out of the path"
    /// A CPU was full that an end needed; nobody but the test filled it.
    CPU "cpu": "give each end a CPU of its own (sender-cpu, receiver-cpu)"
    /// A process that is not of the test had the CPU that an end waited for.
    OTHER_WORK "other_work": "end that process, or keep it off the CPUs of the test"
    /// All CPUs of the host were full.
    HOST_CPU "host_cpu": "use a host with more CPUs, or ask for less"
    /// A shaper sent at its rate.
    SHAPER "shaper": "raise the rate of this shaper, or ask for less"
    /// A shaper on the way back of the acknowledgements was at its rate.
    ACK_PATH "ack_path": "raise the rate of this shaper: it holds back acknowledgements, without which no more is sent"
    /// The receiving process was stopped, or stood still for long.
    RECEIVER_STALLED "receiver_stalled": "see who stopped the receiving process, or what it does instead of reading"
    /// The receive buffer holds less than the path has room for.
    RECEIVER_WINDOW "receiver_window": "raise net.ipv4.tcp_rmem at the receiver, or the receive buffer that was asked for"
    /// The send buffer holds less than the path has room for.
    SEND_BUFFER "send_buffer": "raise net.ipv4.tcp_wmem at the sender, or the send buffer that was asked for"
    /// The sending process was stopped.
    GENERATOR_STALLED "generator_stalled": "see who stopped the sending process"
    /// The sending application gave less than the path takes.
    GENERATOR "generator": "look at the sending application: the path would have taken more"
    /// The requested rate was offered.
    SCHEDULE "schedule": "ask for more to find what the path can carry"
    /// Segments were lost, and nothing tells where.
    RETRANSMISSIONS "retransmissions": "observe the nodes on the way (as root: --in NAMESPACE, or pathlab serve --observe there and --via HOST), so that the kernel tells where it drops, or look where a udp-stream of that rate loses frames"
    /// Segments that left one interface did not come to the next, and no kernel dropped them.
    LOST_ON_LINK "lost_on_link": "look at what is between the two interfaces, and at the counters of their cards (ethtool -S: missed, no buffer, errors)"
    /// Segments that had arrived were sent again.
    SPURIOUS_RETRANSMISSIONS "spurious_retransmissions": "nothing was lost: look for parallel ways on which segments overtake each other, or for a delay that jumps"
    /// The congestion window: what TCP dares to have on the way.
    NETWORK "network": "test longer, use another congestion control, or shorten the round trip"
    /// One message at a time: the round trip.
    ROUND_TRIP "round_trip": "shorten the round trip, or have more than one message on the way"
    /// The accept queue of a listening socket was full.
    ACCEPT_QUEUE "accept_queue": "accept faster, or raise the backlog of listen and net.core.somaxconn"
    /// Nothing that was read explains it.
    UNKNOWN "unknown": ""
}

/// What to do about a verdict: that of its row, else that of the drop which has this word.
pub fn advice(word: &str) -> &'static str {
    let row = VERDICTS.iter().find(|row| row.word == word).map(|row| row.advice);
    row.or_else(|| drop::advice_of_verdict(word)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../docs/verdicts.md");

    #[test]
    fn the_documentation_has_the_table() {
        let mut table = String::from("| word | what it says | what to do |\n|---|---|---|\n");
        for VerdictWord { word, meaning, advice } in VERDICTS {
            table += &format!("| `{word}` | {} | {advice} |\n", meaning.trim());
        }
        assert!(DOCS.contains(&table), "docs/verdicts.md must have this table:\n\n{table}");
    }

    #[test]
    fn a_word_has_one_row_and_a_drop_has_its_own_advice() {
        for (at, row) in VERDICTS.iter().enumerate() {
            assert!(VERDICTS[..at].iter().all(|other| other.word != row.word), "{} twice", row.word);
        }
        assert!(advice(RECEIVER_WINDOW).contains("tcp_rmem"));
        assert!(advice("mtu").contains("same MTU") && advice("filter").contains("chain"));
        assert_eq!((advice(UNKNOWN), advice("no_such")), ("", ""));
    }
}
