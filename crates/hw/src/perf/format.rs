//! The files of a PMU's `format/`: which bits of perf_event_attr a parameter goes to.

use super::Config;

/// The bits of one parameter, such as `config:0-7,32-35`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Which word: 0 is `config`, 1 is `config1`, up to 3.
    word: usize,
    /// First and last bit of each piece, the lowest bits of the value first.
    pieces: Vec<(u32, u32)>,
}

impl Field {
    /// Parses the text of a format file; `None` where it is not understood.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            "config3" => 3,
            _ => return None,
        };
        let mut pieces = Vec::new();
        for piece in bits.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last > 63 {
                return None;
            }
            pieces.push((first, last));
        }
        Some(Field { word, pieces })
    }

    /// How many bits a value may have.
    pub fn bits(&self) -> u32 {
        self.pieces.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Puts `value` into its bits, in place of what was there. `false` where it has too many bits; nothing is changed then.
    pub fn set(&self, config: &mut Config, value: u64) -> bool {
        let bits = self.bits();
        if bits < 64 && value >> bits != 0 {
            return false;
        }
        let mut rest = value;
        for (first, last) in &self.pieces {
            let count = last - first + 1;
            let mask = if count == 64 { u64::MAX } else { (1 << count) - 1 };
            let word = &mut config.0[self.word];
            *word = *word & !(mask << first) | (rest & mask) << first;
            rest = if count == 64 { 0 } else { rest >> count };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_to_its_bits_lowest_first() {
        let field = Field::parse("config1:0-3,8-11").unwrap();
        let mut config = Config([0, 0xffff, 0, 0]);
        assert!(field.set(&mut config, 0xa5));
        assert_eq!(config.0, [0, 0xfaf5, 0, 0]);
        assert!(!field.set(&mut config, 0x100));
        assert_eq!(config.0[1], 0xfaf5);
    }

    #[test]
    fn a_whole_word_can_be_one_field() {
        let field = Field::parse("config2:0-63\n").unwrap();
        let mut config = Config::default();
        assert!(field.set(&mut config, u64::MAX));
        assert_eq!(config.0[2], u64::MAX);
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for bad in ["", "config", "config:", "config:8-7", "config:0-64", "confi:0", "config4:0", "config:x"] {
            assert_eq!(Field::parse(bad), None, "{bad:?}");
        }
    }
}
