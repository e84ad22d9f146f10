//! One line of what `perf stat` prints: of the table or of `-I`, of the separated values of `-x`, of `-j`, of `perf iostat`;
//! each for the whole machine, or by CPU, core, die, socket, node, thread or port.

mod iostat;
mod json;
mod separated;

pub use iostat::{header as iostat_header, iostat};
pub use json::json;
pub use separated::separated;

/// What a line of perf says.
#[derive(Debug, PartialEq)]
pub enum PerfLine {
    /// Counts: one, of `perf iostat` all of a port.
    Counts(Vec<EventCount>),
    /// A figure that perf worked out of counts in other lines.
    Metric,
    /// A count that may be a fraction or thousands, in a locale other than C.
    Locale,
}

/// What was counted apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountPlace {
    /// A CPU.
    Cpu(u32),
    /// As perf writes it: `S0`, `S0-D0-C1`, `N1`, `bash-9471`, `0000:17`.
    Named(String),
}

/// One event as counted.
#[derive(Debug, Clone, PartialEq)]
pub struct EventCount {
    /// End of the interval of `-I`, in picoseconds, so that it can be a key.
    pub at_ps: Option<u64>,
    pub place: Option<CountPlace>,
    pub event: String,
    /// The control group of `-G` and `--for-each-cgroup`.
    pub cgroup: Option<String>,
    pub unit: String,
    /// Where perf could not count it: why not.
    pub value: Result<f64, &'static str>,
    /// Half of the last digit, if there are decimals.
    pub rounding: f64,
    /// How much of the time it was counted, in percent, where perf says.
    pub counted_percent: Option<f64>,
    /// Whether it is the mean of `-r`.
    pub is_mean: bool,
    /// Whether it is of `-x` or `-j`: then the line alone shows that it is perf's.
    pub is_separate: bool,
}

impl EventCount {
    /// The event, and the control group that it was counted in.
    pub fn name(&self) -> String {
        match &self.cgroup {
            Some(cgroup) => format!("{} in {cgroup}", self.event),
            None => self.event.clone(),
        }
    }
}

/// What perf writes in the place of a count, and what it means.
pub const NOT_COUNTED: [(&str, &str); 2] = [("<not counted>", "not counted"), ("<not supported>", "not supported")];

/// Units that perf and the kernel's PMUs write, each in ours: bytes, nanoseconds.
#[rustfmt::skip]
const UNITS: [(&str, f64, &str); 15] = [
    ("Bytes", 1.0, "bytes"), ("B", 1.0, "bytes"), ("KB", 1e3, "bytes"), ("MB", 1e6, "bytes"), ("GB", 1e9, "bytes"),
    ("KiB", 1024.0, "bytes"), ("MiB", 1_048_576.0, "bytes"), ("GiB", 1_073_741_824.0, "bytes"), ("msec", 1e6, "ns"),
    ("ns", 1.0, "ns"), ("Joules", 1.0, "Joules"), ("Watts", 1.0, "Watts"), ("C", 1.0, "C"), ("MHz", 1.0, "MHz"),
    ("GHz", 1.0, "GHz"),
];

/// Our unit, and how much of it one of perf's is: bytes, nanoseconds, counts.
pub fn base_unit(unit: &str) -> (f64, &str) {
    match UNITS.iter().find(|known| known.0 == unit) {
        Some((_, factor, base)) => (*factor, base),
        None => (1.0, if unit.is_empty() { "1" } else { unit }),
    }
}

