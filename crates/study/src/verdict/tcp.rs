//! Why a TCP stream is as slow as it is.
//!
//! **What.** One function a cause, tried in the order of [`CAUSES`]: the most specific first, each with the evidence that convicts it.
//!
//! **Why not the shares of the sender's time alone.** The kernel's three clocks say what the sender waited for, not why, and they
//! call *network* whatever is not certain: a reader that is stopped delays its acknowledgements, a window of one segment is always on the
//! way, a full CPU lets acknowledgements come late. So the causes are read where they are: the CPU time and the waiting of both threads, the
//! state of both processes, the windows and buffers, what was lost where, and what was sent again for nothing.
//!
//! **Price.** Thresholds. Each is a constant with its reason; between them the answer is the largest share, or unknown.

use super::{convict, delta, first, has_one_host, shaper, shaper_of};
use record::drop;
use record::ledger::WitnessDrop;
use record::snapshot::{CpuTime, QdiscSample};
use record::tcp::TcpDecomposition;
use record::unit::{self, time_ns};
use record::verdict;
use record::{ActorUsage, EndReport, Limit, OtherWork, TcpSample, TestRecord};
use std::ops::RangeInclusive;

/// Share of the bytes that were lost from which that is what limits a stream, whatever else is full.
const MANY: f64 = 0.01;
/// Share of the bytes that were sent again for nothing from which that is what limits a stream, whatever else is full. As fast as two CPUs could,
/// streams over a router had 1.0 to 1.3 % (a virtual machine, 10 Gbit/s), and the sender's CPU was full.
const MANY_NEEDLESS: f64 = 0.02;
/// The same, where nothing else is full.
const SOME_NEEDLESS: f64 = 0.001;
/// Share of the bytes that were lost, where nothing else is full: at 0.02 % a window of 60 segments is the most (Mathis).
const SOME: f64 = 0.0002;
/// Time that a thread waited for a CPU, in percent, from which that counts.
const WAITED: f64 = 10.0;
/// Use of one CPU, in percent, from which a thread of a stream has no time left: it also sleeps between bursts, because the other end's
/// thread does.
const FULL_THREAD: f64 = 80.0;
/// Use of a CPU, in percent, from which it is full.
const FULL_CPU: f64 = 95.0;
/// Time that a process was stopped, in percent, from which that counts.
const STOPPED: f64 = 20.0;
/// The kernel's reasons for segments that came a second time, beside `TCP_OLD_*`: merged with what had come out of order; or so late that
/// the sender had repeated them meanwhile, which their timestamps tell.
const DUPLICATES: [&str; 2] = ["TCP_OFOMERGE", "TCP_RFC7323_PAWS"];
/// `TCP_CA_Loss`: the sender waits for a time-out of its retransmission.
const LOSS: u8 = 4;
/// A window of fewer segments is small however fast the reader is.
const FEW_SEGMENTS: u64 = 4;
/// Processes nicer than this get a CPU only when nobody else wants it.
const LOW_PRIORITY: i32 = 10;

/// The causes, most specific first.
const CAUSES: &[super::Suspect] = &[
    black_hole,
    shaper_forward,
    stopped_receiver,
    stopped_sender,
    taken_cpu,
    many_spurious,
    many_lost,
    shaper_back,
    small_window,
    small_buffer,
    other_work,
    same_cpu,
    seen_work,
    nameless_work,
    low_priority_work,
    shared_cpu,
    full_forwarder,
    full_thread,
    full_host,
    some_spurious,
    some_lost,
    full_cpu,
    full_wait,
];

/// What limited a stream.
pub(super) fn stream(test: &TestRecord) -> Option<Limit> {
    let parts = test.tcp.filter(|parts| parts.wall_us > 0 && test.spec.kind.is_bytes())?;
    let cause = cause(test).unwrap_or_else(|| network(test));
    let evidence = format!("{}; {}", cause.evidence, shares(&parts));
    let sentence = format!("{}; {}.", cause.sentence.trim_end_matches('.'), shares(&parts));
    Some(Limit { evidence, sentence, ..cause })
}

