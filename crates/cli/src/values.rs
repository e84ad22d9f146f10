//! The parsers of values that several verbs take: counts, times, sizes, shares, numbers and addresses.

use std::time::Duration;

/// Parses a count: `1000`, `10k`, `2M`, `1G` (powers of 1000), also with `_` between digits.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let plain = digits.replace('_', "");
    if plain.is_empty() || !plain.bytes().all(|b| b.is_ascii_digit()) {
        return Err("write a count such as 1000, 10k or 2M".to_owned());
    }
    let too_large = || format!("the largest count is {}", u64::MAX);
    plain.parse::<u64>().map_err(|_| too_large())?.checked_mul(factor).ok_or_else(too_large)
}

/// Parses a count that must not be 0.
pub fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("it must be at least 1".to_owned()),
        n => Ok(n),
    }
}

/// A length of time, in nanoseconds: what stands as TIME in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Refuses a time outside of two bounds in nanoseconds.
    fn within(self, least_ns: u64, most_ns: u64) -> Result<Time, String> {
        match self.0 {
            ns if ns < least_ns => Err(format!("the shortest time here is {}", spoken(least_ns))),
            ns if ns > most_ns => Err(format!("the longest time here is {}", spoken(most_ns))),
            _ => Ok(self),
        }
    }
}

/// Nanoseconds with the largest unit that leaves a whole number.
fn spoken(ns: u64) -> String {
    let units = [(3_600_000_000_000, "h"), (1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
    let (factor, unit) = units.into_iter().find(|(factor, _)| ns % factor == 0 && ns > 0).unwrap_or((1, "ns"));
    format!("{} {unit}", ns / factor)
}

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// Parses a TIME: `200ns`, `50us`, `1.5ms`, `10s`, `2min`, `1h`; a bare number is seconds.
///
/// # Errors
/// What is wrong with it.
pub fn time(text: &str) -> Result<Time, String> {
    time_with(text, NS_PER_S)
}

/// Parses a TIME of at least 1 ns.
///
/// # Errors
/// What is wrong with it.
pub fn some_time(text: &str) -> Result<Time, String> {
    time(text)?.within(1, u64::MAX)
}

/// Parses the TIME between two readings, from `least_ns` to an hour. A bare number is milliseconds, as after `perf stat -I`;
/// one with a point is seconds, as after `top -d`.
///
/// # Errors
/// What is wrong with it.
pub fn interval(text: &str, least_ns: u64) -> Result<Time, String> {
    time_with(text, if text.contains('.') { NS_PER_S } else { NS_PER_MS })?.within(least_ns, 3600 * NS_PER_S)
}

/// Parses a time; a number without a unit is worth `bare_ns` each.
fn time_with(text: &str, bare_ns: u64) -> Result<Time, String> {
    const HOW: &str = "write a time such as 200ns, 50us, 1.5ms, 10s or 2min";
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" => bare_ns,
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1000,
        "ms" => NS_PER_MS,
        "s" | "sec" => NS_PER_S,
        "m" | "min" => 60 * NS_PER_S,
        "h" => 3600 * NS_PER_S,
        _ => return Err(HOW.to_owned()),
    };
    let too_long = || format!("the longest time is {} ns", u64::MAX);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || number.ends_with('.') {
        return Err(HOW.to_owned());
    }
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    // A part of a nanosecond is none that anything here can measure.
    let part = if part.is_empty() { 0.0 } else { format!("0.{part}").parse::<f64>().map_err(|_| HOW.to_owned())? };
    let part = (part * factor as f64).round() as u64;
    whole.checked_mul(factor).and_then(|ns| ns.checked_add(part)).map(Time).ok_or_else(too_long)
}

/// A number of bytes: what stands as SIZE in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Parses a SIZE in bytes: `4096`, `256k`, `1M`, `2G` (powers of 1024, as fio and QEMU have them), also written `256KiB`.
///
/// # Errors
/// What is wrong with it.
pub fn size(text: &str) -> Result<Size, String> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(end);
    let shift = match unit.strip_suffix("iB").or(unit.strip_suffix('i')).unwrap_or(unit) {
        "" if unit.is_empty() => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("write a size in bytes such as 4096, 256k, 1M or 2G (powers of 1024)".to_owned()),
    };
    let value = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift));
    value.map(Size).ok_or_else(|| "write a size in bytes such as 4096, 256k, 1M or 2G (powers of 1024)".to_owned())
}

