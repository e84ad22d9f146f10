//! Reads how many bytes a workload reports to have moved: the end of fio's report, and the line of lmbench's bw_mem.

use std::collections::HashSet;

/// Which way the data went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the device or from memory to the CPU's side.
    Read,
    /// To the device or to memory.
    Write,
}

/// What one workload moved one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// `fio read`, `bw_mem fwr`.
    pub name: String,
    /// Which way it went.
    pub direction: Direction,
    /// How much.
    pub amount: Amount,
}

/// How a workload says what it moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// So many bytes, as exactly as the text has them, and as it prints them in whole MB, in so many seconds.
    Bytes {
        /// In bytes.
        exact: f64,
        /// In bytes, where it prints whole MB.
        printed: Option<f64>,
        /// How long it took.
        seconds: f64,
    },
    /// A rate in bytes per second.
    Rate(f64),
}

/// Every workload that a transcript reports on, in its order. Several fio runs of one direction add up.
pub fn parse(text: &str) -> Vec<Traffic> {
    let mut all = fio(text);
    all.extend(bw_mem(text));
    all
}

/// fio's `READ: bw=517MiB/s (542MB/s), ..., io=8192MiB (8590MB), run=15854-15854msec`, or that of fio 2,
/// `READ: io=8192.0MB, aggrb=529114KB/s, ..., mint=15854msec, maxt=15854msec`; made exact by the requests issued where all
/// were of one size.
fn fio(text: &str) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    for (head, name, letter, direction) in
        [("READ:", "fio read", 'R', Direction::Read), ("WRITE:", "fio write", 'W', Direction::Write)]
    {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(head)).filter(|line| line.contains("io="));
        let totals: Vec<FioTotal> = lines.filter_map(total).collect();
        if totals.is_empty() {
            continue;
        }
        let said: f64 = totals.iter().map(|total| total.bytes).sum();
        let printed = totals.iter().map(|total| total.printed).sum();
        // Runs beside each other: the longest one.
        let seconds = totals.iter().map(|total| total.seconds).fold(0.0, f64::max);
        let exact = issued_bytes(text, letter).filter(|issued| (issued / said - 1.0).abs() < 0.02).unwrap_or(said);
        all.push(Traffic { name: name.to_owned(), direction, amount: Amount::Bytes { exact, printed, seconds } });
    }
    all
}

/// A line of fio's run status.
struct FioTotal {
    bytes: f64,
    /// In whole MB: a figure of gigabytes is rounded too much to be compared with.
    printed: Option<f64>,
    seconds: f64,
}

fn total(line: &str) -> Option<FioTotal> {
    let field = |name: &str| line.split(", ").find_map(|field| field.trim().strip_prefix(name));
    let io = field("io=")?;
    let (size, decimal) = io.split_once(" (").unwrap_or((io, ""));
    let printed = decimal.strip_suffix(')').filter(|text| text.ends_with("MB")).and_then(bytes);
    // By default fio 2 divides by 1024 and writes MB.
    let is_binary = field("aggrb=").is_some() && !size.contains('i');
    let size = if is_binary { binary(size) } else { bytes(size) };
    let run = field("run=").or(field("maxt="));
    let run = run.and_then(|run| run.trim_end_matches("msec").rsplit('-').next()?.parse::<f64>().ok());
    Some(FioTotal { bytes: size?, printed, seconds: run.unwrap_or(0.0) / 1e3 })
}

/// Requests times their size, where the jobs' requests all had one size.
fn issued_bytes(text: &str, letter: char) -> Option<f64> {
    let place = usize::from(letter == 'W');
    let mut sizes = text.lines().filter_map(|line| {
        let (_, sizes) = line.split_once("bs=")?;
        let range = match sizes.split_once(&format!("({letter}) ")) {
            Some((_, range)) => range.split([',', ' ']).next(),
            // fio 2: bs=64K-64K/64K-64K/64K-64K
            None => sizes.split(',').next()?.split('/').nth(place),
        };
        let (low, high) = range?.split_once('-')?;
        (low == high).then(|| bytes(low).or_else(|| binary(low))).flatten()
    });
    let size = sizes.next()?;
    if sizes.any(|other| other != size) {
        return None;
    }
    let counts = text.lines().filter_map(|line| {
        let (name, totals) = line.trim().split_once(": total=")?;
        match name.trim_end() {
            "issued rwts" => totals.split(',').nth(place)?.split(' ').next()?.parse::<f64>().ok(),
            // fio 2: total=r=49209/w=0/d=0, ...
            "issued" => totals.split(['/', ',']).nth(place)?.get(2..)?.parse().ok(),
            _ => None,
        }
    });
    let requests: f64 = counts.sum();
    (requests > 0.0).then_some(requests * size)
}

