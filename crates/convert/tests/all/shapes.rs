//! Any length, any alignment, any decimation, chunks, threads and ways of storing; and nothing written beside
//! the output.

use pciescope_convert::{Conversion, Decimation, Error, Isa, Operation, Sample, Store, reference};
use proptest::prelude::*;

const CANARY: f32 = -12345.5;

#[derive(Debug, Clone)]
struct Case {
    sample: Sample,
    operation: Operation,
    decimation: Decimation,
    isa: Isa,
    store: Store,
    len: usize,
    input_skew: usize,
    output_skew: usize,
    seed: u64,
}

impl Case {
    fn conversion(&self) -> Conversion {
        Conversion::new(self.sample, self.operation)
            .and_then(|conversion| conversion.with_decimation(self.decimation))
            .and_then(|conversion| conversion.with_isa(self.isa))
            .unwrap()
            .with_store(self.store)
    }

    fn words(&self) -> Vec<u16> {
        (0..self.len as u64 + 64).map(|i| ((i ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16).collect()
    }

    /// The definition, index by index.
    fn taken(&self, words: &[u16]) -> Vec<u16> {
        let Decimation { offset, factor } = self.decimation;
        words.get(offset..).unwrap_or_default().chunks_exact(factor).map(|group| group[0]).collect()
    }

    fn singles(&self, words: &[u16]) -> Vec<f32> {
        self.taken(words).into_iter().map(|word| reference::to_f32(word, self.sample, self.operation)).collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let sample = prop_oneof![Just(Sample::U16), Just(Sample::I16)];
    let operation = prop_oneof![
        Just(Operation::Cast),
        Just(Operation::Scale { factor: 0.5, offset: 1.0 }),
        Just(Operation::Scale { factor: 0.1, offset: 0.7 }),
        Just(Operation::Scale { factor: 1.0 + 2f64.powi(-24), offset: 2f64.powi(-70) }),
        (1u8..=16).prop_map(|n| Operation::Unsigned { m: 16 - n, n }),
        (1u8..=12).prop_map(|n| Operation::Signed { m: 12 - n, n }),
        Just(Operation::Degrees { m: 3, n: 13 }),
    ];
    let decimation = (prop_oneof![Just(0), 0usize..300, Just(usize::MAX)], prop_oneof![Just(1), 1usize..70])
        .prop_map(|(offset, factor)| Decimation { offset, factor });
    let isa = prop::sample::select(Isa::available());
    let store = prop_oneof![Just(Store::Auto), Just(Store::Cached), Just(Store::Streaming)];
    let len = prop_oneof![0usize..200, 0usize..3000, 4000usize..20_000];
    (sample, operation, decimation, isa, store, len, 0usize..33, 0usize..17, any::<u64>()).prop_map(
        |(sample, operation, decimation, isa, store, len, input_skew, output_skew, seed)| Case {
            sample,
            operation,
            decimation,
            isa,
            store,
            len,
            input_skew,
            output_skew,
            seed,
        },
    )
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_shape_gives_the_references_numbers_and_touches_nothing_else(case in case()) {
        let words = case.words();
        let input = &words[case.input_skew..case.input_skew + case.len];
        let conversion = case.conversion();
        prop_assert_eq!(conversion.isa(), case.isa);
        let want = case.singles(input);
        let len = want.len();
        prop_assert_eq!(conversion.output_len(input.len()), len);

        let mut output = vec![CANARY; case.output_skew + len + 40];
        let room = &mut output[case.output_skew..];
        prop_assert_eq!(conversion.to_f32(input, room), Ok(len));
        prop_assert_eq!(bits(&output[case.output_skew..][..len]), bits(&want));
        prop_assert!(output[..case.output_skew].iter().chain(&output[case.output_skew + len..]).all(|n| *n == CANARY));

        let mut output = vec![f64::from(CANARY); case.output_skew + len + 40];
        prop_assert_eq!(conversion.to_f64(input, &mut output[case.output_skew..][..len]), Ok(len));
        for (have, word) in output[case.output_skew..].iter().zip(case.taken(input)) {
            let want = reference::to_f64(word, case.sample, case.operation);
            prop_assert_eq!(have.to_bits(), want.to_bits());
        }
        let around = output[..case.output_skew].iter().chain(&output[case.output_skew + len..]);
        prop_assert!(around.copied().all(|number| number == f64::from(CANARY)));
    }

    #[test]
    fn chunks_give_what_the_whole_gives(case in case(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let words = case.words();
        let input = &words[..case.len];
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(case.len + 1)).chain([0, case.len]).collect();
        cuts.sort_unstable();
        let mut progress = case.conversion().stream();
        let mut output = Vec::new();
        for pair in cuts.windows(2) {
            let chunk = &input[pair[0]..pair[1]];
            let len = progress.output_len(chunk.len());
            let mut numbers = vec![CANARY; len + 3];
            if len > 0 {
                // Refused, and not counted as seen.
                let error = progress.to_f32(chunk, &mut numbers[..len - 1]);
                prop_assert_eq!(error, Err(Error::Output { need: len, have: len - 1 }));
                prop_assert!(numbers.iter().all(|number| *number == CANARY));
            }
            prop_assert_eq!(progress.to_f32(chunk, &mut numbers), Ok(len));
            prop_assert!(numbers[len..].iter().all(|number| *number == CANARY));
            output.extend_from_slice(&numbers[..len]);
        }
        prop_assert_eq!(bits(&output), bits(&case.singles(input)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn threads_give_what_one_gives(case in case(), threads in 0usize..7) {
        // Large enough for several pieces.
        let case = Case { len: case.len + 600_000, ..case };
        let words = case.words();
        let input = &words[..case.len];
        let want = case.singles(input);
        let mut output = vec![CANARY; case.output_skew + want.len() + 40];
        let room = &mut output[case.output_skew..];
        prop_assert_eq!(case.conversion().to_f32_parallel(input, room, threads), Ok(want.len()));
        prop_assert_eq!(bits(&output[case.output_skew..][..want.len()]), bits(&want));
        prop_assert!(output[case.output_skew + want.len()..].iter().all(|number| *number == CANARY));
        let mut output = vec![0f64; want.len()];
        prop_assert_eq!(case.conversion().to_f64_parallel(input, &mut output, threads), Ok(want.len()));
        for (have, word) in output.iter().zip(case.taken(input)) {
            let want = reference::to_f64(word, case.sample, case.operation);
            prop_assert_eq!(have.to_bits(), want.to_bits());
        }
    }
}

#[test]
fn every_short_length_at_every_alignment() {
    let words: Vec<u16> = (0..400).map(|i: u32| (i.wrapping_mul(40503) >> 3) as u16).collect();
    for isa in Isa::available() {
        for store in [Store::Cached, Store::Streaming] {
            let conversion =
                Conversion::new(Sample::I16, Operation::Cast).unwrap().with_isa(isa).unwrap().with_store(store);
            for len in 0..100 {
                for skew in 0..17 {
                    let input = &words[skew * 3..][..len];
                    let mut output = [CANARY; 160];
                    assert_eq!(conversion.to_f32(input, &mut output[skew..]), Ok(len));
                    for (index, number) in output.iter().enumerate() {
                        let want = match index.checked_sub(skew) {
                            Some(at) if at < len => f32::from(input[at] as i16),
                            _ => CANARY,
                        };
                        assert_eq!(*number, want, "{isa} {store:?} {len} words at {skew}: {index}");
                    }
                }
            }
        }
    }
}
