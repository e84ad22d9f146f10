//! Sets of CPU numbers, in the notation of the kernel's `cpulist` files and of taskset.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The largest CPU number accepted: Linux can be built for at most 8192 CPUs.
pub const MAX_CPU: u32 = 8191;

/// A sorted set of CPU numbers; printed and parsed as `0-3,8` (a stride, `0-30:2`, is parsed too).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// The CPU numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
    /// How many CPUs the set holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether the set holds no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether the set holds `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }
    /// The CPUs of this set that `other` lacks.
    pub fn minus(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuList(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => parts.push((cpu, cpu)),
            }
        }
        let text: Vec<String> =
            parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
        f.pad(&text.join(","))
    }
}

impl FromStr for CpuList {
    type Err = Error;

    /// Parses `0-3,8,16-30:2`; an empty text is the empty set (sysfs prints that for a node without CPUs).
    fn from_str(text: &str) -> Result<Self, Error> {
        numbers(text, "CPU", MAX_CPU).map(CpuList).map_err(|why| Error::CpuList { text: text.to_owned(), why })
    }
}

/// Parses the notation of [`CpuList`] for numbers of anything: `noun` is what they count, `max` the largest.
///
/// # Errors
/// Which part of the text is wrong, in words.
pub fn numbers(text: &str, noun: &str, max: u32) -> Result<BTreeSet<u32>, String> {
    let mut all = BTreeSet::new();
    let body = text.trim();
    if body.is_empty() {
        return Ok(all);
    }
    for part in body.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |t: &str| match t.parse::<u32>() {
            Ok(n) if n <= max && t.bytes().all(|b| b.is_ascii_digit()) => Ok(n),
            _ => Err(format!("{t:?} is not a {noun} number up to {max}")),
        };
        let (first, last, step) = (number(first)?, number(last)?, number(step)?);
        if last < first {
            return Err(format!("{range:?} runs backwards"));
        }
        if step == 0 {
            return Err(format!("{part:?} has a stride of 0"));
        }
        all.extend((first..=last).step_by(step as usize));
    }
    Ok(all)
}

impl TryFrom<String> for CpuList {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_ranges_strides_and_prints_the_shortest_form() {
        let list: CpuList = "8,0-3,16-20:2\n".parse().unwrap();
        assert_eq!(list.to_string(), "0-3,8,16,18,20");
        assert_eq!("".parse::<CpuList>().unwrap().len(), 0);
    }

    #[test]
    fn says_which_part_is_wrong() {
        for (bad, part) in [
            ("0-3,x", "\"x\""),
            ("5-2", "\"5-2\""),
            ("1,,2", "\"\""),
            ("0-4:0", "stride"),
            ("9000", "9000"),
            ("-1", "\"\""),
            ("+1", "+1"),
        ] {
            let text = bad.parse::<CpuList>().unwrap_err().to_string();
            assert!(text.contains(part), "{bad}: {text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same_set(cpus in proptest::collection::btree_set(0u32..=MAX_CPU, 0..60)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
