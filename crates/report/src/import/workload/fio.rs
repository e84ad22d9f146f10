//! What fio reports to have moved.

use std::collections::{BTreeMap, HashSet};

use super::{Amount, Direction, Traffic, Workloads, half_of_last_digit};

const WAYS: [(&str, Direction, usize); 2] = [("read", Direction::Read, 0), ("write", Direction::Write, 1)];

/// What the reports of a text say of one direction.
#[derive(Default)]
struct Sum {
    bytes: f64,
    rounding: f64,
    /// In whole MB: a figure of gigabytes is rounded too much to be compared with.
    printed: Option<f64>,
    /// How long each group of jobs ran.
    seconds: Vec<f64>,
}

/// fio's JSON, else its terse lines, else its text: with `--output-format=normal,json` it says the same twice.
pub fn parse(text: &str, found: &mut Workloads) {
    let lines: Vec<&str> = text.lines().collect();
    let before = found.unread.len();
    let (sums, runs) = json(&lines, found)
        .or_else(|| terse(&lines, found))
        .or_else(|| (found.unread.len() == before).then(|| report(&lines, found)).flatten())
        .unwrap_or_default();
    for ((name, direction, _), sum) in WAYS.into_iter().zip(sums) {
        if let Some(sum) = sum.filter(|sum| sum.bytes > 0.0) {
            let seconds = [sum.seconds.iter().copied().fold(0.0, f64::max), sum.seconds.iter().sum()];
            let amount = Amount::Bytes { exact: sum.bytes, rounding: sum.rounding, printed: sum.printed, seconds };
            found.traffic.push(Traffic { name: format!("fio {name}"), direction, amount, runs });
        }
    }
}

/// Of each direction what moved, and how many runs of fio there were.
type Sums = ([Option<Sum>; 2], u64);

/// Whether a text holds several reports of one job of fio.
pub fn is_repeated(text: &str) -> bool {
    let mut jobs = HashSet::new();
    let job =
        |line: &str| line.split_once(": (groupid=")?.1.split_once(" pid=")?.1.split(':').next()?.parse::<u64>().ok();
    text.lines().filter_map(|line| Some((line.split(':').next()?, job(line)?))).any(|one| !jobs.insert(one))
}

/// The objects of `--output-format=json` and json+.
fn json(lines: &[&str], found: &mut Workloads) -> Option<Sums> {
    let mut sums = [None, None];
    let mut documents = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        at += 1;
        let is_begun = lines[start].trim_start().starts_with('{') && !lines[start].contains("\"counter-value");
        if !is_begun || !lines[start..].iter().take(3).any(|line| line.contains("\"fio version\"")) {
            continue;
        }
        // A text that was broken to short lines is whole without its line ends.
        let rest = lines[start..].concat();
        let mut values = serde_json::Deserializer::from_str(&rest).into_iter::<serde_json::Value>();
        match values.next() {
            Some(Ok(document)) => {
                documents.push((start, document));
                let (mut length, end) = (0, values.byte_offset());
                at = start
                    + lines[start..]
                        .iter()
                        .take_while(|line| {
                            length += line.len();
                            length < end
                        })
                        .count()
                    + 1;
            }
            _ => found.leave(start, "fio's JSON is cut, or something stands inside it"),
        }
    }
    for (_, document) in &documents {
        let is_old = document["fio version"].as_str().is_some_and(|version| version.starts_with("fio-2"));
        for (sum, (name, _, _)) in sums.iter_mut().zip(WAYS) {
            let mut groups = BTreeMap::new();
            for job in document["jobs"].as_array().into_iter().flatten() {
                let Some(bytes) = job[name]["io_bytes"].as_f64() else { continue };
                let ms = job[name]["runtime"].as_f64().unwrap_or(0.0);
                let sum = sum.get_or_insert_with(Sum::default);
                // fio 2 counts them in KiB, and drops the rest.
                let unit = if is_old { 1024.0 } else { 1.0 };
                sum.bytes += bytes * unit;
                sum.rounding += unit - 1.0;
                let longest = groups.entry(job["groupid"].as_i64()).or_insert(0.0);
                *longest = f64::max(*longest, ms / 1e3);
            }
            sum.iter_mut().for_each(|sum| sum.seconds.extend(groups.values()));
        }
    }
    if let (Some((start, _)), true) = (documents.first(), sums.iter().flatten().all(|sum| sum.bytes == 0.0)) {
        found.leave(*start, "fio's JSON names no bytes that were read or written");
    }
    let runs = documents.len() as u64;
    (runs > 0).then_some((sums, runs))
}

