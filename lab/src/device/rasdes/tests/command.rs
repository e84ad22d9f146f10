//! The `port` commands: every form is understood, everything else is refused with what is wrong.

use super::super::events::{Limit, PortCounter};
use super::super::time_based::{Stop, Variant};
use super::*;

fn command(bank: &mut RasdesBank, line: &str) -> Result<(), String> {
    bank.command(0, &line.split_whitespace().collect::<Vec<_>>()).map_err(|err| err.to_string())
}

fn counter(bank: &mut RasdesBank, select: u16, lane: u8) -> PortCounter {
    *bank.counters.pick(select, lane).unwrap()
}

#[test]
fn every_form_of_every_command_does_what_it_says() {
    const SHARES: [u8; 9] = [5, 0, 75, 20, 0, 0, 0, 0, 0];
    type IsDone = fn(&mut RasdesBank) -> bool;
    let cases: [(&str, IsDone); 37] = [
        ("traffic rx 100", |bank| bank.own.rx_payload == 100),
        ("traffic tx 0x10", |bank| bank.own.tx_payload == 16),
        ("rate tx 7", |bank| bank.tx.per_second == 7 && bank.rx.per_second == 0),
        ("rate tx 0", |bank| bank.tx.per_second == 0),
        ("event 0x201 5", |bank| counter(bank, 0x201, 0).happened == 5),
        ("event 0x001 5 lane 15", |bank| counter(bank, 0x001, 15).happened == 5),
        ("set 0x401 15", |bank| counter(bank, 0x401, 0).value == 15),
        ("set 0x207 255", |bank| counter(bank, 0x207, 0).value == 255),
        ("set 0x719 0xffffffff", |bank| counter(bank, 0x719, 0).value == u32::MAX),
        ("tba-set 0xffffffffffffffff", |bank| bank.time_based.read_half(true) == u32::MAX),
        ("states L1=20,TX_L0S=5", |bank| bank.time_based.settings.shares == SHARES),
        ("states L0=70,L1=20,TX_L0S=5", |bank| bank.time_based.settings.shares == SHARES),
        ("variant old", |bank| bank.time_based.settings.variant == Variant::Old),
        ("variant seed", |bank| bank.time_based.settings.variant == Variant::Seed),
        ("stop zero", |bank| bank.time_based.settings.stop == Stop::Zero),
        ("stop hold", |bank| bank.time_based.settings.stop == Stop::Hold),
        ("limit wrap", |bank| bank.counters.limit == Limit::Wrap),
        ("limit saturate", |bank| bank.counters.limit == Limit::Saturate),
        ("width 32", |bank| bank.time_based.settings.width == 32),
        ("torn on", |bank| bank.time_based.settings.is_torn),
        ("torn off", |bank| !bank.time_based.settings.is_torn),
        ("absent 0x201,0x001", |bank| counter(bank, 0x201, 0).is_absent && counter(bank, 0x001, 9).is_absent),
        ("absent none", |bank| !counter(bank, 0x201, 0).is_absent && !counter(bank, 0x001, 9).is_absent),
        ("absent-report 0x00,0x23", |bank| bank.time_based.settings.absent == [0, 0x23]),
        ("absent-report none", |bank| bank.time_based.settings.absent.is_empty()),
        ("agent every 3", |bank| bank.agent.is_some_and(|agent| agent.every == 3)),
        ("agent off", |bank| bank.agent.is_none()),
        ("firmware 0x201", |bank| counter(bank, 0x201, 0).is_on),
        ("gone", |bank| bank.is_gone),
        ("back", |bank| !bank.is_gone),
        ("mute 4", |bank| bank.mute_reads == 4),
        ("vsec rev 15", |bank| bank.list.rev == 15),
        ("vsec id 0xffff", |bank| bank.list.id == 0xffff),
        ("vsec foreign-first on", |bank| bank.list.has_foreign_first),
        ("vsec loop on", |bank| bank.list.is_looped),
        ("vsec loop off", |bank| !bank.list.is_looped),
        ("link 6 16", |bank| bank.width == 16 && bank.time_based.settings.generation == 6),
    ];
    let mut bank = Block::new().bank;
    for (line, is_done) in cases {
        assert_eq!(command(&mut bank, line), Ok(()), "{line}");
        assert!(is_done(&mut bank), "{line}");
    }
}

#[test]
fn everything_else_is_refused_and_says_why() {
    let cases = [
        ("", "is missing"),
        ("frobnicate", "`frobnicate` is not traffic, rate, event"),
        ("traffic", "rx or tx is missing"),
        ("traffic up 1", "`up` is not rx or tx"),
        ("traffic rx", "a number is missing"),
        ("traffic rx -1", "`-1` is not a whole number"),
        ("traffic rx +1", "`+1` is not a whole number"),
        ("traffic rx 0x+1", "`0x+1` is not a whole number"),
        ("traffic rx 1 2", "`2` is one word too many"),
        ("rate rx 18446744073709551616", "is not a whole number below 2^64"),
        ("event 201 1", "`201` is not an event"),
        ("event 0x10201 1", "`0x10201` is not an event"),
        ("event 0x208 1", "`0x208` is not an event"),
        ("event 0x201 1 lane 0", "`lane` is not for an event that is common to all lanes"),
        ("event 0x001 1 lane 16", "`16` is not a lane"),
        ("event 0x001 1 lane", "a lane from 0 to 15 is missing"),
        ("event 0x001 1 on 3", "`on` is not `lane L`"),
        ("set 0x001 16", "`16` is not a number below 2^4"),
        ("set 0x201 256", "`256` is not a number below 2^8"),
        ("set 0x70b 0x100000000", "is not a number below 2^32"),
        ("states", "shares of time"),
        ("states L0=90,L1=20", "100 percent or less"),
        ("states L0=256", "`L0=256` is not a state's share"),
        ("states L1=10,L1=10", "`L1=10` is not a state's share, each state once"),
        ("states L3=10", "`L3=10` is not a state's share"),
        ("states L1", "`L1` is not a state's share"),
        ("variant new", "`new` is not seed or old"),
        ("stop both", "`both` is not hold or zero"),
        ("limit none", "`none` is not saturate or wrap"),
        ("width 31", "`31` is not a number of bits"),
        ("width 65", "`65` is not a number of bits"),
        ("torn yes", "`yes` is not on or off"),
        ("absent", "events, or none is missing"),
        ("absent 0x201,", "`` is not an event"),
        ("absent-report 0x0a", "`0x0a` is not a report"),
        ("agent every 0", "`0` is not a distance"),
        ("agent often", "`often` is not `every N` or `off`"),
        ("firmware none", "`none` is not an event"),
        ("gone now", "`now` is one word too many"),
        ("vsec", "rev, id, foreign-first or loop is missing"),
        ("vsec rev 16", "`16` is not a revision"),
        ("vsec id 65536", "`65536` is not a VSEC ID"),
        ("vsec size 3", "`size` is not rev"),
        ("link 7 4", "`7` is not a generation"),
        ("link 5 3", "`3` is not 1, 2, 4, 8 or 16 lanes"),
    ];
    let mut bank = Block::new().bank;
    for (line, expected) in cases {
        let refused = command(&mut bank, line).expect_err(line);
        assert!(refused.contains(expected), "{line:?}: {refused}");
        assert!(refused.starts_with("port: "), "{line:?}: {refused}");
    }
}