/// `value [unit] event [control group] # remark (percent)` in columns, behind the interval's end and the place where asked
/// for. Inside perf's table (`in_table`) less has to show that it is such a line.
pub fn columns(line: &str, in_table: bool) -> Option<PerfLine> {
    let Remark { body, has_remark, percent, is_mean } = match remark(line) {
        Ok(parts) => parts,
        Err(Comma) => return number(words(line).first()?.text).map(|_| PerfLine::Locale),
    };
    let all = words(body);
    let mut words = &all[..];
    let mut at_ps = None;
    match words {
        [end, rest @ ..] if is_end(end.text) && (rest.len() > 1 || has_remark) || is_before_place(end, rest) => {
            (at_ps, words) = (Some(seconds_to_ps(end.text)?), rest);
        }
        [end, value, event, ..] if end.text.contains(',') && is_end(&end.text.replacen(',', ".", 1)) => {
            return (is_like_number(value.text) && is_event(event.text)).then_some(PerfLine::Locale);
        }
        _ => {}
    }
    let (place, used) =
        place(words, in_table || at_ps.is_some()).map_or((None, 0), |(place, used)| (Some(place), used));
    words = &words[used..];
    if words.is_empty() {
        return (has_remark && (in_table || at_ps.is_some() || place.is_some())).then_some(PerfLine::Metric);
    }
    let (value, names) = match words {
        [mark, rest, names @ ..] if mark.text == "<not" => {
            (Err(NOT_COUNTED.iter().find(|known| known.0.ends_with(rest.text))?.1), names)
        }
        [value, names @ ..] => (Ok(value.text), names),
        [] => return None,
    };
    let (unit, event, rest) = match names {
        [unit, event, rest @ ..] if is_unit(unit.text) => (unit.text, event, rest),
        [unit, event] if is_event(unit.text) && !unit.text.contains('/') && event.text.find('/') > Some(0) => {
            (unit.text, event, &[][..])
        }
        [event, rest @ ..] => ("", event, rest),
        [] => return None,
    };
    // perf 3 and 4: `task-clock (msec)`; perf 2: `task-clock-msecs`.
    let in_parentheses = |word: &Word<'_>| {
        word.text.strip_prefix('(')?.strip_suffix(')').filter(|unit| is_unit(unit)).map(str::to_owned)
    };
    let (unit, rest) = match rest.first().and_then(in_parentheses) {
        Some(unit) => (unit, &rest[1..]),
        None => (unit.to_owned(), rest),
    };
    let (event_name, unit) = match event.text.strip_suffix("-msecs") {
        Some(name) => (name, "msec".to_owned()),
        None => (event.text, unit),
    };
    // An event is padded to 25 columns before its control group.
    let cgroup = match rest {
        [] => None,
        [group] if (group.is_far || event_name.len() >= 24) && !group.text.starts_with(['(', '[']) => {
            Some(group.text.to_owned())
        }
        _ => return None,
    };
    let is_apart = names[0].is_far || event.is_far || event_name.contains('/') || has_remark || percent.is_some();
    let is_laid_out = is_apart || at_ps.is_some() || place.is_some() || value.is_err();
    // A line that ends with a unit is broken.
    if !is_event(event_name) || is_unit(event_name) || !(is_laid_out || in_table && line.starts_with([' ', '\t'])) {
        return None;
    }
    let (value, rounding) = match value {
        Ok(text) => match number(text) {
            Some(value) => (Ok(value), half_of_last_digit(text)),
            None => return is_like_number(text).then_some(PerfLine::Locale),
        },
        Err(why) => (Err(why), 0.0),
    };
    let event = event_name.to_owned();
    Some(PerfLine::Counts(vec![EventCount {
        at_ps,
        place,
        event,
        cgroup,
        unit,
        value,
        rounding,
        counted_percent: percent,
        is_mean,
        is_separate: false,
    }]))
}

/// A word of a line.
struct Word<'a> {
    text: &'a str,
    /// At least two blanks, or a tab, are before it.
    is_far: bool,
}

/// Blanks of the locale divide thousands, not words.
fn words(text: &str) -> Vec<Word<'_>> {
    let is_gap = |c: char| matches!(c, ' ' | '\t');
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches(is_gap);
        let gap = &rest[..rest.len() - trimmed.len()];
        if trimmed.is_empty() {
            return words;
        }
        let (word, after) = trimmed.split_at(trimmed.find(is_gap).unwrap_or(trimmed.len()));
        words.push(Word { text: word, is_far: gap.len() > 1 || gap.contains('\t') });
        rest = after;
    }
}

/// A line of the table, and what its end says.
struct Remark<'a> {
    body: &'a str,
    has_remark: bool,
    percent: Option<f64>,
    is_mean: bool,
}

/// A percentage has a decimal comma.
struct Comma;

/// Takes `(83.31%)`, `[83.31%]` and `(scaled from 83.31%)` from the end of a line: the share of the time that a multiplexed
/// event was counted; `( +-  0.15% )`, the spread of `-r`; and the remark behind `#`.
fn remark(line: &str) -> Result<Remark<'_>, Comma> {
    let (mut rest, mut percent, mut is_mean) = (line.trim_end(), None, false);
    loop {
        let open = match rest.as_bytes().last() {
            Some(b')') => '(',
            Some(b']') => '[',
            _ => break,
        };
        let Some((before, inside)) = rest[..rest.len() - 1].rsplit_once(open) else { break };
        let inside = inside.trim();
        let share = inside.strip_prefix("scaled from").unwrap_or(inside).trim();
        if let Some(spread) = inside.strip_prefix("+-") {
            is_mean |= spread.ends_with('%');
        } else if let Some(share) = share.strip_suffix('%') {
            let share = share.trim_end();
            if share.contains(',') && is_like_number(share) {
                return Err(Comma);
            }
            let Ok(share) = share.parse() else { break };
            percent = Some(share);
        } else {
            break;
        }
        rest = before.trim_end();
    }
    let (body, has_remark) = rest.split_once('#').map_or((rest, false), |(body, _)| (body, true));
    Ok(Remark { body, has_remark, percent, is_mean })
}

