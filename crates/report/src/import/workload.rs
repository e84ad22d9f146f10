//! Reads how many bytes a workload reports to have moved: fio's report (its text, JSON or terse lines), and the line of
//! lmbench's bw_mem.

mod fio;

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
    /// Of how many runs of the workload this is the sum (of rates: the mean).
    pub runs: u64,
}

/// How a workload says what it moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// So many bytes, as exactly as the text has them, and as it prints them in whole MB, in so many seconds.
    Bytes {
        /// In bytes.
        exact: f64,
        /// By how many bytes `exact` may be off: half of the last digit.
        rounding: f64,
        /// In bytes, where it prints whole MB.
        printed: Option<f64>,
        /// How long it took: the longest group of jobs, and all groups one after the other.
        seconds: [f64; 2],
    },
    /// A rate in bytes per second.
    Rate {
        /// In bytes per second.
        rate: f64,
        /// By how much it may be off: half of the last digit.
        rounding: f64,
    },
}

/// What a text says of workloads.
#[derive(Debug, Default, PartialEq)]
pub struct Workloads {
    /// What is known to have moved.
    pub traffic: Vec<Traffic>,
    /// Lines, from 1, that a workload wrote and that cannot be read, with the reason.
    pub unread: Vec<(u64, String)>,
}

impl Workloads {
    fn leave(&mut self, line: usize, why: impl Into<String>) {
        self.unread.push((line as u64 + 1, why.into()));
    }
}

/// Every workload that a transcript reports on. Several fio runs of one direction add up.
pub fn parse(text: &str) -> Workloads {
    let mut found = Workloads::default();
    fio::parse(text, &mut found);
    bw_mem(text, &mut found);
    found
}

/// Whether a text holds several reports of one job of fio, as with `--status-interval`: each has what was moved until then.
pub use fio::is_repeated as is_repeated_fio;

/// bw_mem's `40960.00 20507.82`, megabytes and megabytes (10^6 bytes) a second, with the command line that says which test it was.
fn bw_mem(text: &str, found: &mut Workloads) {
    let rates: Vec<(usize, &str)> =
        text.lines().enumerate().filter_map(|(at, line)| Some((at, bw_mem_rate(line)?))).collect();
    let Some((first, _)) = rates.first() else { return };
    let commands = text.lines().filter(|line| line.split_whitespace().any(is_bw_mem));
    let test = |line: &str| {
        let words = line.split_whitespace().skip_while(|word| !is_bw_mem(word)).skip(1);
        BW_MEM_TESTS.into_iter().find(|test| words.clone().any(|word| word == test.0))
    };
    let mut tests: Vec<_> = commands.filter_map(test).collect();
    tests.dedup();
    let (name, direction) = match tests[..] {
        [(name, Some(direction))] => (name, direction),
        [(name, None)] => {
            return found.leave(
                *first,
                format!("bw_mem {name} moves data both ways: no counter of one way is compared with it"),
            );
        }
        [] if text.contains("bw_mem") => {
            return found.leave(*first, "the command line of bw_mem has none of its tests (rd, wr, cp, ...)");
        }
        [] => {
            return found.leave(
                *first,
                "this may be bw_mem's, but the command line that says which test it was is not in the text",
            );
        }
        _ => {
            return found
                .leave(*first, "the text holds several tests of bw_mem: which of them the counters saw is not known");
        }
    };
    let figures = rates.iter().filter_map(|(_, rate)| Some((rate.parse::<f64>().ok()?, half_of_last_digit(rate))));
    let (rate, rounding) = figures.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let runs = rates.len() as f64;
    found.traffic.push(Traffic {
        name: format!("bw_mem {name}"),
        direction,
        amount: Amount::Rate { rate: rate / runs * 1e6, rounding: rounding / runs * 1e6 },
        runs: rates.len() as u64,
    });
}

/// The program at the end of a path.
fn is_bw_mem(word: &str) -> bool {
    word.rsplit('/').next() == Some("bw_mem")
}

/// The rate in a line of bw_mem, in MB/s: two figures with two decimals each, or six if they are less than 1.
fn bw_mem_rate(line: &str) -> Option<&str> {
    let (size, rate) = line.trim().split_once(' ')?;
    let is_figure = |text: &str| {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        text.parse::<f64>().is_ok_and(|figure| decimals == if figure < 1.0 { 6 } else { 2 })
    };
    (is_figure(size) && is_figure(rate)).then_some(rate)
}

/// Whether a line that begins with a figure is one of a workload: of dd, of bw_mem, or of fio (also the rest of a broken line).
pub fn is_figure_of_workload(line: &str) -> bool {
    let is_dd = line.ends_with(" records in")
        || line.ends_with(" records out")
        || line.contains(" bytes ") && line.contains(" copied");
    let is_fio = ["ioengine=", "iodepth=", ", io=", ", run="].iter().any(|word| line.contains(word));
    is_dd || is_fio || bw_mem_rate(line).is_some() || fio::is_terse(line)
}

/// Tests of bw_mem, with the way that their traffic goes, if it is one.
const BW_MEM_TESTS: [(&str, Option<Direction>); 9] = [
    ("rd", Some(Direction::Read)),
    ("frd", Some(Direction::Read)),
    ("wr", Some(Direction::Write)),
    ("fwr", Some(Direction::Write)),
    ("bzero", Some(Direction::Write)),
    ("cp", None),
    ("fcp", None),
    ("rdwr", None),
    ("bcopy", None),
];

