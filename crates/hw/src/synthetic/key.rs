//! One part of the options of a synthetic machine or board: `key`, or `key=value`.

/// A part, split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyValue<'t> {
    text: &'t str,
    pub key: &'t str,
    pub value: Option<&'t str>,
}

impl<'t> KeyValue<'t> {
    pub fn of(text: &'t str) -> Self {
        match text.split_once('=') {
            Some((key, value)) => KeyValue { text, key, value: Some(value) },
            None => KeyValue { text, key: text, value: None },
        }
    }

    /// Whether its key is that of a text like `cpus=N` or `slow[=T]`.
    pub fn is(&self, typed: &str) -> bool {
        typed.split(['=', '[']).next() == Some(self.key)
    }

    /// A refusal that names the part.
    pub fn refuse<T>(&self, why: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("{:?}{why}", self.text))
    }

    /// A word that is not empty.
    pub fn word(&self, what: &str) -> Result<&'t str, String> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => self.refuse(format_args!(": {} takes {what}", self.key)),
        }
    }

    pub fn number(&self, low: u64, high: u64) -> Result<u64, String> {
        match self.value.unwrap_or_default().parse::<u64>() {
            Ok(n) if (low..=high).contains(&n) => Ok(n),
            _ => self.refuse(format_args!(": {} takes a number from {low} to {high}", self.key)),
        }
    }

    /// A number of events, which are off without it.
    pub fn count(&self) -> Result<u64, String> {
        self.number(1, u64::MAX)
    }

    /// A key without a value.
    pub fn flag(&self) -> Result<bool, String> {
        match self.value {
            None => Ok(true),
            Some(_) => self.refuse(format_args!(": {} takes no value", self.key)),
        }
    }

    /// A duration such as `20us`, in picoseconds; at most an hour.
    pub fn ps(&self) -> Result<u64, String> {
        let text = self.value.unwrap_or_default();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let scale = match unit {
            "ps" => 1,
            "ns" | "" => 1_000,
            "us" => 1_000_000,
            "ms" => 1_000_000_000,
            "s" => 1_000_000_000_000,
            _ => 0,
        };
        match number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) {
            Some(ps) if scale > 0 && ps <= pciescope_core::histogram::MAX_PS => Ok(ps),
            _ => self.refuse(": a time is a whole number with ps, ns, us, ms or s, up to an hour"),
        }
    }

    /// None of the keys that there are.
    pub fn unknown<T>(&self, keys: &[(&str, &str)]) -> Result<T, String> {
        let names: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
        self.refuse(format_args!(" is not one of {}", names.join(", ")))
    }
}

/// Declares the options of a synthetic machine or board: of each the field, what it is without the option, the key as it is
/// typed, what it does, and how it is read.
macro_rules! options {
    ($(#[$about:meta])* struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $key:literal $what:literal |$part:ident| $value:expr;)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type),*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default),* }
            }
        }

        /// The keys with what they do, for help texts.
        pub const KEYS: [(&str, &str); [$($key),*].len()] = [$(($key, $what)),*];

        impl $name {
            fn set(&mut self, text: &str) -> Result<(), String> {
                let given = crate::synthetic::key::KeyValue::of(text);
                $(
                    if given.is($key) {
                        let $part = given;
                        self.$field = $value;
                        return Ok(());
                    }
                )*
                given.unknown(&KEYS)
            }
        }
    };
}

pub(crate) use options;
