//! What held a TCP sender back, exactly.
//!
//! The kernel keeps three clocks per connection: busy, and inside it waiting for the receiver's window and waiting for
//! the send buffer. So over a window of wall time `W` with differences `B ⊇ R + S`:
//! application `W − B`, receiver's window `R`, send buffer `S`, network (congestion window, pacing, in flight)
//! `B − R − S`; the four sum to `W`. Each is uncertain by one jiffy per change of state.

use record::TcpSample;
use record::tcp::TcpDecomposition;
use std::collections::BTreeMap;

/// Decomposes the time of all connections together; none when no connection was sampled twice.
pub fn decompose(samples: &[TcpSample]) -> Option<TcpDecomposition> {
    let mut ends: BTreeMap<u32, (TcpSample, TcpSample)> = BTreeMap::new();
    for sample in samples {
        let (first, last) = ends.entry(sample.stream).or_insert((*sample, *sample));
        if sample.at_ns < first.at_ns {
            *first = *sample;
        }
        if sample.at_ns > last.at_ns {
            *last = *sample;
        }
    }
    let mut total = TcpDecomposition::default();
    for (first, last) in ends.values().filter(|(first, last)| first.at_ns < last.at_ns) {
        add(&mut total, first, last);
    }
    (total.wall_us > 0).then_some(total)
}

/// Adds one connection's window; parts are cut so that they always sum to the wall time.
fn add(total: &mut TcpDecomposition, first: &TcpSample, last: &TcpSample) {
    let wall = (last.at_ns - first.at_ns) / 1000;
    let busy = last.busy_us.saturating_sub(first.busy_us).min(wall);
    let window = last.rwnd_limited_us.saturating_sub(first.rwnd_limited_us).min(busy);
    let buffer = last.sndbuf_limited_us.saturating_sub(first.sndbuf_limited_us).min(busy - window);
    let sum = |to: &mut u64, value: u64| *to = to.saturating_add(value);
    sum(&mut total.wall_us, wall);
    sum(&mut total.application_us, wall - busy);
    sum(&mut total.receiver_window_us, window);
    sum(&mut total.send_buffer_us, buffer);
    sum(&mut total.network_us, busy - window - buffer);
    sum(&mut total.retransmitted_bytes, last.bytes_retrans.saturating_sub(first.bytes_retrans));
    sum(&mut total.retransmitted_segments, last.total_retrans.saturating_sub(first.total_retrans).into());
    sum(&mut total.needless_segments, last.dsack_dups.saturating_sub(first.dsack_dups).into());
    let timeouts = last.total_rto.zip(first.total_rto).map_or(0, |(last, first)| last.saturating_sub(first));
    sum(&mut total.timeouts, timeouts.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_reading_says_nothing() {
        assert_eq!(decompose(&[TcpSample::default()]), None);
    }

    /// Defect B9 of other tools: busy, receiver window and send buffer added up, though the kernel's busy contains the other two. As measured: a
    /// receiver that never reads, 3 s, busy 3.008 s and of that 3.008 s the window.
    #[test]
    fn b09_busy_contains_the_window_and_the_buffer() {
        let sample =
            |at_ns, busy_us| TcpSample { at_ns, busy_us, rwnd_limited_us: busy_us, ..TcpSample::default() };
        let parts = decompose(&[sample(0, 0), sample(3_000_000_000, 3_008_000)]).unwrap();
        let told = [parts.application_us, parts.receiver_window_us, parts.send_buffer_us, parts.network_us];
        assert_eq!(
            (told, parts.wall_us),
            ([0, 3_000_000, 0, 0], 3_000_000),
            "the parts are the time, not twice the time"
        );
    }

    proptest! {
        /// The slow twin: a connection lives millisecond by millisecond in one of four states.
        #[test]
        fn states_are_added_up(lives in prop::collection::vec(prop::collection::vec(0u8..4, 1..60), 1..4)) {
            let mut samples = vec![];
            let mut spent = [0u64; 4];
            for (stream, life) in lives.iter().enumerate() {
                let mut sample = TcpSample { stream: stream as u32, busy_us: 777, ..TcpSample::default() };
                samples.push(sample);
                for &state in life {
                    sample.at_ns += 1_000_000;
                    sample.busy_us += if state == 0 { 0 } else { 1000 };
                    sample.rwnd_limited_us += if state == 1 { 1000 } else { 0 };
                    sample.sndbuf_limited_us += if state == 2 { 1000 } else { 0 };
                    spent[state as usize] += 1000;
                    samples.push(sample);
                }
            }
            samples.reverse();
            let parts = decompose(&samples).unwrap();
            prop_assert_eq!(
                [parts.application_us, parts.receiver_window_us, parts.send_buffer_us, parts.network_us], spent);
            prop_assert_eq!(parts.wall_us, spent.iter().sum::<u64>());
        }

        #[test]
        fn any_samples_sum_to_the_wall(raw in prop::collection::vec(any::<(u64, u8, u64, u64, u64)>(), 0..20)) {
            let samples: Vec<_> = raw.into_iter().map(|(at_ns, stream, busy_us, rwnd_limited_us, sndbuf_limited_us)| {
                let stream = u32::from(stream % 3);
                TcpSample { at_ns: at_ns >> 4, stream, busy_us, rwnd_limited_us, sndbuf_limited_us, ..TcpSample::default() }
            }).collect();
            if let Some(p) = decompose(&samples) {
                prop_assert_eq!(p.wall_us, p.application_us + p.receiver_window_us + p.send_buffer_us + p.network_us);
            }
        }
    }
}
