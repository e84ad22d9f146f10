//! Separated values of `-x`.

use super::iostat::{INBOUND, port};
use super::{
    CountPlace, EventCount, NOT_COUNTED, PerfLine, cpu, half_of_last_digit, is_decimal, is_die, is_digits, is_end,
    is_event, is_like_number, is_thread, is_unit, seconds_to_ps,
};

/// `value,unit,event,run time,percent,...` with the interval's end and the place before it, where asked for. Behind the
/// event may stand the control group and the spread of `-r`.
pub fn separated(line: &str) -> Option<PerfLine> {
    let line = line.trim_matches(' ');
    let mut separators = [',', ';', '\t', '|', '\'', ':', '!', '~', '^'].into_iter();
    separators.find_map(|separator| (line.matches(separator).count() > 3).then(|| separated_by(line, separator))?)
}

fn separated_by(line: &str, separator: char) -> Option<PerfLine> {
    let all = fields(line, separator);
    let mut fields = &all[usize::from(all[0] == "summary")..];
    let mut at_ps = None;
    let is_count = |fields: &[&str]| match fields {
        ["", "", "", ..] => true,
        [_, unit, event, ..] => (unit.is_empty() || is_unit(unit)) && is_event(event),
        _ => false,
    };
    let has_place = fields.get(1).is_some_and(|next| cpu(next).is_some() || is_die(next));
    if is_end(fields[0]) || is_decimal(fields[0]) && (has_place || is_count(&fields[1..])) {
        (at_ps, fields) = (Some(seconds_to_ps(fields[0])?), &fields[1..]);
    }
    if let Some(counts) = port(fields[0], at_ps, &fields[1..], &INBOUND) {
        return Some(PerfLine::Counts(counts));
    }
    let is_value = |text: &str| text.parse::<f64>().is_ok() || NOT_COUNTED.iter().any(|known| known.0 == text);
    let mut place = None;
    if let [first, second, third, ..] = *fields {
        let (named, used) = match cpu(first) {
            Some(cpu) => (Some(CountPlace::Cpu(cpu)), 1),
            None if is_die(first) => {
                let has_number =
                    is_digits(second) && (is_value(third) || third.is_empty() && fields.get(3) == Some(&""));
                (Some(CountPlace::Named(first.to_owned())), 1 + usize::from(has_number))
            }
            None if is_thread(first) && is_value(second) => (Some(CountPlace::Named(first.to_owned())), 1),
            None => (None, 0),
        };
        (place, fields) = (named, &fields[used..]);
    }
    let [value, unit, event, ..] = *fields else { return None };
    if [value, unit, event] == [""; 3] {
        let is_metric = fields.iter().any(|field| field.parse::<f64>().is_ok());
        return is_metric.then_some(PerfLine::Metric);
    }
    let behind = |event: &str| is_unit(event) && fields.get(3).is_some_and(|next| is_event(next));
    if !is_event(event) || behind(event) {
        // A decimal comma makes two fields of a value.
        let is_split = is_digits(value) && is_digits(unit) && fields.get(3).is_some_and(|event| is_event(event));
        return (is_split && share(&fields[3..]).is_some()).then_some(PerfLine::Locale);
    }
    let Share { cgroup, percent, is_mean } = share(&fields[2..])?;
    let Some(percent) = percent.filter(|_| is_value(value)) else {
        return (is_value(value) || is_like_number(value)).then_some(PerfLine::Locale);
    };
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    let why_not = NOT_COUNTED.iter().find(|known| known.0 == value).map_or("not a number", |known| known.1);
    Some(PerfLine::Counts(vec![EventCount {
        at_ps,
        place,
        event: event.to_owned(),
        cgroup,
        unit: unit.to_owned(),
        value: number.ok_or(why_not),
        rounding: half_of_last_digit(value),
        counted_percent: Some(percent),
        is_mean,
        is_separate: true,
    }]))
}

/// The fields of a line. The terms of an event, `cpu/event=0x3c,umask=0x00/`, are one.
fn fields(line: &str, separator: char) -> Vec<&str> {
    let is_term = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let mut fields = Vec::new();
    let mut rest = line;
    while let Some((field, after)) = rest.split_once(separator) {
        let is_open = is_term(field.trim_start()) && field.matches('/').count() == 1 && !field.ends_with('/');
        // Up to the field with the closing slash, where nothing but terms lies between.
        let mut end = field.len();
        for term in after.split(separator).take_while(|term| is_open && is_term(term)) {
            end += separator.len_utf8() + term.len();
            if let Some((_, modifier)) = term.split_once('/') {
                let is_end = modifier.bytes().all(|b| b.is_ascii_alphabetic());
                end = if is_end { end } else { field.len() };
                break;
            }
        }
        let has_closed = rest[..end].matches('/').count() == 2;
        let end = if has_closed { end } else { field.len() };
        fields.push(rest[..end].trim());
        match rest[end..].strip_prefix(separator) {
            Some(next) => rest = next,
            None => return fields,
        }
    }
    fields.push(rest.trim());
    fields
}

/// What stands behind an event in separated values.
struct Share {
    cgroup: Option<String>,
    /// `None` if it has a decimal comma.
    percent: Option<f64>,
    is_mean: bool,
}

/// Reads `event[,control group][,spread %],run time,percent,...`. The percent has two decimals.
fn share(fields: &[&str]) -> Option<Share> {
    let two = |text: &str, mark: char| {
        text.split_once(mark).is_some_and(|(whole, two)| is_digits(whole) && two.len() == 2 && is_digits(two))
    };
    let is_split = |at: usize| {
        fields[at].len() <= 3
            && is_digits(fields[at])
            && fields.get(at + 1).is_some_and(|two| two.len() == 2 && is_digits(two))
    };
    let run = (1..fields.len().min(5)).find(|at| {
        let Some(percent) = fields.get(at + 1) else { return false };
        is_digits(fields[*at]) && (two(percent, '.') || two(percent, ',') || is_split(at + 1))
    })?;
    let is_spread = |text: &&&str| text.strip_suffix('%').is_some_and(|spread| spread.trim().parse::<f64>().is_ok());
    let between = &fields[1..run];
    let is_mean = between.iter().any(|text| is_spread(&text));
    let cgroup = between.iter().find(|text| !is_spread(text) && !text.is_empty()).map(|name| (*name).to_owned());
    let percent = fields[run + 1];
    Some(Share { cgroup, percent: percent.parse().ok().filter(|_| two(percent, '.')), is_mean })
}