/// Where in a terse line the figures of reads and of writes begin, by its version.
const TERSE: [(&str, usize, usize); 3] = [("3;fio-", 5, 46), ("4;fio-", 5, 46), ("5;fio-", 5, 52)];

/// Whether this is a line of `--output-format=terse`.
pub fn is_terse(line: &str) -> bool {
    TERSE.iter().any(|version| line.trim_start().starts_with(version.0))
}

/// A line for each job: KiB and milliseconds.
fn terse(lines: &[&str], found: &mut Workloads) -> Option<Sums> {
    let mut sums = [None, None];
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_terse(line)) {
        let fields: Vec<&str> = line.trim().split(';').collect();
        let Some((_, read, write)) = TERSE.iter().find(|version| line.trim_start().starts_with(version.0)) else {
            continue;
        };
        for (sum, from) in sums.iter_mut().zip([read, write]) {
            let figure = |place: usize| fields.get(from + place)?.parse::<f64>().ok();
            match (figure(0), figure(3)) {
                (Some(kib), Some(ms)) => {
                    let sum = sum.get_or_insert_with(Sum::default);
                    sum.bytes += kib * 1024.0;
                    sum.rounding += 1023.0;
                    sum.seconds = vec![sum.seconds.iter().copied().fold(ms / 1e3, f64::max)];
                }
                _ => {
                    found.leave(at, format!("fio's terse line is cut: it has {} fields", fields.len()));
                    return None;
                }
            }
        }
    }
    sums[0].is_some().then_some((sums, 1))
}

/// fio's `READ: bw=517MiB/s (542MB/s), ..., io=8192MiB (8590MB), run=15854-15854msec`, or that of fio 2,
/// `READ: io=8192.0MB, aggrb=529114KB/s, ..., mint=15854msec, maxt=15854msec`; made exact by the requests issued where all
/// were of one size.
fn report(lines: &[&str], found: &mut Workloads) -> Option<Sums> {
    let lines = &unbroken(lines);
    let runs = lines.iter().filter(|(_, line)| line.trim().starts_with("Run status group 0 ")).count().max(1) as u64;
    let mut sums = [None, None];
    for (sum, (name, _, place)) in sums.iter_mut().zip(WAYS) {
        let head = format!("{}:", name.to_uppercase());
        for (at, line) in lines {
            let Some(line) =
                line.trim().strip_prefix(&head).filter(|line| line.contains("io=") || line.contains("bw="))
            else {
                continue;
            };
            let Some(total) = total(line) else {
                found.leave(*at, format!("the line {head} of fio is cut"));
                return None;
            };
            let sum = sum.get_or_insert_with(|| Sum { printed: Some(0.0), ..Sum::default() });
            sum.bytes += total.bytes;
            sum.rounding += total.rounding;
            sum.printed = sum.printed.zip(total.printed).map(|(sum, one)| sum + one);
            sum.seconds.extend(total.seconds);
        }
        let Some(sum) = sum else { continue };
        let issued = issued_bytes(lines, name, place);
        if let Some(issued) =
            issued.filter(|issued| (issued - sum.bytes).abs() <= sum.rounding.max(sum.bytes * 1e-3) * 2.0)
        {
            (sum.bytes, sum.rounding) = (issued, 0.0);
        }
    }
    let is_none = sums.iter().all(Option::is_none);
    if let (true, Some((at, _))) = (is_none, lines.iter().find(|(_, line)| line.contains(": (groupid="))) {
        found.leave(*at, "fio's report has no line READ: or WRITE: at its end");
    }
    (!is_none).then_some((sums, runs))
}

/// The lines with those joined that mail or a terminal has broken, with their numbers from 0: each kind of fio's lines ends
/// with words of its own.
fn unbroken(lines: &[&str]) -> Vec<(usize, String)> {
    let ends = |line: &str| match line.trim_start() {
        line if line.starts_with("READ:") || line.starts_with("WRITE:") => Some("msec"),
        line if line.starts_with("issued") => Some("drop"),
        line if line.contains(": (g=") => Some("iodepth="),
        line if line.contains(": (groupid=") => Some(" pid="),
        _ => None,
    };
    let mut all = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let mut whole = lines[at].to_owned();
        let mut joined = 1;
        if let Some(end) = ends(lines[at]).filter(|end| !whole.contains(end)) {
            let is_rest = |line: &&&str| !line.trim().is_empty() && ends(line).is_none();
            let mut text = whole.clone();
            for (count, next) in lines[at + 1..].iter().take(3).take_while(is_rest).enumerate() {
                text.push_str(next);
                if text.contains(end) {
                    (whole, joined) = (text, count + 2);
                    break;
                }
            }
        }
        all.push((at, whole));
        at += joined;
    }
    all
}

