//! The identity of a run, which distinguishes its records from those of other runs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::SystemTime;

use crate::Record;
use crate::record::SCHEMA;

/// What the records of one run have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The `run` field: 16 hexadecimal digits.
    pub run: String,
    /// The `verb` field: the command, for example `latency mmio`.
    pub verb: String,
    /// The `label` field: what the user calls the run.
    pub label: Option<String>,
    /// The `time` field (RFC 3339, UTC) where it is the same in all records; `None`: the time of each record's completion.
    pub time: Option<String>,
}

impl Identity {
    /// The identity of a new run, with a random name.
    pub fn new(verb: &str, label: Option<String>) -> Self {
        // 64 random bits: the standard library seeds its hasher from the kernel.
        let run = format!("{:016x}", RandomState::new().build_hasher().finish());
        Identity { run, verb: verb.to_owned(), label, time: None }
    }

    /// Writes the identity and [`SCHEMA`] into a record that is complete `now`. A clock before 1970 counts as 1970.
    pub fn mark(&self, record: &mut Record, now: SystemTime) {
        record.schema = SCHEMA;
        record.run.clone_from(&self.run);
        record.time = match &self.time {
            Some(time) => time.clone(),
            None => humantime::format_rfc3339_millis(now.max(SystemTime::UNIX_EPOCH)).to_string(),
        };
        record.verb.clone_from(&self.verb);
        record.label.clone_from(&self.label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_its_own_name_of_sixteen_digits() {
        let (a, b) = (Identity::new("stat", None).run, Identity::new("stat", None).run);
        assert_eq!(a.len(), 16);
        assert!(a.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        assert_ne!(a, b);
    }

    #[test]
    fn a_record_has_the_time_of_its_completion_unless_the_run_has_one_time() {
        let identity = Identity::new("stat", Some("night".to_owned()));
        let mut record = Record { verb: "other".to_owned(), ..Record::default() };
        // The clock of a machine without a battery may be anywhere.
        identity.mark(&mut record, SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(60));
        assert_eq!((record.schema, record.verb.as_str(), record.label.as_deref()), (SCHEMA, "stat", Some("night")));
        assert_eq!((record.time.as_str(), &record.run), ("1970-01-01T00:00:00.000Z", &identity.run));
        let fixed = Identity { time: Some("2026-01-01T00:00:00Z".to_owned()), ..identity };
        fixed.mark(&mut record, SystemTime::UNIX_EPOCH);
        assert_eq!(record.time, "2026-01-01T00:00:00Z");
    }
}
