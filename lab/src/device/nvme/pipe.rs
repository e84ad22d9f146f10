//! The rate of a disk: one pipe that all transfers share, one after the other.

use std::num::NonZeroU64;

const NS_PER_S: u128 = 1_000_000_000;

/// When what can pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pipe {
    /// Bytes per second; `None`: no time at all.
    pub(super) rate: Option<NonZeroU64>,
    /// When the last transfer had passed, on the device's clock ...
    free_ns: u64,
    /// ... and a part of a nanosecond, in 1/rate ns: small transfers add up exactly.
    carry: u64,
}

impl Pipe {
    /// The state after `bytes` that could start at `ready_ns` have passed.
    fn after(&self, ready_ns: u64, bytes: u64) -> Pipe {
        let (start, carry) = if ready_ns > self.free_ns { (ready_ns, 0) } else { (self.free_ns, self.carry) };
        let Some(rate) = self.rate else { return Pipe { free_ns: ready_ns, carry: 0, ..*self } };
        let rate = u128::from(rate.get());
        let time = u128::from(bytes) * NS_PER_S + u128::from(carry);
        // 64 bits of nanoseconds are 584 years.
        let free_ns = (u128::from(start) + time / rate).min(u64::MAX.into()) as u64;
        Pipe { free_ns, carry: (time % rate) as u64, ..*self }
    }

    /// When `bytes` that can start at `ready_ns` will have passed.
    pub(super) fn end_ns(&self, ready_ns: u64, bytes: u64) -> u64 {
        let after = self.after(ready_ns, bytes);
        after.free_ns + u64::from(after.carry > 0)
    }

    /// Lets `bytes` pass; answers how many whole nanoseconds more the pipe was busy.
    pub(super) fn pass(&mut self, ready_ns: u64, bytes: u64) -> u64 {
        let start = self.free_ns.max(ready_ns);
        *self = self.after(ready_ns, bytes);
        // Without a rate the end may lie before the last one.
        self.free_ns.saturating_sub(start)
    }

    /// Changes the rate of what has not passed yet.
    pub(super) fn set_rate(&mut self, rate: Option<NonZeroU64>) {
        (self.rate, self.carry) = (rate, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(rate: u64) -> Pipe {
        Pipe { rate: NonZeroU64::new(rate), ..Pipe::default() }
    }

    #[test]
    fn transfers_pass_one_after_the_other() {
        let mut pipe = pipe(500_000_000);
        assert_eq!(pipe.end_ns(1_000, 1_000), 3_000);
        assert_eq!(pipe.pass(1_000, 1_000), 2_000);
        assert_eq!(pipe.end_ns(0, 500), 4_000, "it waits for the one before");
        assert_eq!(pipe.pass(0, 500), 1_000);
        assert_eq!(pipe.end_ns(10_000, 500), 11_000, "the pipe stood still in between");
    }

    #[test]
    fn small_transfers_keep_the_rate_exactly() {
        let mut pipe = pipe(542_000_000);
        let busy: u64 = (0..542_000_000 / 512 / 8).map(|_| pipe.pass(0, 4096)).sum();
        let bytes = 542_000_000u64 / 512 / 8 * 4096;
        let exact = u128::from(bytes) * NS_PER_S / 542_000_000;
        assert_eq!((u128::from(pipe.free_ns), busy), (exact, pipe.free_ns));
    }

    #[test]
    fn without_a_rate_nothing_takes_time() {
        let mut pipe = Pipe::default();
        assert_eq!(pipe.pass(5, u64::MAX), 0);
        assert_eq!(pipe.end_ns(7, 1 << 30), 7);
        let mut slow = self::pipe(1);
        assert_eq!(slow.pass(0, u64::MAX), u64::MAX);
        assert_eq!(slow.end_ns(0, u64::MAX), u64::MAX, "ends of time do not overflow");
    }
}
