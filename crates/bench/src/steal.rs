//! Time that a hypervisor took from each CPU, from /proc/stat.

use std::collections::BTreeMap;

use pciescope_hw::Root;

/// The kernel counts in ticks of USER_HZ, which is 100 on every architecture we run on.
const NS_PER_TICK: u64 = 10_000_000;

/// Stolen time of each CPU since the machine started, in nanoseconds; empty where /proc/stat cannot be read.
pub(crate) fn per_cpu(root: &Root) -> BTreeMap<u32, u64> {
    root.read("/proc/stat").map(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> BTreeMap<u32, u64> {
    text.lines().filter_map(line).collect()
}

/// `cpu3 user nice system idle iowait irq softirq steal ...`
fn line(line: &str) -> Option<(u32, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: u64 = fields.nth(7)?.parse().ok()?;
    Some((cpu, ticks.saturating_mul(NS_PER_TICK)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_eighth_figure_of_each_cpu_and_not_the_sum() {
        let text = "cpu  9 9 9 9 9 9 9 99 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 1 2 3 4 5 6 7 0 0 0\nintr 1 2 3\n";
        assert_eq!(parse(text), BTreeMap::from([(0, 80_000_000), (12, 0)]));
    }

    #[test]
    fn a_line_that_is_cut_short_counts_as_absent() {
        assert_eq!(parse("cpu0 1 2 3\n"), BTreeMap::new());
    }
}
