//! `tune` on a guest whose workload follows a known law: settings that help, hurt and do nothing get their answer, and every
//! way out leaves the register as it was. docs/tune.md.

use std::time::Duration;

use pciescope_core::tune::{Effect, Verdict};
use pciescope_lab::vm::Kernel;

use crate::say;
use crate::support::{PATIENCE, RECORDS, Rig};

const WORKLOAD: &str = "/tmp/rate.sh";
/// What the workload gives more or less by the largest read request that it finds, and what `tune` has to say of it.
const LAW: [(&str, u32, f64, Verdict); 3] =
    [("128", 0, -10.0, Verdict::Hurts), ("1024", 3, 0.0, Verdict::NoDifference), ("4096", 5, 10.0, Verdict::Helps)];

/// Prints 10,000, more or less by the law, and by up to a hundredth at random.
fn workload(rig: &Rig) {
    let cases: String =
        LAW.iter().map(|(_, code, percent, _)| format!("{code}) base={};; ", 10_000.0 + percent * 100.0)).collect();
    rig.must(&format!(
        r#"cat >{WORKLOAD} <<'END'
#!/bin/sh
register=$(setpci -s {} CAP_EXP+8.w)
case $(((0x$register >> 12) & 7)) in {cases}*) base=10000;; esac
noise=$((0x$(cut -c1-4 /proc/sys/kernel/random/uuid)))
echo $((base + noise % 200 - 100))
END
chmod +x {WORKLOAD}"#,
        rig.bdf
    ));
}

fn register(rig: &Rig) -> String {
    rig.must(&format!("setpci -s {} CAP_EXP+8.w", rig.bdf))
}

pub fn settings_with_a_law_get_their_answer_and_all_is_put_back() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.cpus(2));
    workload(&rig);
    let found = register(&rig);
    assert!(!LAW.iter().any(|(_, code, ..)| found.starts_with(&code.to_string())), "{found} is tried");
    let written = || rig.ledger()["config_writes"].as_u64().unwrap();
    let before = written();
    let values = LAW.map(|(value, ..)| value).join(",");
    let measured = rig.sh(&format!(
        "pciescope tune {} --try mrrs={values} --score rate:max --least 2 --duration 90s -o {RECORDS} --overwrite -- {WORKLOAD}",
        rig.bdf
    ));
    answers(&measured.expect(0, "tune")[0].tune.as_ref().unwrap().effects);
    let best = measured.of("tune")[0].tune.as_ref().unwrap().best.clone().unwrap();
    assert_eq!((best.settings[0].value.as_str(), best.verdict), ("4096", Verdict::Helps), "{best:?}");
    assert_eq!(register(&rig), found);
    assert!(written() > before, "the device saw no write");
    after_a_kill(&rig, &found, None);
    after_a_kill(&rig, &found, Some("1910"));
    rig.check_log();
}

fn answers(effects: &[Effect]) {
    for (value, _, percent, verdict) in LAW {
        let effect = effects.iter().find(|effect| effect.settings[0].value == value).unwrap();
        let change = effect.change.as_ref().unwrap();
        say!("mrrs {value}: {:?} after {} comparisons, {change:?}", effect.verdict, effect.comparisons);
        assert_eq!(effect.verdict, verdict, "{effect:?}");
        assert!((change.low_percent..=change.high_percent).contains(&percent), "{effect:?}");
    }
}

/// A program that is killed while its setting is in force; then `unbind --restore`, unless somebody else has set the register.
fn after_a_kill(rig: &Rig, found: &str, others: Option<&str>) {
    let running = rig.vm.start(&format!(
        "exec pciescope tune {} --try mrrs=4096 --score rate:max --duration 60s -- {WORKLOAD}",
        rig.bdf
    ));
    rig.wait_until("a setting is in force", &format!("[ $(setpci -s {} CAP_EXP+8.w) != {found} ]", rig.bdf));
    running.signal("KILL").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    assert_ne!(running.wait_within(Duration::from_secs(20)).unwrap().status, 0);
    // Between two looks the register may have been put back by the experiment itself.
    let left = register(rig);
    if let Some(value) = others {
        rig.must(&format!("setpci -s {} CAP_EXP+8.w={value}", rig.bdf));
    }
    let said = rig.run_within("pciescope unbind --restore 2>&1", PATIENCE);
    match others {
        None => {
            assert!(left == found || said.stdout.contains("mrrs ("), "{left}: {}", said.stdout);
            assert_eq!(register(rig), found, "{}", said.stdout);
        }
        Some(value) => {
            assert!(said.stdout.contains("somebody else set it to 0x1000"), "{}", said.stdout);
            assert_eq!(register(rig), value, "{}", said.stdout);
            rig.must(&format!("setpci -s {} CAP_EXP+8.w={found}", rig.bdf));
        }
    }
    assert!(!rig.must("ls /var/lib/pciescope/restore").contains("tune"), "what was put back is still noted");
}
