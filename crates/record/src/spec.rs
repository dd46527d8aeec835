//! What a test is asked to do: the kind of traffic and everything that shapes it.

use crate::kind::TrafficKind;
use crate::rate::Rate;
use serde::{Deserialize, Serialize};

/// Everything that shapes one test. The defaults are those of the default plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestSpec {
    /// The kind of traffic.
    pub kind: TrafficKind,
    /// The node that starts the traffic.
    pub from: String,
    /// The node that it goes to.
    pub to: String,
    /// 4 or 6: the version of IP.
    pub family: u8,
    /// How long to send, in milliseconds. The last message may leave a little later; the report has the real time.
    pub duration_ms: u64,
    /// Payload of one message in bytes: the UDP payload, the ICMP echo data, the request, one `write` of a TCP
    /// stream (there 0 means 128 KiB); for frames the whole frame from the Ethernet header on, without FCS.
    pub size: u32,
    /// Payload of the response in bytes, request/response kinds only (0: as the request).
    pub response: u32,
    /// Requested rate; none means as fast as possible (streams), closed loop (request/response), flood (ping).
    pub rate: Option<Rate>,
    /// Send exactly so many messages and stop, whatever the duration says.
    pub count: Option<u64>,
    /// Parallel TCP connections (1 for all other kinds).
    pub streams: u32,
    /// Datagrams per `sendmmsg`/`recvmmsg` call; 1 means one system call each.
    pub batch: u32,
    /// Datagrams per UDP segmentation-offload send (`UDP_SEGMENT`); 0 is off. Frames on the path may then be
    /// super-frames of so many datagrams.
    pub gso: u32,
    /// Receive merged datagrams (`UDP_GRO`).
    pub gro: bool,
    /// `SO_SNDBUF` in bytes; none leaves what the system gives.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF` in bytes; none leaves what the system gives. A plan and `pathlab test` ask for
    /// [`TestSpec::default_receive_buffer`] if nothing else is said.
    pub receive_buffer: Option<u32>,
    /// Pin the sender's traffic thread to this CPU.
    pub sender_cpu: Option<u32>,
    /// Pin the receiver's traffic thread to this CPU.
    pub receiver_cpu: Option<u32>,
    /// TCP congestion control by name; none leaves the system's.
    pub congestion: Option<String>,
    /// Frames only: the kinds of the ports, `KIND` for both ends or `SENDER/RECEIVER`, each with settings behind a
    /// question mark if need be (`int?bypass=on/ring?frames=4096`); empty means [`TestSpec::PORT`].
    pub port: String,
}

impl TestSpec {
    /// The ports of a frames test that names none. `int` for both: its transmitter passes the queueing discipline as
    /// an application's frames do, its receiver wakes at once, and it works without BPF.
    pub const PORT: &str = "int";

    /// What a test of datagrams asks for, in bytes: room for what arrives while the receiver does not run, so that the path is
    /// measured and not this buffer. It is a bound and not a reservation: the kernel takes memory for what waits.
    pub const RECEIVE_BUFFER: u32 = 64 << 20;

    /// The receive buffer of a test whose plan says nothing: [`TestSpec::RECEIVE_BUFFER`] for datagrams over sockets. TCP keeps
    /// the kernel's own tuning, and frames have no socket.
    pub fn default_receive_buffer(kind: TrafficKind) -> Option<u32> {
        (!kind.is_tcp() && !kind.is_by_port()).then_some(Self::RECEIVE_BUFFER)
    }

    /// One `write` of a TCP stream whose test does not say, in bytes.
    pub const WRITE: u32 = 128 << 10;

    /// Payload bytes of one message.
    pub fn message_size(&self) -> u32 {
        if self.kind.is_bytes() && self.size == 0 { Self::WRITE } else { self.size }
    }

    /// Payload bytes of a response.
    pub fn response_size(&self) -> usize {
        if self.response == 0 { self.size as usize } else { self.response as usize }
    }

    /// The port of the sender without its interface, e.g. `int?bypass=on`.
    pub fn sender_port(&self) -> &str {
        self.ports().0
    }

    /// The port of the receiver without its interface.
    pub fn receiver_port(&self) -> &str {
        self.ports().1
    }

    fn ports(&self) -> (&str, &str) {
        let both = if self.port.is_empty() { Self::PORT } else { &self.port };
        both.split_once('/').unwrap_or((both, both))
    }
}

impl Default for TestSpec {
    fn default() -> Self {
        TestSpec {
            kind: TrafficKind::TcpStream,
            from: "a".into(),
            to: "b".into(),
            family: 4,
            duration_ms: 2000,
            size: 64,
            response: 0,
            rate: None,
            count: None,
            streams: 1,
            batch: 32,
            gso: 0,
            gro: false,
            send_buffer: None,
            receive_buffer: None,
            sender_cpu: None,
            receiver_cpu: None,
            congestion: None,
            port: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_port_is_for_both_ends_or_each_has_its_own() {
        let of = |port: &str| TestSpec { port: port.into(), ..TestSpec::default() };
        let both = of("ring?frames=64");
        assert_eq!((both.sender_port(), both.receiver_port()), ("ring?frames=64", "ring?frames=64"));
        let each = of("int?bypass=on/xdp");
        assert_eq!((each.sender_port(), each.receiver_port()), ("int?bypass=on", "xdp"));
        assert_eq!(of("").sender_port(), TestSpec::PORT);
    }

    proptest! {
        #[test]
        fn any_text_is_a_kind_or_a_sentence(text in ".{0,12}") {
            let _ = text.parse::<TrafficKind>();
        }
    }
}