/// What held a stream back beside the congestion window.
pub(super) fn cause(test: &TestRecord) -> Option<Limit> {
    first(test, CAUSES)
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn shares(parts: &TcpDecomposition) -> String {
    let share = |part| percent(part, parts.wall_us);
    format!(
        "the sender's time: application {:.0} %, receiver window {:.0} %, send buffer {:.0} %, network {:.0} %",
        share(parts.application_us),
        share(parts.receiver_window_us),
        share(parts.send_buffer_us),
        share(parts.network_us)
    )
}

// What was sent again.

/// What was sent again, and its share of the bytes. One acknowledgement tells of one duplicate at most, so where the kernel told of more
/// (root only), that counts. What the kernel saw lost on the way there was not sent again for nothing: then the path made the duplicates.
fn again(test: &TestRecord) -> Option<(TcpDecomposition, f64)> {
    let mut parts = test.tcp.filter(|parts| parts.retransmitted_bytes > 0)?;
    let duplicates = test.kernel_drops.iter().filter(|drop| drop.node == test.spec.to && is_duplicate(drop));
    let duplicates = duplicates.map(|drop| drop.frames).fold(0, u64::saturating_add);
    let can_be = parts.retransmitted_segments.saturating_sub(lost_on_the_way_there(test));
    parts.needless_segments = parts.needless_segments.max(duplicates).min(can_be);
    Some((parts, parts.retransmitted_bytes as f64 / test.sender.sent_bytes.max(1) as f64))
}

/// Share of the segments sent again that the receiver already had.
fn needless(parts: &TcpDecomposition) -> f64 {
    (parts.needless_segments as f64 / parts.retransmitted_segments.max(1) as f64).min(1.0)
}

/// TCP had to send much again, in words.
pub(super) fn sent_again(test: &TestRecord) -> Option<String> {
    let (parts, share) = again(test)?;
    (share >= MANY).then(|| words_of(&parts, share))
}

fn words_of(parts: &TcpDecomposition, share: f64) -> String {
    let bytes = unit::count(parts.retransmitted_bytes);
    let needless = match parts.needless_segments {
        0 => String::new(),
        many => format!(
            ", {} of {} segments for nothing",
            unit::count(many),
            unit::count(parts.retransmitted_segments)
        ),
    };
    format!("TCP sent {:.2} % of its bytes again ({bytes} bytes{needless})", share * 100.0)
}

pub(super) fn many_lost(test: &TestRecord) -> Option<Limit> {
    lost(test, MANY)
}

fn some_lost(test: &TestRecord) -> Option<Limit> {
    lost(test, SOME)
}

/// Segments that were really lost, as a share of all, and where.
fn lost(test: &TestRecord, least: f64) -> Option<Limit> {
    let (parts, share) = again(test)?;
    (share * (1.0 - needless(&parts)) >= least).then_some(())?;
    let again = words_of(&parts, share);
    let most = lost_at_most(test);
    let Some(lost) = place_of_loss(test, most) else {
        let really = parts.retransmitted_segments.saturating_sub(parts.needless_segments);
        let on_link = lost_on_link(test, really.div_ceil(2)..=most).map(|(place, evidence)| {
            let claim = format!("Segments lost between {place} limited it");
            convict(verdict::LOST_ON_LINK, &place, &format!("{evidence}; {again}"), &claim)
        });
        let nowhere = || convict(verdict::RETRANSMISSIONS, "", &again, "Lost segments limited it");
        return Some(on_link.unwrap_or_else(nowhere));
    };
    let Lost { place, name, evidence } = lost;
    let claim = format!("Segments lost at {place} limited it");
    Some(convict(drop::verdict(&name), &place, &format!("{evidence}; {again}"), &claim))
}

/// Requests were sent and none was answered: neither the schedule nor a CPU is the limit then. TCP has no ledger, so the kernel's word on
/// drops is all there is, whichever way they went.
pub(super) fn unanswered(test: &TestRecord) -> Option<Limit> {
    let is_closed = test.spec.kind.is_round_trip() && test.spec.kind.is_tcp();
    let none_came =
        test.sender.unique == 0 && test.sender.latency.as_ref().is_none_or(|timed| timed.count == 0);
    (is_closed && none_came && test.sender.attempted > 0).then_some(())?;
    let mut told = format!("none of {} was answered", unit::many(test.sender.attempted, "request"));
    if let Some((parts, share)) = again(test) {
        told += &format!("; {}", words_of(&parts, share));
    }
    first(test, &[black_hole, stopped_receiver]).or_else(|| match place_of_loss(test, u64::MAX) {
        Some(Lost { place, name, evidence }) => {
            let claim = format!("Segments lost at {place} limited it");
            Some(convict(drop::verdict(&name), &place, &format!("{evidence}; {told}"), &claim))
        }
        None => Some(convict("unknown", "", &format!("{told}, and nothing tells why"), super::UNKNOWN)),
    })
}

/// Where segments were lost.
struct Lost {
    place: String,
    name: String,
    evidence: String,
}

/// Where most segments were lost, of places that lost no more than that.
fn place_of_loss(test: &TestRecord, most: u64) -> Option<Lost> {
    worst_drop(test, most).or_else(|| worst_queue(test))
}

/// The link that let out fewest of the segments that were counted into it, where so many of them are missing that they are most of those which were lost, and
/// how many.
fn lost_on_link(test: &TestRecord, many: RangeInclusive<u64>) -> Option<(String, String)> {
    let (link, missing) =
        crate::way::worst_link(test, "forward").filter(|(_, missing)| many.contains(missing))?;
    let (from, to) = (link.hop.egress.as_deref()?, link.next.as_ref()?);
    let place = format!("{}:{from} and {}:{}", link.hop.node, to.node, to.ingress.as_deref()?);
    let [missing, entered] = [missing, link.entered].map(unit::count);
    let evidence =
        format!("{missing} of {entered} segments that left by the one did not come in by the other");
    Some((place, evidence))
}

/// The kernel's own word: the place of most drops that may be those which were lost.
fn worst_drop(test: &TestRecord, most: u64) -> Option<Lost> {
    let may_be = |drop: &&WitnessDrop| drop.frames <= most && !is_no_loss(drop);
    let worst = test.kernel_drops.iter().filter(may_be).max_by_key(|drop| drop.frames)?;
    let interface = worst.interface.as_deref().unwrap_or("no interface");
    let (mut name, mut limit) = (name_of(worst), None);
    if let Some(qdisc) = queue(test, &worst.node, interface).filter(|_| name == drop::QDISC_FULL) {
        (name, limit) = (of_queue(worst, qdisc).into(), Some(queue_words(qdisc)));
    }
    let station = if limit.is_some() { "qdisc " } else { "" };
    let (frames, function) = (unit::count(worst.frames), worst.location.as_deref().unwrap_or("?"));
    let limit = limit.map_or(String::new(), |limit| format!(", {limit}"));
    Some(Lost {
        place: format!("node {}, {station}{interface}", worst.node),
        name,
        evidence: format!(
            "the kernel dropped {frames} segments there: {} in {function}{limit}",
            worst.reason
        ),
    })
}

fn name_of(drop: &WitnessDrop) -> String {
    let name = drop::one_of_kernel(&drop.reason, drop.location.as_deref());
    name.map_or(drop.reason.to_lowercase(), |row| row.name.to_owned())
}

/// What the receiver threw away because it had it.
fn is_duplicate(drop: &WitnessDrop) -> bool {
    drop.reason.starts_with("TCP_OLD_") || DUPLICATES.contains(&drop.reason.as_str())
}

/// What ended in the kernel and is no loss: duplicates, and copies that an interface took which listens to all frames.
fn is_no_loss(drop: &WitnessDrop) -> bool {
    is_duplicate(drop) || drop.reason == "OTHERHOST"
}

/// Segments that the kernel saw lost where they left an interface on the way there.
fn lost_on_the_way_there(test: &TestRecord) -> u64 {
    let most = lost_at_most(test);
    let is_there = |drop: &&WitnessDrop| {
        let leaves = |hop: &record::Hop| hop.node == drop.node && hop.egress == drop.interface;
        drop.interface.is_some() && test.path.forward.iter().any(leaves)
    };
    let ours = test.kernel_drops.iter().filter(|drop| drop.frames <= most && !is_no_loss(drop));
    ours.filter(is_there).map(|drop| drop.frames).fold(0, u64::saturating_add)
}

/// Segments that were sent and never acknowledged, as far as they are known, and some more for those of the other direction.
fn lost_at_most(test: &TestRecord) -> u64 {
    let last = last_of(&test.sender.tcp);
    let unacknowledged = |sample: &TcpSample| {
        sample.bytes_sent.saturating_sub(sample.bytes_acked) / u64::from(sample.snd_mss.max(1))
    };
    let segments = last.iter().map(|sample| unacknowledged(sample)).fold(0, u64::saturating_add);
    segments.saturating_add(segments / 5).saturating_add(10)
}

/// The last reading of each connection.
fn last_of(samples: &[TcpSample]) -> Vec<&TcpSample> {
    let mut last: Vec<&TcpSample> = vec![];
    for sample in samples {
        match last.iter_mut().find(|known| known.stream == sample.stream) {
            Some(known) => *known = sample,
            None => last.push(sample),
        }
    }
    last
}

/// Without the kernel's word: the queue on the way there that dropped most.
fn worst_queue(test: &TestRecord) -> Option<Lost> {
    let queues = test.path.forward.iter().filter_map(|hop| {
        let interface = hop.egress.as_deref()?;
        let drops =
            |snapshot: &record::Snapshot| Some(snapshot.nodes.get(&hop.node)?.root_qdisc(interface)?.drops);
        let dropped = record::Delta::of(drops(&test.before)?, drops(&test.after)?).known()?;
        Some((dropped, &hop.node, interface))
    });
    let (dropped, node, interface) = queues.filter(|queue| queue.0 > 0).max_by_key(|queue| queue.0)?;
    let queue = queue(test, node, interface)?;
    Some(Lost {
        place: format!("node {node}, qdisc {interface}"),
        name: queue.drop_name().into(),
        evidence: format!("{} dropped {}", queue_words(queue), unit::many(dropped, "buffer")),
    })
}

/// The queueing discipline of an interface.
fn queue<'t>(test: &'t TestRecord, node: &str, interface: &str) -> Option<&'t QdiscSample> {
    test.after.nodes.get(node)?.root_qdisc(interface)
}