/// Parses a SIZE of memory; a bare number below 1 Mi is MiB, as after QEMU's -m.
///
/// # Errors
/// What is wrong with it, and less than `least_mib` MiB.
pub fn memory(text: &str, least_mib: u64) -> Result<Size, String> {
    let size = size(text)?;
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    let size = if is_bare && size.0 < 1 << 20 { Size(size.0 << 20) } else { size };
    if size.0 < least_mib << 20 { Err(format!("it must be at least {least_mib}M")) } else { Ok(size) }
}

/// A share in percent: what stands as PERCENT in the help.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

/// Parses a PERCENT from 0 to 1000: `1`, `0.5` or `0.5%`.
///
/// # Errors
/// What is wrong with it.
pub fn percent(text: &str) -> Result<Percent, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(value) if (0.0..=1000.0).contains(&value) => Ok(Percent(value)),
        _ => Err("write a share in percent from 0% to 1000%, such as 2%".to_owned()),
    }
}

/// Parses a register offset or value: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16),
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse(),
        _ => return Err("write a decimal number, or a hexadecimal one after 0x".to_owned()),
    };
    parsed.map_err(|_| "write a decimal number of at most 64 bits, or a hexadecimal one after 0x".to_owned())
}

/// A function as it was typed, what stands as BDF in the help: its address, or a name of it. `Ctx::function` finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionName(pub String);

/// Parses an address such as 3b:00.0, the name of a disk or interface, or a path below /dev or /sys. Whether there is such a
/// function is not known yet.
///
/// # Errors
/// What can only be meant as an address, and is none.
pub fn bdf(text: &str) -> Result<FunctionName, String> {
    let is_path = text.starts_with("/dev/") || text.starts_with("/sys/");
    match text.parse::<pciescope_core::Bdf>() {
        // No name of a device has a colon.
        Err(err) if text.is_empty() || (!is_path && text.contains([':', '/'])) => Err(match err.hint() {
            Some(hint) => format!("{err}: {hint}"),
            None => err.to_string(),
        }),
        _ => Ok(FunctionName(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_refuse_what_does_not_fit() {
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("2M"), Ok(2_000_000));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "k", "-1", "+1", "1.5", "1m", "1e6", "18446744073709551616", "18446744073710M", "_"] {
            assert!(count(bad).is_err(), "{bad:?} was taken");
        }
        assert!(positive("0").is_err());
    }

    #[test]
    fn times_have_a_unit_and_a_bare_number_is_seconds() {
        for (text, ns) in [
            ("200ns", 200),
            ("50us", 50_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("10", 10_000_000_000),
            ("0.5", 500_000_000),
            ("2min", 120_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(time(text), Ok(Time(ns)), "{text}");
        }
        for bad in ["", "s", ".5s", "1.s", "-1s", "1 parsec", "1.2.3s", "1e3", "99999999999999s"] {
            assert!(time(bad).is_err(), "{bad:?} was taken");
        }
        assert!(some_time("0").is_err());
    }

    #[test]
    fn a_bare_interval_is_milliseconds() {
        let least = 1_000_000;
        assert_eq!(interval("10", least), Ok(Time(10_000_000)));
        assert_eq!(interval("2s", least), Ok(Time(2_000_000_000)));
        assert_eq!(interval("0.5", least), Ok(Time(500_000_000)));
        assert_eq!(interval("1.5ms", least), Ok(Time(1_500_000)));
        for bad in ["", "0", "500us", "-1", "1x", "2h"] {
            assert!(interval(bad, least).is_err(), "{bad:?} was taken");
        }
        assert_eq!(interval("99", 100_000_000), Err("the shortest time here is 100 ms".to_owned()));
    }

    #[test]
    fn sizes_are_bytes_in_powers_of_1024() {
        for (text, bytes) in [("4096", 4096), ("256k", 256 << 10), ("1M", 1 << 20), ("1MiB", 1 << 20), ("2Gi", 2 << 30)]
        {
            assert_eq!(size(text), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "k", "1.5M", "-1", "1MB", "iB", "99999999999999999999k"] {
            assert!(size(bad).is_err(), "{bad:?} was taken");
        }
        assert_eq!((memory("2048", 128), memory("2G", 128)), (Ok(Size(2 << 30)), Ok(Size(2 << 30))));
        assert!(memory("64M", 128).is_err());
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!((percent("2%"), percent("0.5")), (Ok(Percent(2.0)), Ok(Percent(0.5))));
        assert!(percent("-1").is_err() && percent("x").is_err() && percent("nan").is_err());
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x10"), Ok(16));
        assert_eq!(number("16"), Ok(16));
        assert_eq!(number("0xffffffffffffffff"), Ok(u64::MAX));
        for bad in ["", "0x", "10h", "-1", "+1", "0x+1", "0x10000000000000000"] {
            assert!(number(bad).is_err(), "{bad:?} was taken");
        }
    }
}
