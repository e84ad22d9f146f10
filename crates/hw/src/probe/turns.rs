//! Whose turn it is: a plan's order as a list of CPUs with their shares of count and time.

use pciescope_core::Order;

/// A stretch of samples from one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Position of the CPU in the plan's list.
    pub position: usize,
    /// Samples to take; 0 where only time limits.
    pub count: u64,
    /// When it has to end, in nanoseconds since the run's start; `u64::MAX` without a limit.
    pub until_ns: u64,
}

/// The turns of a run in their order; concurrent CPUs have one turn each, all with the whole time.
///
/// The shares of `count` add up to `count` for each CPU. A time limit is shared out too, so that the first CPU
/// does not use up the time of the others.
pub fn turns(order: Order, cpus: usize, count: u64, duration_ns: u64) -> Vec<Turn> {
    let rounds = match order {
        Order::Interleaved { rounds } => u64::from(rounds.max(1)),
        Order::Sequential | Order::Concurrent => 1,
    };
    let share = |whole: u64, part: u64, parts: u64| (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64;
    let total = rounds * cpus as u64;
    let mut turns = Vec::new();
    for round in 0..rounds {
        let of_round = share(count, round + 1, rounds) - share(count, round, rounds);
        for position in 0..cpus {
            let number = round * cpus as u64 + position as u64;
            let until_ns = match (duration_ns, order) {
                (0, _) => u64::MAX,
                (limit, Order::Concurrent) => limit,
                (limit, _) => share(limit, number + 1, total),
            };
            if of_round > 0 || count == 0 {
                turns.push(Turn { position, count: of_round, until_ns });
            }
        }
    }
    turns
}

/// The order's name as a record has it.
pub fn name(order: Order) -> String {
    match order {
        Order::Sequential => "sequential",
        Order::Interleaved { .. } => "interleaved",
        Order::Concurrent => "concurrent",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_share_count_and_time_without_losing_any() {
        let list = turns(Order::Interleaved { rounds: 3 }, 2, 10, 600);
        assert_eq!(list.iter().map(|t| t.position).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(list.iter().filter(|t| t.position == 1).map(|t| t.count).sum::<u64>(), 10);
        assert_eq!(list.iter().map(|t| t.until_ns).collect::<Vec<_>>(), [100, 200, 300, 400, 500, 600]);
    }

    #[test]
    fn more_rounds_than_samples_leave_no_empty_turn() {
        let list = turns(Order::Interleaved { rounds: 7 }, 1, 2, 0);
        assert_eq!(list.iter().map(|t| t.count).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn concurrent_cpus_have_the_whole_time_each() {
        let list = turns(Order::Concurrent, 2, 0, 500);
        assert_eq!(
            list,
            [Turn { position: 0, count: 0, until_ns: 500 }, Turn { position: 1, count: 0, until_ns: 500 }]
        );
    }
}