/// A line of fio's run status.
struct Total {
    bytes: f64,
    rounding: f64,
    printed: Option<f64>,
    seconds: Option<f64>,
}

fn total(line: &str) -> Option<Total> {
    let field = |name: &str| line.split(',').find_map(|field| field.trim().strip_prefix(name));
    let io = field("io=")?;
    let (size, decimal) = io.split_once('(').map_or((io, ""), |(size, decimal)| (size.trim(), decimal));
    let printed = decimal.strip_suffix(')').filter(|text| text.ends_with("MB")).and_then(bytes);
    // By default fio 2 divides by 1024 and writes MB.
    let is_binary = field("aggrb=").is_some() && !size.contains('i');
    let (bytes, rounding) = if is_binary { binary(size) } else { bytes(size).map(|bytes| (bytes, rounding(size))) }?;
    let run = field("run=").or(field("maxt="));
    let run = run.and_then(|run| run.strip_suffix("msec")?.rsplit('-').next()?.parse::<f64>().ok());
    Some(Total { bytes, rounding, printed, seconds: run.map(|ms| ms / 1e3) })
}

/// Requests times their size, where the jobs' requests all had one size.
fn issued_bytes(lines: &[(usize, String)], name: &str, place: usize) -> Option<f64> {
    let letter = name.to_uppercase().remove(0);
    let mut sizes = lines.iter().filter_map(|(_, line)| {
        let (_, sizes) = line.split_once("bs=")?;
        let range = match sizes.split_once(&format!("({letter}) ")) {
            Some((_, range)) => range.split([',', ' ']).next(),
            // fio 2: bs=64K-64K/64K-64K/64K-64K, or with commas.
            None => sizes.split([' ']).next()?.split(['/', ',']).nth(place),
        };
        let (low, high) = range?.split_once('-')?;
        Some((low == high).then(|| bytes(low).or_else(|| Some(binary(low)?.0))).flatten())
    });
    let size = sizes.next()??;
    if sizes.any(|other| other != Some(size)) {
        return None;
    }
    let counts = lines.iter().filter_map(|(_, line)| {
        let (name, totals) = line.trim().split_once(": total=")?;
        match name.trim_end() {
            "issued rwts" | "issued rwt" => totals.split(',').nth(place)?.split(' ').next()?.parse::<f64>().ok(),
            // fio 2: total=r=49209/w=0/d=0, ...
            "issued" => totals.split(['/', ',']).nth(place)?.get(2..)?.parse().ok(),
            _ => None,
        }
    });
    let requests: f64 = counts.sum();
    (requests > 0.0).then_some(requests * size)
}

/// `3075.6MB` and `64K` as fio 2 has them, in powers of 1024, with their rounding.
fn binary(text: &str) -> Option<(f64, f64)> {
    let size = text.strip_suffix('B').unwrap_or(text);
    let unit = if size.ends_with(|c: char| c.is_ascii_alphabetic()) { "iB" } else { "B" };
    let size = format!("{size}{unit}");
    Some((bytes(&size)?, rounding(&size)))
}

/// Half of the last digit of a size.
fn rounding(size: &str) -> f64 {
    let at = size.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(size.len());
    let unit = &size[at..];
    if unit == "B" { 0.0 } else { bytes(&format!("1{unit}")).unwrap_or(0.0) * half_of_last_digit(&size[..at]) }
}

/// `8192MiB`, `10.9GB`, `1024KiB`, `512B` in bytes.
fn bytes(text: &str) -> Option<f64> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (value, unit) = text.split_at(at);
    let power = |letter: u8| "BKMGTP".find(letter.to_ascii_uppercase() as char).map(|power| power as i32);
    let factor = match unit.as_bytes() {
        [b'B'] => 1.0,
        [letter, b'B'] => 1000f64.powi(power(*letter)?),
        [letter, b'i', b'B'] => 1024f64.powi(power(*letter)?),
        _ => return None,
    };
    value.parse::<f64>().ok().filter(|value| *value >= 0.0).map(|value| value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("512B"), Some(512.0));
        assert_eq!(bytes("8590MB"), Some(8590e6));
        assert_eq!(bytes("1.5GiB"), Some(1.5 * 1024f64.powi(3)));
        for bad in ["", "12", "MB", "1XB", "1Mb", "-1B", "1.2.3MB"] {
            assert_eq!(bytes(bad), None, "{bad:?}");
        }
    }
}