/// What a drop of a queueing discipline was: the queue inside a netem frees what it has no room for when that would go on.
fn of_queue(drop: &WitnessDrop, root: &QdiscSample) -> &'static str {
    let is_inside = drop.location.as_deref().is_some_and(|function| function.contains("dequeue"));
    if is_inside { drop::QDISC_FULL } else { root.drop_name() }
}

/// `tbf limit 6,000`.
fn queue_words(qdisc: &QdiscSample) -> String {
    let limit = qdisc.limit.map_or(String::new(), |limit| format!(" limit {}", unit::count(limit)));
    format!("{}{limit}", qdisc.kind)
}

/// A link too small for the segments, and no word of it reached the sender: the loss is all or nothing, so any is enough.
pub(super) fn black_hole(test: &TestRecord) -> Option<Limit> {
    let (parts, share) = again(test)?;
    let in_loss = last_of(&test.sender.tcp).iter().any(|sample| sample.ca_state == LOSS);
    (share >= MANY || in_loss).then_some(())?;
    let is_too_long = |drop: &&WitnessDrop| name_of(drop) == drop::MTU_EXCEEDED;
    let place = |node: &str| format!("node {node}");
    let told = test.kernel_drops.iter().filter(is_too_long).max_by_key(|drop| drop.frames);
    let counted = || {
        let refused = |node: &String| delta(test, node, "Ip.FragFails").known().filter(|&fails| fails > 0);
        test.after.nodes.keys().find_map(|node| Some((node, refused(node)?)))
    };
    let (place, found) = match told {
        Some(drop) => (
            place(&drop.node),
            format!("{} frames were too long there ({})", unit::count(drop.frames), drop.reason),
        ),
        None => {
            let (node, fails) = counted()?;
            (place(node), format!("{} frames were too long there (FragFails)", unit::count(fails)))
        }
    };
    let mtu = last_of(&test.sender.tcp).first().map_or(0, |sample| sample.pmtu);
    let timeouts = unit::many(parts.timeouts, "time-out");
    let evidence = format!(
        "{found}, and the sender still believes in an MTU of {mtu}; {}, {timeouts}",
        words_of(&parts, share)
    );
    let claim = format!("A link behind {place} that is too small for the segments limited it");
    Some(convict(drop::verdict(drop::MTU_EXCEEDED), &place, &evidence, &claim))
}

