//! The events that a sub-channel's counters can count: the names of docs/spec/drw.md by their codes.

/// Codes are six bits.
pub const CODES: usize = 64;

/// All three accesses of the host interface together.
pub const HIF_RD_OR_WR: u8 = 0x00;
/// A write of a whole line of 64 bytes.
pub const HIF_WR: u8 = 0x01;
/// A read of a line.
pub const HIF_RD: u8 = 0x02;
/// A write that does not cover its line.
pub const HIF_RMW: u8 = 0x03;

/// Name and code of every event that has a name; the order is that of the codes.
const NAMES: [(u8, &str); 58] = [
    (0x00, "hif_rd_or_wr"),
    (0x01, "hif_wr"),
    (0x02, "hif_rd"),
    (0x03, "hif_rmw"),
    (0x04, "hif_hi_pri_rd"),
    (0x07, "dfi_wr_data_cycles"),
    (0x08, "dfi_rd_data_cycles"),
    (0x09, "hpr_xact_when_critical"),
    (0x0a, "lpr_xact_when_critical"),
    (0x0b, "wr_xact_when_critical"),
    (0x0c, "op_is_activate"),
    (0x0d, "op_is_rd_or_wr"),
    (0x0e, "op_is_rd_activate"),
    (0x0f, "op_is_rd"),
    (0x10, "op_is_wr"),
    (0x11, "op_is_mwr"),
    (0x12, "op_is_precharge"),
    (0x13, "precharge_for_rdwr"),
    (0x14, "precharge_for_other"),
    (0x15, "rdwr_transitions"),
    (0x16, "write_combine"),
    (0x17, "war_hazard"),
    (0x18, "raw_hazard"),
    (0x19, "waw_hazard"),
    (0x1a, "op_is_enter_selfref_rk0"),
    (0x1b, "op_is_enter_selfref_rk1"),
    (0x1c, "op_is_enter_selfref_rk2"),
    (0x1d, "op_is_enter_selfref_rk3"),
    (0x1e, "op_is_enter_powerdown_rk0"),
    (0x1f, "op_is_enter_powerdown_rk1"),
    (0x20, "op_is_enter_powerdown_rk2"),
    (0x21, "op_is_enter_powerdown_rk3"),
    (0x22, "op_is_enter_mpsm_rk0"),
    (0x23, "op_is_enter_mpsm_rk1"),
    (0x24, "op_is_enter_mpsm_rk2"),
    (0x25, "op_is_enter_mpsm_rk3"),
    (0x26, "selfref_mode_rk0"),
    (0x27, "selfref_mode_rk1"),
    (0x28, "selfref_mode_rk2"),
    (0x29, "selfref_mode_rk3"),
    (0x2a, "op_is_refresh"),
    (0x2b, "op_is_crit_ref"),
    (0x2c, "op_is_spec_ref"),
    (0x2d, "op_is_load_mode"),
    (0x2e, "op_is_zqcl"),
    (0x2f, "op_is_zqcs"),
    (0x30, "visible_window_limit_reached_rd"),
    (0x31, "visible_window_limit_reached_wr"),
    (0x34, "op_is_dqsosc_mpc"),
    (0x35, "op_is_dqsosc_mrr"),
    (0x36, "op_is_tcr_mrr"),
    (0x37, "op_is_zqstart"),
    (0x38, "op_is_zqlatch"),
    (0x39, "chi_txreq"),
    (0x3a, "chi_txdat"),
    (0x3b, "chi_rxdat"),
    (0x3c, "chi_rxrsp"),
    (0x3d, "tsz_vio"),
];

/// The code of a name, or of a code written as `2` or `0x02`; `None` for what is neither.
pub fn parse(text: &str) -> Option<u8> {
    let named = NAMES.iter().find(|(_, name)| *name == text).map(|(code, _)| *code);
    named.or_else(|| {
        let code = match text.strip_prefix("0x") {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        code.filter(|code| usize::from(*code) < CODES)
    })
}

/// The name of a code, or the code as `0x05` where it has none.
pub fn name(code: u8) -> String {
    match NAMES.iter().find(|(known, _)| *known == code) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("{code:#04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_what_it_is_called() {
        for code in 0..CODES as u8 {
            assert_eq!(parse(&name(code)), Some(code), "{}", name(code));
            assert_eq!(parse(&code.to_string()), Some(code));
        }
    }

    #[test]
    fn names_stand_at_their_codes() {
        let cases = [("hif_rd", 0x02), ("chi_txreq", 0x39), ("selfref_mode_rk3", 0x29), ("0x05", 5), ("63", 63)];
        cases.iter().for_each(|(text, code)| assert_eq!(parse(text), Some(*code), "{text}"));
        assert_eq!((name(0x3d).as_str(), name(0x32).as_str()), ("tsz_vio", "0x32"));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for text in ["", "cycle", "0x40", "64", "-1", "hif", "HIF_RD", "0x"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
