//! The files `format` of tracefs: a tracepoint's number, and where in its bytes its fields are.

use super::ring::u16_at;
use crate::Root;

/// Where tracefs is mounted; the second one is mounted when it is looked into.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracepoint of this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Format {
    /// Its number in tracefs, as perf_event_open takes it; it stands in the first two bytes of each hit.
    pub id: u64,
    /// Offset and size of each field that was asked for.
    fields: Vec<(usize, usize)>,
}

impl Format {
    /// The tracepoint `group/name` with these fields; `None` where this kernel has not got it, or not with them.
    pub fn find(root: &Root, name: &str, fields: &[&str]) -> Option<Format> {
        let text = FOLDERS.iter().find_map(|folder| root.text(format!("{folder}/events/{name}/format")))?;
        Format::parse(&text, fields)
    }

    /// By the text of its file.
    pub fn parse(text: &str, fields: &[&str]) -> Option<Format> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.parse().ok()?;
        Some(Format { id, fields: fields.iter().map(|name| field(text, name)).collect::<Option<_>>()? })
    }

    /// The number in a field of a hit.
    pub fn number(&self, raw: &[u8], field: usize) -> Option<u64> {
        let (at, size) = self.fields[field];
        let mut bytes = [0; 8];
        // Both architectures are little-endian.
        bytes.get_mut(..size)?.copy_from_slice(raw.get(at..at + size)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// The text in a field of a hit: bytes in place, or (`__data_loc`) behind the fields.
    pub fn text<'r>(&self, raw: &'r [u8], field: usize) -> Option<&'r str> {
        let (at, size) = self.fields[field];
        let (at, size) = match size {
            4 => (u16_at(raw, at)?.into(), u16_at(raw, at + 2)?.into()),
            _ => (at, size),
        };
        let bytes = raw.get(at..at + size)?;
        std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
    }
}

/// `field:char prev_comm[16]; offset:8; size:16; signed:0;`
fn field(text: &str, name: &str) -> Option<(usize, usize)> {
    let line = text.lines().find(|line| {
        let declared = line.split(';').next().and_then(|declared| declared.rsplit([' ', '*']).next());
        declared.and_then(|declared| declared.split('[').next()) == Some(name)
    })?;
    let number = |what: &str| line.split_once(what)?.1.split(';').next()?.parse().ok();
    Some((number("\toffset:")?, number("\tsize:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 318\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] next_name;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:void * function;\toffset:32;\tsize:8;\tsigned:0;\n";

    #[test]
    fn fields_are_found_by_their_names_and_read_from_bytes() {
        let format = Format::parse(SWITCH, &["prev_comm", "prev_pid", "next_name", "function"]).unwrap();
        assert_eq!(format.id, 318);
        let mut raw = vec![0; 40];
        raw[8..12].copy_from_slice(b"fio\0");
        raw[24..28].copy_from_slice(&77u32.to_le_bytes());
        raw[28..32].copy_from_slice(&(40u32 | 6 << 16).to_le_bytes());
        raw[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        raw.extend(b"edu-1\0");
        assert_eq!((format.text(&raw, 0), format.number(&raw, 1)), (Some("fio"), Some(77)));
        assert_eq!((format.text(&raw, 2), format.number(&raw, 3)), (Some("edu-1"), Some(u64::MAX)));
        // Cut bytes are no field.
        assert_eq!((format.text(&raw[..44], 2), format.number(&raw[..39], 3)), (None, None));
        assert_eq!(Format::parse(SWITCH, &["pid"]), None);
        assert_eq!(Format::parse("format:", &[]), None);
    }
}