fn many_spurious(test: &TestRecord) -> Option<Limit> {
    spurious(test, MANY_NEEDLESS)
}

fn some_spurious(test: &TestRecord) -> Option<Limit> {
    spurious(test, SOME_NEEDLESS)
}

/// What had arrived was sent again: each time the sender believes in a loss and halves its window.
fn spurious(test: &TestRecord, least: f64) -> Option<Limit> {
    let (parts, share) = again(test)?;
    let needless = needless(&parts);
    (needless >= 0.5 && share * needless >= least).then_some(())?;
    let overtaken: u32 = last_of(&test.sender.tcp).iter().map(|sample| sample.reord_seen).sum();
    let late = delta(test, &test.spec.from, "TcpExt.TCPSpuriousRTOs");
    let evidence = format!(
        "{}; segments were overtaken {}, time-outs for nothing: {late}",
        words_of(&parts, share),
        unit::many(overtaken.into(), "time")
    );
    let claim = "Segments that were sent again although they had arrived limited it";
    Some(convict(verdict::SPURIOUS_RETRANSMISSIONS, "", &evidence, claim))
}

// Shapers.

fn shaper_forward(test: &TestRecord) -> Option<Limit> {
    shaper_of(test, &test.path.forward)?;
    shaper(test)
}

fn shaper_back(test: &TestRecord) -> Option<Limit> {
    let (place, evidence) = shaper_of(test, &test.path.back)?;
    let claim = format!("The shaper of the way back at {place} limited it");
    Some(convict(verdict::ACK_PATH, &place, &evidence, &claim))
}

