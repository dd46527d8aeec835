//! The names under which counters leave: one table, a row a series.
//!
//! **What.** A row has the name, what it is counted in, its labels, and the counter of the [table of counters](record::counter) that it is, from which
//! its help comes. Prometheus, OpenTelemetry and JSON make their names of it: `interface.receive` in frames is
//! `pathlab_interface_receive_frames_total`, `pathlab.interface.receive.frames` and `interface.receive.frames`.
//!
//! **Why one table.** Three lists of names would soon be three vocabularies.

use record::counter;

/// What a series is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Frames.
    Frames,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Segments of TCP.
    Segments,
    /// Socket buffers.
    Buffers,
    /// Messages of a test: datagrams, requests, frames.
    Messages,
    /// Bits per second.
    BitsPerSecond,
    /// A number without a unit: events, a state.
    Number,
}

impl Unit {
    /// The last word of names; none for numbers.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Unit::Frames => Some("frames"),
            Unit::Bytes => Some("bytes"),
            Unit::Seconds => Some("seconds"),
            Unit::Segments => Some("segments"),
            Unit::Buffers => Some("buffers"),
            Unit::Messages => Some("messages"),
            Unit::BitsPerSecond => Some("bits_per_second"),
            Unit::Number => None,
        }
    }

    /// The code of UCUM (<https://ucum.org>), which OpenTelemetry wants.
    pub fn ucum(self) -> &'static str {
        match self {
            Unit::Frames => "{frame}",
            Unit::Bytes => "By",
            Unit::Seconds => "s",
            Unit::Segments => "{segment}",
            Unit::Buffers => "{buffer}",
            Unit::Messages => "{message}",
            Unit::BitsPerSecond => "bit/s",
            Unit::Number => "1",
        }
    }
}

/// One series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Its name without unit, words joined with dots.
    pub name: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// It only grows.
    pub is_count: bool,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The full name of the counter that it is, as [`record::counter::of`] knows it; or what it is, in sentences.
    means: &'static str,
}

impl Series {
    /// The name in JSON, with its unit: `interface.receive.frames`.
    pub fn full_name(&self) -> String {
        self.unit.word().map_or(self.name.to_owned(), |unit| format!("{}.{unit}", self.name))
    }

    /// The name in OpenTelemetry.
    pub fn opentelemetry(&self) -> String {
        format!("pathlab.{}", self.full_name())
    }

    /// The name in Prometheus.
    pub fn prometheus(&self) -> String {
        let total = if self.is_count { "_total" } else { "" };
        format!("pathlab_{}{total}", self.full_name().replace('.', "_"))
    }

    /// The counter that it is; none where it is made of several.
    pub fn counter(&self) -> Option<&'static counter::Counter> {
        let (key, name) = self.means.split_once(':').filter(|_| !self.means.ends_with('.'))?;
        counter::of(key, name)
    }

    /// Whether it is that counter.
    pub fn is(&self, counter: &counter::Counter) -> bool {
        self.means.split_once(':') == Some((counter.source.key, counter.name))
    }

    /// What it means, in sentences.
    pub fn help(&self) -> String {
        match self.counter() {
            Some(row) => format!("{} {}", row.moves, row.traps).trim_end().to_owned(),
            None => self.means.to_owned(),
        }
    }
}

macro_rules! series {
    ($($constant:ident $kind:ident $name:literal $unit:ident $labels:expr, $means:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $means)]
            pub const $constant: Series = Series {
                name: $name, unit: Unit::$unit, is_count: series!($kind), labels: $labels, means: $means,
            };
        )*
        /// Every series, in the order in which they are told.
        pub const SERIES: &[Series] = &[$($constant),*];
    };
    (count) => { true };
    (now) => { false };
}

const INTERFACE: &[&str] = &["node", "interface"];
const QDISC: &[&str] = &["node", "interface", "kind", "handle", "parent"];
const QUEUE: &[&str] = &["node", "interface", "queue"];
const CPU: &[&str] = &["cpu"];
const TCP: &[&str] = &["node", "local", "remote"];
const SOCKET: &[&str] = &["node", "protocol", "local", "remote"];