/// `3075.6MB` and `64K` as fio 2 has them, in powers of 1024.
fn binary(text: &str) -> Option<f64> {
    let size = text.strip_suffix('B').unwrap_or(text);
    let unit = if size.ends_with(|c: char| c.is_ascii_alphabetic()) { "iB" } else { "B" };
    bytes(&format!("{size}{unit}"))
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

/// bw_mem's `40960.00 20507.82`, megabytes and megabytes (10^6 bytes) a second, with the command line that says which test it was.
fn bw_mem(text: &str) -> Option<Traffic> {
    let command = text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().skip_while(|word| !word.ends_with("bw_mem")).collect();
        words.get(1..)?.iter().find(|word| BW_MEM_TESTS.iter().any(|test| test.0 == **word)).copied()
    });
    let rate = text.lines().find_map(bw_mem_rate)?;
    let (test, direction) = *BW_MEM_TESTS.iter().find(|test| Some(test.0) == command)?;
    Some(Traffic { name: format!("bw_mem {test}"), direction, amount: Amount::Rate(rate * 1e6) })
}

/// How many lines of bw_mem a text holds: with more than one it does not say which of them the counters saw.
pub fn bw_mem_lines(text: &str) -> usize {
    text.lines().filter(|line| bw_mem_rate(line).is_some()).count()
}

/// Whether a text holds several reports of one job of fio, as with `--status-interval`: each has what was moved until then.
pub fn is_repeated_fio(text: &str) -> bool {
    let mut jobs = HashSet::new();
    let job =
        |line: &str| line.split_once(": (groupid=")?.1.split_once(" pid=")?.1.split(':').next()?.parse::<u64>().ok();
    text.lines().filter_map(|line| Some((line.split(':').next()?, job(line)?))).any(|one| !jobs.insert(one))
}

/// The rate in a line of bw_mem, in MB/s: two figures with two decimals each.
pub fn bw_mem_rate(line: &str) -> Option<f64> {
    let (size, rate) = line.trim().split_once(' ')?;
    let figure = |text: &str| {
        let has_two = text.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 2);
        has_two.then(|| text.parse::<f64>().ok()).flatten()
    };
    figure(size).and(figure(rate))
}

/// Tests of bw_mem whose traffic goes one way (a copy's goes both).
const BW_MEM_TESTS: [(&str, Direction); 5] = [
    ("rd", Direction::Read),
    ("frd", Direction::Read),
    ("wr", Direction::Write),
    ("fwr", Direction::Write),
    ("bzero", Direction::Write),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_taken_at_its_most_exact() {
        let text = "test-read: (g=0): rw=read, bs=(R) 1024KiB-1024KiB, (W) 1024KiB-1024KiB, (T) 1024KiB-1024KiB\n\
                    \x20    issued rwts: total=103411,0,0,0 short=0,0,0,0 dropped=0,0,0,0\n\
                    \x20  READ: bw=517MiB/s (542MB/s), 517MiB/s-517MiB/s, io=101GiB (108GB), run=200120-200120msec\n";
        let amount = Amount::Bytes { exact: 103_411.0 * 1_048_576.0, printed: None, seconds: 200.12 };
        assert_eq!(parse(text), [Traffic { name: "fio read".to_owned(), direction: Direction::Read, amount }]);
        // Sizes that differ cannot be counted by requests.
        let mixed = text.replace("(R) 1024KiB-1024KiB", "(R) 4096B-1024KiB");
        let Amount::Bytes { exact, .. } = parse(&mixed)[0].amount else { panic!("fio gives bytes") };
        assert_eq!(exact, 101.0 * 1024f64.powi(3));
    }

    #[test]
    fn both_ways_of_a_mixed_run_are_apart() {
        let text = "  READ: bw=1MiB/s, io=3249MiB (3407MB), run=20231-20231msec\n\
                    \x20 WRITE: bw=1MiB/s, io=3393MiB (3558MB), run=20231-20231msec\n";
        let names: Vec<String> = parse(text).into_iter().map(|moved| moved.name).collect();
        assert_eq!(names, ["fio read", "fio write"]);
    }

    #[test]
    fn bw_mem_needs_its_command_line() {
        let line = "40960.00 20507.82\n";
        assert_eq!(parse(line), []);
        let text = format!("# numactl --cpubind=0 --membind=0 ./bw_mem 40960M rd\n{line}");
        let amount = Amount::Rate(20_507.82e6);
        assert_eq!(parse(&text), [Traffic { name: "bw_mem rd".to_owned(), direction: Direction::Read, amount }]);
    }

    #[test]
    fn lines_of_bw_mem_are_counted() {
        assert_eq!(bw_mem_lines("bw_mem 1M rd\n1.00 2.00\nbw_mem 1M fwr\n1.00 3.00\n"), 2);
    }

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