// The two ends.

/// One end and what its threads had of the CPUs, in percent of the time of the traffic, on average; 0 where that was too short to tell.
struct End<'a> {
    role: &'static str,
    node: &'a str,
    ran: f64,
    waited: f64,
    cpu: Option<u32>,
}

impl End<'_> {
    fn words(&self) -> String {
        format!(
            "the {} ran {:.0} % and waited for a CPU {:.0} % of the time",
            self.role, self.ran, self.waited
        )
    }
}

fn ends(test: &TestRecord) -> [End<'_>; 2] {
    let streams = u64::from(test.spec.streams.max(1));
    let end = |role, node, report: &EndReport| {
        let span = report.cpu_span_ns().map(|span| span.saturating_mul(streams));
        let share = |part| span.map_or(0.0, |span| percent(part, span));
        let (ran, waited) = (share(report.thread_cpu_ns), share(report.thread_wait_ns));
        End { role, node, ran, waited, cpu: report.settings.cpu }
    };
    [end("sender", &test.spec.from, &test.sender), end("receiver", &test.spec.to, &test.receiver)]
}

fn stopped(test: &TestRecord, role: &str) -> Option<String> {
    let stopped = |actor: &&ActorUsage| actor.role == role && actor.stopped_percent >= STOPPED;
    let actor = test.actors.iter().find(stopped)?;
    Some(format!(
        "the process of the {role} was stopped (state T) for {:.0} % of the time",
        actor.stopped_percent
    ))
}

fn stopped_receiver(test: &TestRecord) -> Option<Limit> {
    let stood = || super::stalled(test).filter(|_| reader_holds_back(test));
    let evidence = stopped(test, "receiver").or_else(stood)?;
    let place = format!("node {}", test.spec.to);
    Some(convict(verdict::RECEIVER_STALLED, &place, &evidence, "A receiver that stood still limited it"))
}

/// The sender mostly waited for the receiver's window.
fn reader_holds_back(test: &TestRecord) -> bool {
    test.tcp.is_some_and(|parts| parts.receiver_window_us * 2 >= parts.wall_us)
}

fn stopped_sender(test: &TestRecord) -> Option<Limit> {
    let evidence = stopped(test, "sender")?;
    let place = format!("node {}", test.spec.from);
    Some(convict(verdict::GENERATOR_STALLED, &place, &evidence, "A sender that was stopped limited it"))
}

/// The ends that waited long for a CPU, the one that waited most first.
fn waiting(test: &TestRecord) -> Vec<End<'_>> {
    let mut waiting: Vec<End<'_>> = ends(test).into_iter().filter(|end| end.waited >= WAITED).collect();
    waiting.sort_by(|one, other| other.waited.total_cmp(&one.waited));
    waiting
}

/// Another process had what an end waited for.
fn other_work(test: &TestRecord) -> Option<Limit> {
    let by =
        |could: fn(&OtherWork) -> bool| waiting(test).into_iter().find_map(|end| work_of(test, &end, could));
    by(|one| one.nice < LOW_PRIORITY)
}

/// An end that may run on one CPU alone, which another process had: what comes late and out of order by that is sent again for nothing.
fn taken_cpu(test: &TestRecord) -> Option<Limit> {
    let pinned = |end: &End<'_>| end.cpu.is_some();
    let could = |one: &OtherWork| one.nice < LOW_PRIORITY;
    waiting(test).into_iter().filter(pinned).find_map(|end| work_of(test, &end, could))
}

/// Work of low priority had it, and nobody else: an end that may run on one CPU alone has to share that.
fn low_priority_work(test: &TestRecord) -> Option<Limit> {
    let pinned = |end: &End<'_>| end.cpu.is_some();
    waiting(test).into_iter().filter(pinned).find_map(|end| work_of(test, &end, |_| true))
}

