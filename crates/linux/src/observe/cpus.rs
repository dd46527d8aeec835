//! What every CPU did: `/proc/stat` by role, `/proc/net/softnet_stat`.
//!
//! `softnet_stat` has no header and has grown: 11 columns, 13 since 5.10 (backlog length, CPU), 15 since 6.4 (input and
//! process queue). It has a row for every *online* CPU, so without the CPU column the row's number is only a guess,
//! which is made for old kernels alone. All columns are hexadecimal; 3 to 8 are always zero.

use record::snapshot::{CpuTime, SoftnetRow};

/// Reads the lines `cpu0 user nice system idle iowait irq softirq steal guest guest_nice` of `/proc/stat`. Guest time
/// is part of user time already.
pub fn parse_stat(text: &str) -> Vec<CpuTime> {
    text.lines().filter_map(parse_cpu).collect()
}

fn parse_cpu(line: &str) -> Option<CpuTime> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let cpu = words.next()?.parse().ok()?;
    let values: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let value = |i: usize| values.get(i).copied().unwrap_or(0);
    (values.len() >= 4).then(|| CpuTime {
        cpu,
        user: value(0).saturating_add(value(1)),
        nice: value(1),
        system: value(2),
        irq: value(5),
        softirq: value(6),
        steal: value(7),
        idle: value(3).saturating_add(value(4)),
    })
}

/// Reads `/proc/net/softnet_stat`; rows with fewer than eleven columns are passed over.
pub fn parse_softnet(text: &str) -> Vec<SoftnetRow> {
    text.lines().enumerate().filter_map(|(row, line)| parse_softnet_row(row, line)).collect()
}

/// Keeps of each CPU the longer backlog of two readings. What waited when the first counter was read has been counted behind the
/// backlog by the time that the last one is read, or has not.
pub fn longest_backlog(rows: &mut [SoftnetRow], first: &[SoftnetRow]) {
    for row in rows {
        let before = first.iter().filter(|other| other.cpu == row.cpu).map(|other| other.backlog);
        row.backlog = before.fold(row.backlog, u64::max);
    }
}

fn parse_softnet_row(row: usize, line: &str) -> Option<SoftnetRow> {
    let words = line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
    let columns: Vec<u64> = words.collect::<Option<_>>()?;
    let column = |i: usize| columns.get(i).copied();
    Some(SoftnetRow {
        flow_limit: column(10)?,
        cpu: column(12).unwrap_or(row as u64) as u32,
        processed: column(0)?,
        dropped: column(1)?,
        time_squeeze: column(2)?,
        received_rps: column(9)?,
        backlog: column(11).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn time_is_read_by_role_and_the_sum_line_is_not_a_cpu() {
        let text =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 1 20 100 5 2 3 4 6 0\ncpu11 1 0 0 7\nintr 5 5\ncpu2 x\n";
        let cpus = parse_stat(text);
        assert_eq!(cpus.len(), 2);
        assert_eq!(
            cpus[0],
            CpuTime { cpu: 0, user: 11, nice: 1, system: 20, irq: 2, softirq: 3, steal: 4, idle: 105 }
        );
        assert_eq!((cpus[1].cpu, cpus[1].idle), (11, 7));
    }

    #[test]
    fn softnet_rows_of_all_three_widths_are_read() {
        let eleven = "00000a 000001 000002 0 0 0 0 0 0 000003 000004\n".repeat(2);
        let rows = parse_softnet(&eleven);
        assert_eq!((rows.len(), rows[1].cpu, rows[1].backlog), (2, 1, 0));
        assert_eq!((rows[0].processed, rows[0].dropped, rows[0].time_squeeze), (10, 1, 2));
        assert_eq!((rows[0].received_rps, rows[0].flow_limit), (3, 4));
        let thirteen = parse_softnet("0a 1 2 0 0 0 0 0 0 3 4 00000010 00000007\n");
        assert_eq!((thirteen[0].backlog, thirteen[0].cpu), (16, 7));
        let fifteen = parse_softnet("0a 1 2 0 0 0 0 0 0 3 4 00000010 00000003 0000000f 00000001\n");
        assert_eq!((fifteen[0].backlog, fifteen[0].cpu), (16, 3), "the last column is not the CPU");
        assert!(parse_softnet("1 2 3\n").is_empty());
        let mut later = parse_softnet("0a 1 2 0 0 0 0 0 0 3 4 00000002 00000007\n");
        longest_backlog(&mut later, &thirteen);
        assert_eq!(later[0].backlog, 16);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "((cpu)?[0-9a-f ]{0,60}\n?){0,6}") {
            let _ = (parse_stat(&text), parse_softnet(&text));
        }
    }
}
