//! The state of a TCP socket over time, and what held it back.

use serde::{Deserialize, Serialize};

/// One reading of `TCP_INFO` (`include/uapi/linux/tcp.h`). Fields that the kernel did not return are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Nanoseconds since the test's first byte.
    pub at_ns: u64,
    /// Which connection, from 0.
    pub stream: u32,
    /// Congestion state (0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss).
    pub ca_state: u8,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Lowest round-trip time in microseconds.
    pub min_rtt_us: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments.
    pub ssthresh: u32,
    /// Send maximum segment size in bytes.
    pub snd_mss: u32,
    /// Peer's window in bytes, if told.
    pub snd_wnd: Option<u32>,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// The delivery rate was limited by the application.
    pub app_limited: bool,
    /// Pacing rate in bytes per second.
    pub pacing_rate: u64,
    /// Time busy sending, in microseconds; contains the next two.
    pub busy_us: u64,
    /// Part of busy: waiting for the receiver's window.
    pub rwnd_limited_us: u64,
    /// Part of busy: waiting for room in the send buffer.
    pub sndbuf_limited_us: u64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Bytes retransmitted.
    pub bytes_retrans: u64,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes in the send buffer that were not sent yet.
    pub notsent_bytes: u32,
    /// Segments retransmitted.
    pub total_retrans: u32,
    /// Retransmission time-outs, if told.
    pub total_rto: Option<u16>,
    /// Segments seen out of order at the receiver.
    pub rcv_ooopack: u32,
    /// Segments that the peer said it had received twice (D-SACK): they were sent again for nothing.
    #[serde(default)]
    pub dsack_dups: u32,
    /// Times that the sender saw segments overtake others.
    #[serde(default)]
    pub reord_seen: u32,
    /// The receive window that the kernel thinks the reader needs, in bytes.
    #[serde(default)]
    pub rcv_space: u32,
    /// The largest receive window that the kernel would offer now, in bytes.
    #[serde(default)]
    pub rcv_ssthresh: u32,
    /// The receive window as it was last offered, in bytes, if told.
    #[serde(default)]
    pub rcv_wnd: Option<u32>,
    /// The path's MTU as the sender believes it, in bytes.
    #[serde(default)]
    pub pmtu: u32,
    /// Bytes that lay in the receive buffer and that nobody had read, if told.
    #[serde(default)]
    pub unread_bytes: Option<u32>,
}

/// Exact decomposition of the sender's time (kernel `tcp_chrono`: busy contains the other two).
/// Times in microseconds; the kernel counts in jiffies, so each part is uncertain by one jiffy per change of state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpDecomposition {
    /// Wall time of the window, times the number of connections.
    pub wall_us: u64,
    /// The application gave nothing to send: wall − busy.
    pub application_us: u64,
    /// The receiver's window was full.
    pub receiver_window_us: u64,
    /// The send buffer was too small.
    pub send_buffer_us: u64,
    /// The network (congestion window, pacing, in flight): busy − receiver window − send buffer.
    pub network_us: u64,
    /// Bytes retransmitted in the window.
    pub retransmitted_bytes: u64,
    /// Segments retransmitted in the window.
    #[serde(default)]
    pub retransmitted_segments: u64,
    /// Part of the segments: those that the receiver already had (D-SACK).
    #[serde(default)]
    pub needless_segments: u64,
    /// Retransmission time-outs in the window.
    #[serde(default)]
    pub timeouts: u64,
}