/// Other processes on the CPU of an end, if they had it for long enough to explain its waiting.
fn work_of(test: &TestRecord, end: &End<'_>, could: fn(&OtherWork) -> bool) -> Option<Limit> {
    let here = |one: &&OtherWork| could(one) && end.cpu.is_none_or(|cpu| cpu == one.cpu);
    let strangers = test.others.iter().filter(|one| !one.is_for_the_test());
    let others: Vec<&OtherWork> = strangers.filter(here).collect();
    let had: f64 = others.iter().map(|one| one.cpu_percent).sum();
    (had * 2.0 >= end.waited).then_some(())?;
    let told = others.iter().take(3).map(|one| {
        let OtherWork { name, pid, cpu, cpu_percent, nice } = one;
        format!("'{name}' (process {pid}, nice {nice}) used {cpu_percent:.0} % of CPU {cpu}")
    });
    let told: Vec<String> = told.collect();
    let place = cpu_words(others.first().map(|one| one.cpu));
    let evidence = format!("{}; {}", told.join(", "), end.words());
    Some(convict(verdict::OTHER_WORK, &place, &evidence, &format!("Other work on {place} limited it")))
}

/// What the scheduler's own events tell (`run --profile`): also of processes that began or ended meanwhile.
fn seen_work(test: &TestRecord) -> Option<Limit> {
    waiting(test).into_iter().find_map(|end| {
        let taker = crate::time::taker_of(test, end.role)?;
        let place = cpu_words(Some(taker.cpu));
        let claim = format!("Other work on {place} limited it");
        Some(convict(verdict::OTHER_WORK, &place, &end.words(), &claim))
    })
}

/// Processes that began or ended meanwhile have no name, but what the CPU did beside the ends tells of them.
fn nameless_work(test: &TestRecord) -> Option<Limit> {
    waiting(test).into_iter().find_map(|end| {
        let is_here = |row: &&CpuTime| end.cpu.is_none_or(|cpu| cpu == row.cpu);
        let busy = |row: &CpuTime| percent(row.busy(), row.total());
        let all: f64 = test.cpu.iter().filter(is_here).map(busy).sum();
        let of_ends = ends(test).into_iter().filter(|one| end.cpu.is_none() || one.cpu == end.cpu);
        let named = test.others.iter().filter(|one| end.cpu.is_none_or(|cpu| cpu == one.cpu));
        let known = [
            of_ends.map(|one| one.ran).sum::<f64>(),
            named.map(|one| one.cpu_percent).sum(),
            programs(test).map(|program| program.cpu_percent).sum(),
        ];
        let others = all - known.iter().sum::<f64>();
        (others >= end.waited.max(2.0 * WAITED) / 2.0).then_some(())?;
        let place = cpu_words(end.cpu);
        let evidence =
            format!("processes that began or ended meanwhile used {others:.0} % of a CPU; {}", end.words());
        Some(convict(verdict::OTHER_WORK, &place, &evidence, &format!("Other work on {place} limited it")))
    })
}

fn cpu_words(cpu: Option<u32>) -> String {
    cpu.map_or("the host".into(), |cpu| format!("CPU {cpu}"))
}

/// The CPU that both ends are pinned to; CPUs of two hosts are not the same.
fn common_cpu(test: &TestRecord) -> Option<u32> {
    let [sender, receiver] = ends(test);
    sender.cpu.filter(|_| sender.cpu == receiver.cpu && has_one_host(test))
}

fn same_cpu(test: &TestRecord) -> Option<Limit> {
    common_cpu(test)?;
    shared_cpu(test)
}

/// The ends waited for a CPU, and nobody else had it. Two hosts share none.
fn shared_cpu(test: &TestRecord) -> Option<Limit> {
    waiting(test).first().filter(|_| has_one_host(test))?;
    let [sender, receiver] = ends(test);
    let common = common_cpu(test);
    let place = cpu_words(common);
    let busy = common.and_then(|cpu| test.cpu.iter().find(|row| row.cpu == cpu)).map(busy_words);
    let busy = busy.map_or(String::new(), |busy| format!("; {busy}"));
    let evidence = format!("{}, {}{busy}", sender.words(), receiver.words());
    let claim = format!("The two ends had to share {}", common.map_or("the CPUs".into(), |_| place.clone()));
    Some(convict(verdict::CPU, &place, &evidence, &claim))
}

/// `CPU 0 was 99 % busy (user 2 %, system 55 %, soft interrupts 42 %)`.
fn busy_words(row: &CpuTime) -> String {
    let share = |part| percent(part, row.total());
    format!(
        "CPU {} was {:.0} % busy (user {:.0} %, system {:.0} %, interrupts {:.0} %)",
        row.cpu,
        share(row.busy()),
        share(row.user),
        share(row.system),
        share(row.irq + row.softirq)
    )
}