series! {
    RECEIVE_FRAMES count "interface.receive" Frames INTERFACE, "interface:rx_packets";
    RECEIVE_BYTES count "interface.receive" Bytes INTERFACE, "interface:rx_bytes";
    TRANSMIT_FRAMES count "interface.transmit" Frames INTERFACE, "interface:tx_packets";
    TRANSMIT_BYTES count "interface.transmit" Bytes INTERFACE, "interface:tx_bytes";
    INTERFACE_UP now "interface.up" Number INTERFACE, "1: the interface is up and has a carrier.";
    CARRIER_CHANGES count "interface.carrier_changes" Number INTERFACE, "interface:carrier_changes";
    LINE_RATE now "interface.line_rate" BitsPerSecond INTERFACE, "The speed of the wire; absent where there is none.";
    DROPS count "drops" Frames &["node", "interface", "name", "counter"],
        "Frames that were lost, by the name of the ledger and the counter that says so. One loss may be in several counters ('pathlab explain COUNTER'): never add different names or counters.";
    QDISC_FRAMES count "qdisc.sent" Frames QDISC, "qdisc:packets";
    QDISC_BYTES count "qdisc.sent" Bytes QDISC, "qdisc:bytes";
    QDISC_DROPS count "qdisc.drops" Frames QDISC, "qdisc:drops";
    QDISC_OVERLIMITS count "qdisc.overlimits" Number QDISC, "qdisc:overlimits";
    QDISC_REQUEUES count "qdisc.requeues" Number QDISC, "qdisc:requeues";
    QDISC_WAITING_FRAMES now "qdisc.backlog" Frames QDISC, "qdisc:qlen";
    QDISC_WAITING_BYTES now "qdisc.backlog" Bytes QDISC, "qdisc:backlog_bytes";
    QUEUE_RECEIVE count "queue.receive" Frames QUEUE, "queue:rx_packets";
    QUEUE_LOST count "queue.lost" Number &["node", "interface", "queue", "counter"],
        "What a receive queue lost, by the counter of its driver; some contain others ('pathlab explain queue:COUNTER').";
    QUEUE_INFLIGHT now "queue.transmit.inflight" Bytes QUEUE, "bql:inflight_bytes";
    QUEUE_LIMIT now "queue.transmit.limit" Bytes QUEUE, "bql:limit_bytes";
    CPU_TIME count "cpu.time" Seconds &["cpu", "role"],
        "CPU time by role, in ticks of the kernel: user (nice left out), nice, system, irq, softirq, steal, idle.";
    SOFTNET_PROCESSED count "softnet.processed" Frames CPU, "softnet:processed";
    SOFTNET_DROPPED count "softnet.dropped" Frames CPU, "softnet:dropped";
    SOFTNET_SQUEEZED count "softnet.squeezed" Number CPU, "softnet:time_squeeze";
    SOFTNET_RPS count "softnet.received_rps" Number CPU, "softnet:received_rps";
    SOFTNET_FLOW_LIMIT count "softnet.flow_limit" Frames CPU, "softnet:flow_limit";
    SOFTNET_BACKLOG now "softnet.backlog" Frames CPU, "softnet:backlog";
    BUDGET_ENDS count "softnet.budget_ends" Number &[], "poll:budget_ends";
    INTERRUPTS count "interrupts" Number &["irq", "handlers"], "interrupt:interrupts";
    PROTOCOL count "protocol" Number &["node", "counter"],
        "Counters of protocols by the names of /proc/net/snmp, netstat and snmp6; each has a unit and traps of its own ('pathlab explain COUNTER').";
    TCP_ACKNOWLEDGED count "tcp.acknowledged" Bytes TCP, "tcp_info:bytes_acked";
    TCP_RECEIVED count "tcp.received" Bytes TCP, "tcp_info:bytes_received";
    TCP_SENT_AGAIN count "tcp.sent_again" Segments TCP, "tcp_info:total_retrans";
    TCP_BUSY count "tcp.busy" Seconds TCP, "tcp_info:busy_time";
    TCP_RECEIVER_WINDOW count "tcp.receiver_window" Seconds TCP, "tcp_info:rwnd_limited";
    TCP_SEND_BUFFER count "tcp.send_buffer" Seconds TCP, "tcp_info:sndbuf_limited";
    TCP_RTT now "tcp.round_trip" Seconds TCP, "tcp_info:rtt";
    TCP_CWND now "tcp.congestion_window" Segments TCP, "tcp_info:snd_cwnd";
    TCP_UNREAD now "tcp.unread" Bytes TCP, "Bytes that the application has not read.";
    TCP_UNACKNOWLEDGED now "tcp.unacknowledged" Bytes TCP, "Bytes that the other end has not acknowledged, unsent ones included.";
    SOCKET_DROPS count "socket.drops" Frames SOCKET, "socket:drops";
    SOCKET_RECEIVE_QUEUE now "socket.receive_queue" Bytes SOCKET, "socket:receive_queue_bytes";
    SOCKET_SEND_QUEUE now "socket.send_queue" Bytes SOCKET, "socket:send_queue_bytes";
    PACKET_SOCKET_DROPS count "packet_socket.drops" Buffers &["node", "interface", "inode"], "packet_socket:packet_drops";
    SOCKETS_LEFT_OUT now "sockets.left_out" Number &["kind"],
        "Sockets that have no series of their own because there are more than --sockets.";
    READING_CPU now "reading.cpu" Seconds &[], "CPU time that this reading cost.";
    READING_SKEW now "reading.skew" Seconds &[], "Time between the first and the last counter of this reading.";
    MISSING now "missing" Number &["what"], "A source that could not be read, with the reason: its series are absent, not 0.";
    TEST_DURATION now "test.duration" Seconds &[], "How long the traffic of a test flowed, at the end that counts.";
    TEST_OFFERED count "test.offered" Messages &[], "Messages that the sender of a test tried to send.";
    TEST_SENT count "test.sent" Messages &[], "Messages of a test that the kernel took from the sender.";
    TEST_RECEIVED count "test.received" Messages &[], "Different messages of a test that arrived.";
    TEST_THROUGHPUT now "test.throughput" BitsPerSecond &[], "Payload of a test that arrived.";
    TEST_LATENCY now "test.latency" Seconds &["latency", "percentile"],
        "Latency of the messages of a test; what it is from and to is the label latency.";
    TEST_VALIDITY now "test.validity" Number &["verdict"], "1; whether the figures of a test are valid, suspect or invalid.";
    LEDGER_DROPS count "ledger.drops" Frames &["leg", "node", "station", "name", "source"],
        "Frames of a test that were lost, where and under which name of the ledger. These may be added up: the ledger names each loss once.";
    LEDGER_RESIDUAL now "ledger.residual" Frames &["leg", "node", "station"], "Frames of a test that a station cannot account for.";
    LEDGER_UNEXPLAINED now "ledger.unexplained" Frames &[], "The sum of the residuals of a test.";
    BUILD now "build" Number &["version"], "1; the version of pathlab.";
}

/// The series of that name: of JSON, of OpenTelemetry or of Prometheus.
pub fn named(name: &str) -> Option<&'static Series> {
    SERIES.iter().find(|series| {
        series.full_name() == name || series.opentelemetry() == name || series.prometheus() == name
    })
}