/// The place that a line begins with, and how many words it takes, with the number of counters behind it.
fn place(words: &[Word<'_>], with_threads: bool) -> Option<(CountPlace, usize)> {
    let is_figure = |at: usize| words.get(at).is_some_and(|word| is_like_number(word.text) || word.text == "<not");
    let first = words.first()?.text;
    if let Some(cpu) = cpu(first) {
        return Some((CountPlace::Cpu(cpu), 1));
    }
    if is_die(first) {
        let is_number = words.get(1).is_some_and(|word| is_digits(word.text));
        let has_number = is_number && (is_figure(2) || words.len() == 2);
        return Some((CountPlace::Named(first.to_owned()), 1 + usize::from(has_number)));
    }
    if !with_threads || is_like_number(first) || first.starts_with('<') {
        return None;
    }
    // A command's name may have blanks.
    let last = (0..words.len().min(4)).find(|at| is_thread(words[*at].text) && is_figure(at + 1))?;
    let name: Vec<&str> = words[..=last].iter().map(|word| word.text).collect();
    Some((CountPlace::Named(name.join(" ")), last + 1))
}

fn cpu(text: &str) -> Option<u32> {
    text.strip_prefix("CPU")?.parse().ok()
}

/// `S0`, `S0-D0`, `S0-D0-C3`, `S0-D0-CLS1`, `S0-D0-L3-ID0`, `N1`.
fn is_die(text: &str) -> bool {
    text.starts_with(['S', 'N'])
        && text.split('-').all(|part| {
            let digits = part.trim_start_matches(|c: char| c.is_ascii_uppercase());
            digits.len() < part.len() && is_digits(digits)
        })
}

/// `bash-9471`.
fn is_thread(text: &str) -> bool {
    text.rsplit_once('-').is_some_and(|(name, thread)| !name.is_empty() && is_digits(thread))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_unit(text: &str) -> bool {
    UNITS.iter().any(|known| known.0 == text)
}

/// What divides groups of three digits in some locale.
const GAPS: [char; 6] = [',', '\'', '\u{2019}', '\u{202f}', '\u{2009}', '\u{a0}'];

/// Digits with points and with what divides thousands in some locale.
fn is_like_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.' || GAPS.contains(&c))
}

/// A number as perf's table has it: two decimals, or six, never three. Groups of three digits may be divided by commas, by
/// apostrophes or by blanks of the locale.
fn number(text: &str) -> Option<f64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.len() == 3 || !is_digits(decimals) {
        return None;
    }
    let mut groups = whole.split(GAPS);
    let first = groups.next()?;
    let mut digits = first.to_owned();
    for group in groups {
        if group.len() != 3 || first.len() > 3 {
            return None;
        }
        digits.push_str(group);
    }
    let is_number = !first.is_empty() && is_digits(&digits);
    is_number.then(|| format!("{digits}.{decimals}").parse().ok()).flatten()
}

fn half_of_last_digit(text: &str) -> f64 {
    text.split_once('.').map_or(0.0, |(_, decimals)| 0.5 / 10f64.powi(decimals.len() as i32))
}

/// Whether this is the end of an interval of `-I`: seconds with nine decimals.
fn is_end(text: &str) -> bool {
    text.split_once('.')
        .is_some_and(|(seconds, decimals)| is_digits(seconds) && decimals.len() == 9 && is_digits(decimals))
}

/// Whether seconds, as short as somebody may have made them, stand before a place.
fn is_before_place(end: &Word<'_>, rest: &[Word<'_>]) -> bool {
    let next = rest.first().map_or("", |word| word.text);
    is_decimal(end.text) && (cpu(next).is_some() || is_die(next))
}

/// `1.5`.
fn is_decimal(text: &str) -> bool {
    text.split_once('.').is_some_and(|(whole, decimals)| is_digits(whole) && is_digits(decimals) && decimals.len() < 10)
}

fn seconds_to_ps(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    let digits: u64 = format!("{decimals:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000_000)?.checked_add(digits.checked_mul(1000)?)
}

/// An event's name begins with a letter. Of a PMU's event both slashes are there, and letters alone behind them.
fn is_event(text: &str) -> bool {
    let is_whole = match text.split('/').collect::<Vec<_>>()[..] {
        [_] => true,
        [_, _, modifiers] => modifiers.trim_start_matches(':').bytes().all(|b| b.is_ascii_alphabetic()),
        _ => false,
    };
    is_whole
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !matches!(text, "elapsed" | "user" | "sys" | "seconds")
}
