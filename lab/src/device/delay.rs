//! Generators of delays and of faults: deterministic, so that a run can be repeated and its truth computed.

/// SplitMix64 (Steele, Lea, Flood 2014). Ours, and not a library's, because the sequence that a seed gives is part of
/// the contract and must not change with a dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, all equally likely but for 2^-64; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// Where delays come from. All times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// No delay.
    #[default]
    None,
    /// Always the same.
    Fixed(u64),
    /// The next time only.
    Once(u64),
    /// One after the other, then from the start again. Never empty.
    List {
        /// The delays.
        times: Vec<u64>,
        /// Index of the next one.
        next: usize,
    },
    /// `second` for about `permille` of 1000, otherwise `first`.
    TwoPeak {
        /// The usual delay.
        first: u64,
        /// The other delay.
        second: u64,
        /// How often of 1000 the other.
        permille: u16,
        /// Who chooses.
        random: SplitMix64,
    },
    /// Uniform from `min` to `max`, both included.
    Random {
        /// Shortest.
        min: u64,
        /// Longest.
        max: u64,
        /// Who chooses.
        random: SplitMix64,
    },
}

impl Delay {
    /// The delay of the next access, in nanoseconds; `None` where delays are off.
    pub fn next_ns(&mut self) -> Option<u64> {
        match self {
            Delay::None => None,
            Delay::Fixed(time) => Some(*time),
            Delay::Once(time) => {
                let time = *time;
                *self = Delay::None;
                Some(time)
            }
            Delay::List { times, next } => {
                let time = times.get(*next).copied();
                *next = (*next + 1) % times.len().max(1);
                time
            }
            Delay::TwoPeak { first, second, permille, random } => {
                Some(if random.below(1000) < u64::from(*permille) { *second } else { *first })
            }
            Delay::Random { min, max, random } => Some(*min + random.below(*max - *min + 1)),
        }
    }
}

/// Which messages a fault strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Strikes {
    /// None.
    #[default]
    None,
    /// Every nth: with 3 the third, the sixth, ...
    Every {
        /// The distance; 1 or more.
        every: u64,
        /// How many passed since the last strike.
        passed: u64,
    },
    /// About `permille` of 1000.
    Random {
        /// How often of 1000.
        permille: u16,
        /// Who chooses.
        random: SplitMix64,
    },
}

impl Strikes {
    /// Whether the next one is struck.
    pub fn strikes_next(&mut self) -> bool {
        match self {
            Strikes::None => false,
            Strikes::Every { every, passed } => {
                *passed += 1;
                let is_struck = *passed >= *every;
                if is_struck {
                    *passed = 0;
                }
                is_struck
            }
            Strikes::Random { permille, random } => random.below(1000) < u64::from(*permille),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn counts(delay: &mut Delay, draws: usize) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        (0..draws).filter_map(|_| delay.next_ns()).for_each(|time| *counts.entry(time).or_default() += 1);
        counts
    }

    #[test]
    fn the_generator_gives_the_published_sequence() {
        // Reference values of SplitMix64 for the seed 1234567, as printed with its C source.
        let mut random = SplitMix64::new(1_234_567);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = SplitMix64::new(7);
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[random.below(5) as usize] = true);
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn none_fixed_and_once() {
        assert_eq!(Delay::None.next_ns(), None);
        assert_eq!(counts(&mut Delay::Fixed(20_000), 10), BTreeMap::from([(20_000, 10)]));
        assert_eq!(counts(&mut Delay::Once(20_000), 10), BTreeMap::from([(20_000, 1)]));
    }

    #[test]
    fn a_list_is_cycled_in_order() {
        let mut delay = Delay::List { times: vec![1, 2, 3], next: 0 };
        let drawn: Vec<_> = (0..7).filter_map(|_| delay.next_ns()).collect();
        assert_eq!(drawn, [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn an_empty_list_is_no_delay() {
        assert_eq!(Delay::List { times: vec![], next: 0 }.next_ns(), None);
    }

    #[test]
    fn two_peaks_come_in_their_proportion_and_repeat_with_the_seed() {
        let peaks = |seed| Delay::TwoPeak { first: 20, second: 50, permille: 100, random: SplitMix64::new(seed) };
        let drawn = counts(&mut peaks(1), 100_000);
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), [20, 50]);
        // Binomial: mean 10 000, standard deviation 95.
        assert!((9_500..10_500).contains(&drawn[&50]), "{drawn:?}");
        assert_eq!(drawn, counts(&mut peaks(1), 100_000));
        assert_ne!(drawn, counts(&mut peaks(2), 100_000));
    }

    #[test]
    fn permille_0_and_1000_are_never_and_always() {
        for (permille, expected) in [(0, 20), (1000, 50)] {
            let mut delay = Delay::TwoPeak { first: 20, second: 50, permille, random: SplitMix64::new(3) };
            assert_eq!(counts(&mut delay, 1000), BTreeMap::from([(expected, 1000)]));
        }
    }

    #[test]
    fn random_covers_its_range_evenly() {
        let mut delay = Delay::Random { min: 10, max: 19, random: SplitMix64::new(9) };
        let drawn = counts(&mut delay, 100_000);
        assert_eq!(drawn.keys().copied().collect::<Vec<_>>(), (10..=19).collect::<Vec<_>>());
        assert!(drawn.values().all(|count| (9_500..10_500).contains(count)), "{drawn:?}");
        let mut point = Delay::Random { min: 5, max: 5, random: SplitMix64::new(9) };
        assert_eq!(point.next_ns(), Some(5));
    }

    #[test]
    fn every_third_is_struck() {
        let mut strikes = Strikes::Every { every: 3, passed: 0 };
        let struck: Vec<_> = (0..7).map(|_| strikes.strikes_next()).collect();
        assert_eq!(struck, [false, false, true, false, false, true, false]);
        assert!(!Strikes::None.strikes_next());
    }

    #[test]
    fn random_strikes_keep_their_rate() {
        let mut strikes = Strikes::Random { permille: 250, random: SplitMix64::new(4) };
        let struck = (0..10_000).filter(|_| strikes.strikes_next()).count();
        assert!((2_300..2_700).contains(&struck), "{struck}");
    }
}
