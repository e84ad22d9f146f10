//! Tells a log of latencies from other texts of whole numbers: by the words around them, and by whether the numbers can be
//! times, durations and CPUs.

/// What a text is instead, or why it cannot be a log.
#[derive(Debug, PartialEq)]
pub struct Other {
    /// The line that shows it, from 1.
    pub line: u64,
    /// What it shows.
    pub why: String,
    /// Whether the text names its program. Else it may be a log after all, if the user says so.
    pub is_certain: bool,
}

/// Words of programs that print four or five whole numbers a line.
const PROGRAMS: [(&str, &str); 6] = [
    ("# Histogram", "a histogram of cyclictest"),
    ("# Min Latencies:", "a histogram of cyclictest"),
    ("# Total:", "a histogram of cyclictest"),
    ("RTLA timerlat", "a histogram of rtla timerlat"),
    ("RTLA osnoise", "a histogram of rtla osnoise"),
    ("Index IRQ-", "a histogram of rtla timerlat"),
];

/// Lines of whole numbers alone: the line from 1, the numbers as they stand.
pub fn numbers(text: &str) -> impl Iterator<Item = (u64, Vec<&str>)> {
    text.lines().zip(1..).filter_map(|(line, number)| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_number = |field: &&str| field.bytes().all(|b| b.is_ascii_digit());
        (!fields.is_empty() && fields.iter().all(is_number)).then_some((number, fields))
    })
}

/// Refuses a text whose words are of another program; without `is_named` also one whose numbers cannot be a log of
/// interrupts (five a line) or of register reads (four).
pub fn latency_log(text: &str, is_named: bool) -> Result<(), Other> {
    for (line, number) in text.lines().zip(1..) {
        let words = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((_, program)) =
            PROGRAMS.iter().find(|(sign, _)| words.starts_with(sign) || words.starts_with(&format!("# {sign}")))
        {
            return Err(Other {
                line: number,
                why: format!("this is {program}, not a log of single latencies"),
                is_certain: true,
            });
        }
    }
    let rows: Vec<(u64, Vec<&str>)> = numbers(text).collect();
    let Some((first, fields)) = rows.first().filter(|_| !is_named) else { return Ok(()) };
    let no = |line: u64, why: String| Err(Other { line, why, is_certain: false });
    let count = fields.len();
    if !matches!(count, 4 | 5) {
        return Ok(());
    }
    // A word above each column, other than those of pcilat.
    let header =
        text.lines().take(*first as usize - 1).filter(|line| !line.trim().is_empty()).last().unwrap_or_default();
    let is_ours = ["_ns", "Latency", "Format:", "#", "$"].iter().any(|sign| header.contains(sign));
    if header.split_whitespace().count() == count && !is_ours {
        return no(first - 1, format!("{:?} heads the columns", crate::text::clean(header.trim())));
    }
    let mut before = None;
    let mut backwards = Vec::new();
    let (mut short, mut no_cpu) = (Vec::new(), Vec::new());
    let mut pairs = std::collections::HashMap::new();
    let alike: Vec<_> = rows.iter().filter(|(_, fields)| fields.len() == count).collect();
    for (line, fields) in &alike {
        if let Some(padded) = fields.iter().find(|field| field.len() > 1 && field.starts_with('0')) {
            return no(*line, format!("{padded} has zeros before it, which no log has"));
        }
        let figures: Vec<u64> = fields.iter().filter_map(|field| field.parse().ok()).collect();
        let [time, latency, .., cpu, target] = figures[..] else { continue };
        if cpu > MOST_CPUS {
            no_cpu.push((*line, cpu));
        }
        if before.is_some_and(|before| time < before) {
            backwards.push(*line);
        }
        before = Some(time);
        if latency < LEAST_NS {
            short.push(*line);
        }
        *pairs.entry((cpu, target)).or_insert(0u64) += 1;
    }
    let rows = alike.len();
    let is_still = matches!(alike[..], [(_, begin), .., (_, end)] if begin[0] == end[0]);
    match (backwards.first(), short.first(), no_cpu.first()) {
        _ if is_still => no(*first, "the times do not ascend".to_owned()),
        (Some(line), ..) if backwards.len() * 10 > rows => no(*line, "the times do not ascend".to_owned()),
        (_, Some(line), _) if short.len() * 2 > rows => {
            no(*line, format!("latencies of less than {LEAST_NS} ns do not occur"))
        }
        (.., Some((line, cpu))) if no_cpu.len() * 2 > rows => no(*line, format!("{cpu} is no CPU")),
        _ if rows > 16 && pairs.len() * 2 > rows => {
            no(*first, "hardly any two lines are of one CPU and target".to_owned())
        }
        _ => Ok(()),
    }
}

/// No machine has a CPU of a higher number.
const MOST_CPUS: u64 = 4095;
/// No access to a device and no interrupt takes less.
const LEAST_NS: u64 = 10;