/// The programs of the lab that hand frames on.
fn programs(test: &TestRecord) -> impl Iterator<Item = &ActorUsage> {
    test.actors.iter().filter(|actor| !matches!(actor.role.as_str(), "sender" | "receiver"))
}

/// A program in between has no time left.
fn full_forwarder(test: &TestRecord) -> Option<Limit> {
    let actor = programs(test).find(|program| program.cpu_percent >= FULL_CPU)?;
    let place = format!("node {}", actor.node);
    let evidence = format!("the {} used {:.0} % of a CPU", actor.role, actor.cpu_percent);
    Some(convict(
        verdict::FORWARDER_CPU,
        &place,
        &evidence,
        &format!("The CPU of the {} on {place} limited it", actor.role),
    ))
}

/// The thread of an end has no time left.
fn full_thread(test: &TestRecord) -> Option<Limit> {
    let [sender, receiver] = ends(test);
    let (end, word) = match sender.ran >= receiver.ran {
        true => (sender, verdict::GENERATOR_CPU),
        false => (receiver, verdict::RECEIVER_CPU),
    };
    (end.ran + end.waited >= FULL_THREAD).then_some(())?;
    let place = format!("node {}", end.node);
    let claim = format!("The CPU of the {} on {place} limited it", end.role);
    Some(convict(word, &place, &end.words(), &claim))
}

/// An end waited for a CPU of its host, all of which were full; where both ends are on one host, more is known.
fn full_host(test: &TestRecord) -> Option<Limit> {
    waiting(test).into_iter().find_map(|end| {
        let host = super::watched(test).find(|host| host.nodes.iter().any(|node| node == end.node))?;
        super::full_cpus(&host.host, &host.cpu, &end.words())
    })
}

/// A CPU is full, without work of low priority.
fn full_cpu(test: &TestRecord) -> Option<Limit> {
    let needed = |row: &&CpuTime| percent(row.busy().saturating_sub(row.nice), row.total()) >= FULL_CPU;
    let Some(row) = test.cpu.iter().find(needed) else { return full_interrupts(test) };
    let [sender, receiver] = ends(test);
    let here = test.others.iter().filter(|one| one.cpu == row.cpu);
    let here =
        here.map(|one| format!("; '{}' (process {}) used {:.0} %", one.name, one.pid, one.cpu_percent));
    let evidence =
        format!("{}; {}, {}{}", busy_words(row), sender.words(), receiver.words(), here.collect::<String>());
    let place = cpu_words(Some(row.cpu));
    Some(convict(verdict::CPU, &place, &evidence, &format!("{place} limited it")))
}

/// A CPU of one of two hosts is full, and mostly with interrupts: whose work else it did is not known.
fn full_interrupts(test: &TestRecord) -> Option<Limit> {
    let is_full = |row: &&CpuTime| percent(row.busy(), row.total()) >= FULL_CPU;
    let of_frames = |row: &&CpuTime| row.irq.saturating_add(row.softirq) >= row.busy() / 2;
    super::watched(test).find_map(|host| {
        let row = host.cpu.iter().filter(is_full).find(of_frames)?;
        let place = format!("{} of host {}", cpu_words(Some(row.cpu)), host.host);
        Some(convict(verdict::CPU, &place, &busy_words(row), &format!("{place} limited it")))
    })
}

// Windows and buffers.