/// Half of the last digit of a figure.
fn half_of_last_digit(figure: &str) -> f64 {
    0.5 / 10f64.powi(figure.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_taken_at_its_most_exact() {
        let text = "test-read: (g=0): rw=read, bs=(R) 1024KiB-1024KiB, (W) 1024KiB-1024KiB, (T) 1024KiB-1024KiB\n\
                    \x20    issued rwts: total=103411,0,0,0 short=0,0,0,0 dropped=0,0,0,0\n\
                    \x20  READ: bw=517MiB/s (542MB/s), 517MiB/s-517MiB/s, io=101GiB (108GB), run=200120-200120msec\n";
        let amount =
            Amount::Bytes { exact: 103_411.0 * 1_048_576.0, rounding: 0.0, printed: None, seconds: [200.12, 200.12] };
        let name = "fio read".to_owned();
        assert_eq!(parse(text).traffic, [Traffic { name, direction: Direction::Read, amount, runs: 1 }]);
        // Sizes that differ cannot be counted by requests.
        let mixed = text.replace("(R) 1024KiB-1024KiB", "(R) 4096B-1024KiB");
        let Amount::Bytes { exact, rounding, .. } = parse(&mixed).traffic[0].amount else { panic!("fio gives bytes") };
        assert_eq!((exact, rounding), (101.0 * 1024f64.powi(3), 0.5 * 1024f64.powi(3)));
    }

    #[test]
    fn both_ways_of_a_mixed_run_are_apart() {
        let text = "  READ: bw=1MiB/s, io=3249MiB (3407MB), run=20231-20231msec\n\
                    \x20 WRITE: bw=1MiB/s, io=3393MiB (3558MB), run=20231-20231msec\n";
        let names: Vec<String> = parse(text).traffic.into_iter().map(|moved| moved.name).collect();
        assert_eq!(names, ["fio read", "fio write"]);
    }

    #[test]
    fn bw_mem_needs_its_command_line() {
        for (text, want) in [
            ("40960.00 20507.82\n", "not in the text"),
            ("$ ./bw_mem 32M cp\n33.55 50617.28\n", "both ways"),
            ("$ ./bw_mem 32M\n33.55 50617.28\n", "none of its tests"),
            ("$ ./bw_mem 32M rd\n33.55 50617.28\n$ ./bw_mem 32M wr\n33.55 50617.28\n", "several tests"),
        ] {
            let Workloads { traffic, unread } = parse(text);
            assert!(traffic.is_empty() && unread.len() == 1 && unread[0].1.contains(want), "{unread:?}");
        }
        for (text, rate, runs) in [
            ("# numactl --cpubind=0 --membind=0 ./bw_mem 40960M rd\n40960.00 20507.82\n", 20_507.82e6, 1),
            ("./bw_mem -N 5 512k rd\n0.524288 101234.56\n", 101_234.56e6, 1),
            ("bw_mem 1M rd\n1.00 2.00\n1.00 4.00\n", 3e6, 2),
        ] {
            let amount = Amount::Rate { rate, rounding: 5e3 };
            let name = "bw_mem rd".to_owned();
            assert_eq!(parse(text).traffic, [Traffic { name, direction: Direction::Read, amount, runs }]);
        }
    }

    #[test]
    fn every_form_of_a_report_is_the_same_traffic() {
        // What fio 3 prints of two jobs, one after the other, in its three forms; facts of its format by its HOWTO.
        let job = |group: u32, read: u64, write: u64| {
            let way = |kib: u64| {
                format!("{{ \"io_bytes\" : {}, \"io_kbytes\" : {kib}, \"runtime\" : {} }}", kib << 10, kib / 4)
            };
            format!(
                "{{ \"jobname\" : \"t\", \"groupid\" : {group}, \"read\" : {}, \n\"write\" : {} }}",
                way(read),
                way(write)
            )
        };
        let json = format!(
            "fio: a note\n{{\n  \"fio version\" : \"fio-3.36\",\n  \"jobs\" : [\n{},\n{}\n]\n}}\nend\n",
            job(0, 4096, 800),
            job(1, 8192, 0)
        );
        let terse = |version: &str, write: usize| {
            let mut fields = vec!["0".to_owned(); 130];
            for (at, field) in
                [(0, version), (1, "fio-3.36"), (5, "12288"), (8, "2048"), (write, "800"), (write + 3, "200")]
            {
                field.clone_into(&mut fields[at]);
            }
            fields.join(";") + "\n"
        };
        for (text, seconds) in [(json.as_str(), 3.072), (&terse("3", 46), 2.048), (&terse("5", 52), 2.048)] {
            let moved: Vec<(String, f64, f64)> = parse(text)
                .traffic
                .into_iter()
                .map(|one| match one.amount {
                    Amount::Bytes { exact, seconds: [_, all], .. } => (one.name, exact, all),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(
                moved,
                [("fio read".to_owned(), 12_582_912.0, seconds), ("fio write".to_owned(), 819_200.0, 0.2)],
                "{text}"
            );
        }
        let cut = json.split_at(json.len() / 2).0;
        for (text, line, why) in [
            (cut, 2, "JSON is cut"),
            (terse("3", 46).split_at(60).0, 1, "terse line is cut"),
            ("t: (groupid=0, jobs=1): err= 0\n", 1, "no line READ"),
            ("   READ: bw=1MiB/s (1MB/s), i\n\n", 1, "READ: of fio is cut"),
        ] {
            let Workloads { traffic, unread } = parse(text);
            assert!(traffic.is_empty() && unread[0].0 == line && unread[0].1.contains(why), "{unread:?}");
        }
    }
}
