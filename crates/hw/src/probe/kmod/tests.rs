use proptest::prelude::*;

use super::results::{middle_of, parse_record};
use super::*;

const TSC: Scale = Scale { hz: 2_600_000_000, accesses: 1 };

#[test]
fn the_buckets_of_the_header_cover_every_value_once() {
    assert_eq!(bucket_of(511), 511);
    assert_eq!(bucket_of(512), 512);
    assert_eq!(bucket_of(514), 513);
    assert_eq!(bucket_of((1 << PCILAT_HIST_MAX_BITS) - 1), PCILAT_HIST_BUCKETS - 1);
    for bucket in 0..PCILAT_HIST_BUCKETS {
        assert_eq!(bucket_of(middle_of(bucket)), bucket, "the middle of {bucket} lies in another");
    }
}

proptest! {
    #[test]
    fn a_bucket_keeps_a_value_to_a_fifth_of_a_percent(ticks in 0u64..1 << PCILAT_HIST_MAX_BITS) {
        let middle = middle_of(bucket_of(ticks));
        prop_assert!(middle.abs_diff(ticks) as f64 <= ticks as f64 / 511.0, "{} for {}", middle, ticks);
    }
}

fn summary_of(values: &[u64]) -> (Summary, u32, Vec<u64>) {
    let (min, max) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
    let mut buckets = vec![0; (bucket_of(max) - bucket_of(min) + 1) as usize];
    for &value in values {
        buckets[(bucket_of(value) - bucket_of(min)) as usize] += 1;
    }
    let sum: u128 = values.iter().map(|&v| u128::from(v)).sum();
    let (sum_low, sum_high) = (sum as u64, (sum >> 64) as u64);
    let count = values.len() as u64;
    (Summary { count, min, max, sum_low, sum_high, ..Summary::default() }, bucket_of(min), buckets)
}

#[test]
fn ticks_become_a_histogram_with_exact_sides() {
    let values = [1000, 1300, 1300, 2600, 260_000];
    let (summary, first, buckets) = summary_of(&values);
    let KernelHistogram { histogram, warnings, .. } = to_histogram(&summary, first, &buckets, TSC);
    assert!(warnings.is_empty());
    assert_eq!(histogram.count(), 5);
    assert_eq!((histogram.min_ns(), histogram.max_ns()), (Some(384.615), Some(100_000.0)));
    assert!((histogram.mean_ns().unwrap() - 266_200.0 / 2.6 / 5.0).abs() < 0.001);
    assert_eq!(histogram.count_up_to_ns(505.0), 3);
}

#[test]
fn a_batch_is_shared_out_to_its_accesses_after_the_conversion() {
    let (summary, first, buckets) = summary_of(&[2401, 2402]);
    let scale = Scale { hz: 24_000_000, accesses: 100 };
    let histogram = to_histogram(&summary, first, &buckets, scale).histogram;
    assert_eq!(histogram.min_ns(), Some(1000.417));
}

#[test]
fn counts_that_disagree_or_do_not_fit_are_told() {
    let (mut summary, first, buckets) = summary_of(&[1000, 1300]);
    summary.count += 1;
    let codes =
        |s: &Summary| to_histogram(s, first, &buckets, TSC).warnings.into_iter().map(|w| w.code).collect::<Vec<_>>();
    assert_eq!(codes(&summary), ["inconsistent-counts"]);
    summary.overflow = 1;
    assert_eq!(codes(&summary), ["too-long"]);
}

#[test]
fn every_outcome_says_how_many_samples_it_lost() {
    let (summary, first, buckets) = summary_of(&[1000, 1300]);
    let lost = |overflow, samples_lost| {
        let summary = Summary { overflow, count: summary.count + overflow, ..summary };
        let fetched = || to_histogram(&summary, first, &buckets, TSC);
        let slot = Slot { samples_lost, ..Slot::default() };
        to_outcome(&slot, vec![fetched(), fetched(), fetched()], [LATENCY, "", CALIBRATION]).metrics["samples_lost"]
            .value
    };
    // Those of the calibration are no samples.
    assert_eq!((lost(0, 0), lost(0, 3), lost(2, 3)), (0.0, 3.0, 5.0));
}

#[test]
fn raw_records_are_taken_apart() {
    let mut bytes = Vec::new();
    bytes.extend(7u64.to_ne_bytes());
    bytes.extend(9u32.to_ne_bytes());
    bytes.extend(3u16.to_ne_bytes());
    bytes.extend((2u16 << 14 | 5).to_ne_bytes());
    assert_eq!(parse_record(&bytes), Record { at: 7, value: 9, cpu: 3, kind_index: 0x8005 });
}

#[test]
fn a_missing_node_says_how_to_make_it() {
    let bdf: Bdf = "0000:02:00.0".parse().unwrap();
    let error = Kmod::open(&crate::test::Tree::new(), &Function::default(), bdf).unwrap_err();
    assert!(error.to_string().contains("dev/pcilat/0000:02:00.0"), "{error}");
    assert!(error.hint().unwrap().contains("bind 0000:02:00.0 --driver pcilat"));
}

#[test]
fn the_modules_refusal_of_the_msix_table_has_the_words_of_the_other_backends() {
    let bdf: Bdf = "0000:02:00.0".parse().unwrap();
    let file = tempfile::tempfile().unwrap();
    let kmod = Kmod { bdf, node: PathBuf::new(), file, info: Info::default(), emulated: false };
    let run = |kind| Run { kind, bar: 4, width: 2, offset: 0x800, ..Run::default() };
    for (kind, verb) in [(PCILAT_KIND_READ, "read"), (PCILAT_KIND_WRITE, "write"), (PCILAT_KIND_WRITE_READ, "write")] {
        let error = kmod.failure(&run(kind), io::Error::from_raw_os_error(libc::EACCES), None).unwrap_err();
        assert_eq!(error.to_string(), format!("0000:02:00.0: the kmod backend could not {verb} 2 bytes at BAR4:0x800"));
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("MSI-X table"));
        assert!(error.hint().is_some());
    }
}