/// What may be on the way at once, in bytes: medians over the readings.
struct Windows {
    congestion: u64,
    peer: u64,
    buffer: u64,
    rtt_us: u64,
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

fn windows(test: &TestRecord) -> Option<Windows> {
    let samples = &test.sender.tcp;
    let buffer = Some(test.sender.settings.send_buffer).filter(|&bytes| bytes > 0)?;
    samples.first()?.snd_wnd?;
    Some(Windows {
        congestion: median(samples.iter().map(|sample| u64::from(sample.cwnd) * u64::from(sample.snd_mss))),
        peer: median(samples.iter().map(|sample| u64::from(sample.snd_wnd.unwrap_or(0)))),
        buffer,
        rtt_us: median(samples.iter().map(|sample| sample.rtt_us.into())),
    })
}

impl Windows {
    fn words(&self) -> String {
        let Windows { congestion, peer, buffer, rtt_us } = self;
        let [congestion, peer, buffer] = [congestion, peer, buffer].map(|&bytes| unit::count(bytes));
        let rtt = time_ns(*rtt_us as f64 * 1e3);
        format!(
            "the receiver's window was {peer} bytes, the send buffer {buffer}, the congestion window {congestion}, the round trip {rtt}"
        )
    }
}

/// The receiver offers far less than the sender would dare to send, and its reader is not to blame.
fn small_window(test: &TestRecord) -> Option<Limit> {
    let windows = windows(test)?;
    let [_, receiver] = ends(test);
    let segment = median(test.sender.tcp.iter().map(|sample| sample.snd_mss.into()));
    let tiny = windows.peer < FEW_SEGMENTS * segment;
    let reads = tiny || (receiver.waited < WAITED && receiver.ran < FULL_CPU);
    (windows.peer * 2 < windows.congestion && windows.peer <= windows.buffer && reads).then_some(())?;
    let place = format!("node {}", test.spec.to);
    let buffer = unit::count(test.receiver.settings.receive_buffer);
    let unread = median(test.receiver.tcp.iter().filter_map(|sample| sample.unread_bytes).map(u64::from));
    let evidence = format!(
        "{}; the receive buffer was made with {buffer} bytes, of which {} lay unread",
        windows.words(),
        unit::count(unread)
    );
    Some(convict(
        verdict::RECEIVER_WINDOW,
        &place,
        &evidence,
        "A receive window that is too small limited it",
    ))
}

/// The send buffer holds far less than may be on the way, and its writer sleeps: one that is always at work waits for no room.
fn small_buffer(test: &TestRecord) -> Option<Limit> {
    let windows = windows(test)?;
    let [sender, _] = ends(test);
    let sleeps = sender.ran + sender.waited < FULL_CPU;
    (windows.buffer * 2 < windows.congestion && windows.buffer < windows.peer && sleeps).then_some(())?;
    let place = format!("node {}", test.spec.from);
    Some(convict(
        verdict::SEND_BUFFER,
        &place,
        &windows.words(),
        "A send buffer that is too small limited it",
    ))
}

// What is left: the largest of the three waits that have a name.

fn full_wait(test: &TestRecord) -> Option<Limit> {
    let parts = test.tcp?;
    longest_wait(&parts, &format!("node {}", test.spec.from), &format!("node {}", test.spec.to))
}

/// The largest of the three waits that have a name, if it is as large as what is the network's.
fn longest_wait(parts: &TcpDecomposition, from: &str, to: &str) -> Option<Limit> {
    let waits = [
        (parts.application_us, verdict::GENERATOR, from, "the sending application"),
        (parts.receiver_window_us, verdict::RECEIVER_WINDOW, to, "the receiver's window"),
        (parts.send_buffer_us, verdict::SEND_BUFFER, from, "the send buffer"),
    ];
    let (most, word, place, what) = waits.into_iter().max_by_key(|wait| wait.0)?;
    (most >= parts.network_us && most > 0).then_some(())?;
    let evidence = format!("the sender waited {:.0} % of the time for it", percent(most, parts.wall_us));
    Some(convict(word, place, &evidence, &format!("TCP was held back by {what}")))
}

/// What held a connection back of which only the sender's own clocks are known: nobody sees the other end, or the path.
pub fn connection(parts: &TcpDecomposition, from: &str, to: &str, last: Option<&TcpSample>) -> Limit {
    longest_wait(parts, from, to).unwrap_or_else(|| {
        let share = percent(parts.network_us, parts.wall_us);
        let sent_again = parts.retransmitted_segments;
        let window =
            last.map_or(String::new(), |last| format!(", the congestion window was {} segments", last.cwnd));
        let evidence =
            format!("{share:.0} % of the time{window}, {} sent again", unit::many(sent_again, "segment"));
        convict(verdict::NETWORK, from, &evidence, "TCP was held back by the network")
    })
}

/// The congestion window; unknown where it was not read.
fn network(test: &TestRecord) -> Limit {
    let Some(windows) = windows(test) else {
        let looked = "no loss, no full CPU, no shaper at its rate and no small window";
        return convict(verdict::NETWORK, "", looked, "TCP was held back by the network");
    };
    let slow = last_of(&test.sender.tcp).iter().all(|sample| sample.ssthresh >= i32::MAX as u32);
    let slow = if slow { "; slow start had not ended" } else { "" };
    let evidence = format!("{}{slow}", windows.words());
    convict(verdict::NETWORK, "", &evidence, "The congestion window limited it")
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
