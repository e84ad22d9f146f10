//! `tune` on a guest whose workload follows a known law: settings that help, hurt and do nothing get their answer, and every
//! way out leaves the register as it was. docs/tune.md.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pciescope_core::tune::{Effect, Verdict};
use pciescope_lab::vm::{Attachment, Builder, GuestDevice, Kernel};
use serde_json::Value;

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
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.cpus(2).module("pcilat"));
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
    interrupts_are_a_figure(&rig);
    assert_eq!(register(&rig), found);
    rig.check_log();
}

/// The figure is the time of the device's own interrupts, which it delays: read requests change nothing of that.
fn interrupts_are_a_figure(rig: &Rig) {
    rig.tell("irq-delay fixed 2ms");
    let delayed = || rig.ledger()["irq_delay_ns"]["count"].as_u64().unwrap();
    let before = delayed();
    let measured = rig.sh(&format!(
        "pciescope tune {} --figure irq --bind --try mrrs=4096 --duration 10s -o {RECORDS} --overwrite",
        rig.bdf
    ));
    let effect = &measured.expect(0, "tune")[0].tune.as_ref().unwrap().effects[0];
    say!("interrupts: {effect:?}");
    assert!(matches!(effect.verdict, Verdict::NoDifference | Verdict::Undecided), "{effect:?}");
    assert!(effect.comparisons > 0 && effect.blocks_failed == 0, "{effect:?}");
    // Each comparison is four blocks, of some interrupts each.
    assert!(delayed() - before > 8 * effect.comparisons, "{} interrupts in {effect:?}", delayed() - before);
    rig.tell("reset");
}

/// What the workload found set.
const SEEN: &str = "/tmp/seen";

/// The type of an IOMMU group, which the kernel takes while the driver is off; what an interface's driver sets by ethtool.
pub fn knobs_of_drivers_are_set_and_come_back() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| {
        let builder = builder.cpus(2).iommu(true).module("nvme").module("igb");
        builder.device("nvme0", GuestDevice::Nvme, Attachment::RootPort).device(
            "igb0",
            GuestDevice::Igb,
            Attachment::RootPort,
        )
    });
    let (disk, card) = (rig.vm.address("nvme0"), rig.vm.address("igb0"));
    let own = format!("/sys/bus/pci/devices/{disk}");
    rig.must(&format!("for file in {own}/nvme/nvme*/nvme*n1/queue/nr_requests; do echo 60 >$file; done"));
    let state = || {
        rig.must(&format!(
            "cat {own}/iommu_group/type {own}/nvme/nvme*/nvme*n1/queue/nr_requests {own}/power/control {own}/driver_override
            readlink {own}/driver; grep -h . /proc/irq/*/smp_affinity_list | sort | uniq -c"
        ))
    };
    let before = state();
    let look = format!("echo $(cat {own}/iommu_group/type {own}/nvme/nvme*/nvme*n1/queue/nr_requests)");
    let workload = |look: &str| {
        rig.must(&format!(
            "cat >{WORKLOAD} <<'END'\n#!/bin/sh\n{look} >>{SEEN}; echo 100\nEND\nchmod +x {WORKLOAD}; : >{SEEN}"
        ))
    };
    workload(&look);
    let tune = |function: &str, tries: &str| {
        let measured = rig.sh(&format!(
            "pciescope tune {function} {tries} --score rate:max --duration 10s -o {RECORDS} --overwrite -- {WORKLOAD}"
        ));
        let tune = measured.expect(0, "tune")[0].tune.clone().unwrap();
        assert!(
            tune.notes.is_empty() && tune.effects.iter().all(|effect| effect.comparisons > 0),
            "{:?}",
            tune.effects
        );
        assert!(tune.effects.iter().all(|effect| effect.blocks_failed == 0), "{:?}", tune.effects);
    };
    tune(&disk, "--try iommu=identity");
    assert_eq!(rig.must(&format!("sort -u {SEEN}")).trim(), "DMA 60\nidentity 60");
    assert_eq!(state(), before);
    let running =
        rig.vm.start(&format!("exec pciescope tune {disk} --try iommu=identity --score rate:max -- {WORKLOAD}"));
    rig.wait_until("another type", &format!("grep -q identity {own}/iommu_group/type"));
    running.signal("KILL").unwrap_or_else(|err| panic!("the lab failed: {err}"));
    running.wait_within(Duration::from_secs(20)).unwrap();
    let said = rig.run_within("pciescope unbind --restore 2>&1", PATIENCE).stdout;
    assert_eq!(state(), before, "{said}");
    // The interface of a card.
    let look = format!(
        "pciescope tune {card} -q 2>/dev/null | awk '$1 == \"rx-usecs\" || $1 == \"queues\" {{ print $1, $2; }}'"
    );
    let found = rig.must(&look);
    workload(&look);
    tune(&card, "--try rx-usecs=50");
    tune(&card, "--try queues=1");
    let seen = rig.must(&format!("cat {SEEN}"));
    assert!(seen.contains("rx-usecs 50\n") && seen.contains("queues 1\n"), "{found}: {seen}");
    assert_eq!(rig.must(&look), found);
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

/// Runs of each kind, and kills.
const RUNS: u64 = 20;

/// A number below `most`, of a row that a seed begins: splitmix64.
fn drawn(seed: u64, most: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % most
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Runs with a setting that gives a tenth more, and with one that gives nothing.
pub fn twenty_settings_that_help_and_twenty_that_do_nothing() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.cpus(2));
    workload(&rig);
    let found = register(&rig);
    for (value, _, percent, verdict) in LAW.into_iter().filter(|law| law.2 >= 0.0) {
        let (mut right, mut undecided, mut inside, mut seconds) = (0, 0, 0, Vec::new());
        for seed in 1..=RUNS {
            let measured = rig.sh(&format!(
                "pciescope tune {} --try mrrs={value} --score rate:max --least 2 --duration 90s --seed {seed} -o {RECORDS} --overwrite -- {WORKLOAD}",
                rig.bdf
            ));
            let record = measured.expect(0, "tune")[0].clone();
            let tune = record.tune.as_ref().unwrap();
            let effect = &tune.effects[0];
            say!("mrrs {value}: {:?} after {} comparisons, {:?}", effect.verdict, effect.comparisons, effect.change);
            if effect.verdict == Verdict::Undecided {
                undecided += 1;
                continue;
            }
            assert_eq!(effect.verdict, verdict, "seed {seed}: {effect:?}");
            assert_eq!(tune.best.is_some(), verdict == Verdict::Helps, "{tune:?}");
            right += 1;
            let change = effect.change.as_ref().unwrap();
            inside += u64::from((change.low_percent..=change.high_percent).contains(&percent));
            seconds.push(record.interval.unwrap().end_ns as f64 / 1e9);
        }
        assert!(right >= RUNS / 2, "{right} of {RUNS} were decided");
        println!(
            "| a setting that gives {percent} % in a guest | `make prove-tune` | {right} of {RUNS} runs right, {undecided} undecided, none wrong; the interval held it {inside} times; {:.0} s in the median |",
            median(seconds)
        );
    }
    assert_eq!(register(&rig), found);
    rig.check_log();
}

/// Kills of the program at random moments; `unbind --restore` after each.
pub fn twenty_kills_of_the_program_leave_nothing() {
    let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.cpus(2));
    workload(&rig);
    let found = register(&rig);
    let mut caught = 0;
    for round in 0..RUNS {
        let running = rig.vm.start(&format!(
            "exec pciescope tune {} --try mrrs=128,4096 --score rate:max --seed {round} --duration 60s -- {WORKLOAD}",
            rig.bdf
        ));
        sleep(Duration::from_millis(500 + drawn(round, 4_000)));
        running.signal("KILL").unwrap_or_else(|err| panic!("the lab failed: {err}"));
        assert_ne!(running.wait_within(Duration::from_secs(20)).unwrap().status, 0);
        let left = register(&rig);
        let said =
            rig.run_within("pciescope list 2>&1 >/dev/null; echo; pciescope unbind --restore 2>&1", PATIENCE).stdout;
        assert_eq!(register(&rig), found, "{said}");
        if left != found {
            caught += 1;
            assert!(said.contains("may still be set: mrrs") && said.contains("put back from"), "{left}: {said}");
        }
    }
    assert!(caught >= 3, "{caught} of {RUNS} kills came while a setting was in force");
    println!(
        "| kills of `tune` in a guest | `make prove-tune` | {RUNS}, of them {caught} with a setting in force: the register as before |"
    );
    rig.check_log();
}

const STATE: &str = "state/tune.jsonl";

/// QEMU killed at random moments; a new guest with the same state folder, on the host's share, says what became of each place.
pub fn qemu_is_killed_twenty_times_and_what_the_next_guest_says_is_true() {
    let (mut kept, mut noted, mut held) = (None::<String>, 0, 0);
    for round in 0..=RUNS {
        let stop = Arc::new(AtomicUsize::new(0));
        let rig = Rig::boot_with(Kernel::V6_12, |builder| builder.cpus(2).stop(&stop));
        let state = rig.vm.share().join(STATE);
        if let Some(text) = kept.take() {
            let (has_entries, is_other) = after_a_power_loss(&rig, &state, &text, round);
            noted += u64::from(has_entries);
            held += u64::from(is_other);
        }
        if round == RUNS {
            rig.check_log();
            break;
        }
        workload(&rig);
        let _running = rig.vm.start(&format!(
            "exec pciescope tune {} --try mrrs=128,4096 --score rate:max --state-dir /host/state --duration 120s -- {WORKLOAD}",
            rig.bdf
        ));
        // Some of them while it begins.
        if round % 4 != 0 {
            let begun = Instant::now();
            while fs::read_to_string(&state).unwrap_or_default().lines().count() < 2 {
                assert!(begun.elapsed() < PATIENCE, "no change was noted");
                sleep(Duration::from_millis(20));
            }
        }
        sleep(Duration::from_millis(drawn(round, 3_000)));
        stop.store(9, Ordering::SeqCst);
        while rig.vm.is_alive() {
            sleep(Duration::from_millis(10));
        }
        kept = Some(fs::read_to_string(&state).unwrap_or_default());
    }
    assert!(noted >= RUNS / 2 && held >= 2 && noted - held >= 2, "{noted} {held}");
    println!(
        "| QEMU killed while `tune` runs | `make prove-tune` | {RUNS}, of them {noted} with a change noted: what the next guest said was true, {held} times that another value is there |"
    );
}

/// Whether a change was noted, and whether the register holds something else than before it.
fn after_a_power_loss(rig: &Rig, state: &Path, text: &str, round: u64) -> (bool, bool) {
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    rig.must("chmod 700 /host/state");
    fs::write(state, text).unwrap();
    // A rule of udev sets it anew in some boots.
    if round % 3 == 0 {
        rig.must(&format!("setpci -s {} CAP_EXP+8.w=5000:7000", rig.bdf));
    }
    let bits = || u16::from_str_radix(&register(rig), 16).unwrap() & 0x7000;
    let entries: Vec<Value> = text.lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (now, before) = (bits(), rig.ledger()["config_writes"].as_u64().unwrap());
    let said = rig.run_within("pciescope unbind --restore --state-dir /host/state 2>&1", PATIENCE).stdout;
    assert_eq!(rig.ledger()["config_writes"].as_u64().unwrap(), before, "it wrote to the device: {said}");
    assert_eq!(bits(), now, "{said}");
    assert!(!state.exists(), "what was said is still noted: {said}");
    say!("{} lines noted, {now:#06x} there: {}", text.lines().count(), said.trim().replace('\n', " / "));
    let Some(first) = entries.first() else {
        assert!(!said.contains("mrrs ("), "{said}");
        return (false, false);
    };
    let former = u16::from_str_radix(first["former"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let expected = match former == now {
        true => format!("the reboot put it back to {former:#06x}"),
        false => format!("the reboot did not put it back: it holds {now:#06x}, it was {former:#06x}; not touched"),
    };
    assert!(said.contains(&expected) && said.matches("mrrs (").count() == 1, "{expected}: {said}");
    (true, former != now)
}

/// The mean of the middle half: a median without the steps of the clock.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let half = &all[all.len() / 4..all.len() - all.len() / 4];
    half.iter().sum::<f64>() / half.len() as f64
}

/// Noise for simulated experiments: register reads in blocks of 100 ms, of each the middle, in nanoseconds. QEMU answers them
/// itself, so that the host's scheduler has no part in each read.
pub fn noise_is_recorded() {
    const BLOCK_NS: u64 = 100_000_000;
    let with_edu = |builder: Builder| builder.cpus(2).device("edu0", GuestDevice::Edu, Attachment::RootPort);
    let rig = Rig::boot_with(Kernel::V6_12, with_edu);
    let edu = rig.vm.address("edu0");
    let command =
        format!("latency mmio {edu} --backend resource --cpus 1 --gap 50us --duration 70s --raw /host/raw.csv");
    rig.pciescope(&command).expect(0, "mmio-read");
    let mut blocks: Vec<Vec<f64>> = Vec::new();
    for line in fs::read_to_string(rig.vm.share().join("raw.csv")).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [at, value, _, _, "latency"] = fields.as_slice() else { continue };
        let block = (at.parse::<u64>().unwrap() / BLOCK_NS) as usize;
        blocks.resize(blocks.len().max(block + 1), Vec::new());
        blocks[block].push(value.parse::<f64>().unwrap() / 1000.0);
    }
    blocks.retain(|block| block.len() >= 20);
    let middles: Vec<f64> = blocks.into_iter().map(middle).collect();
    let logs: Vec<f64> = middles.iter().map(|one| one.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let spread = (logs.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt();
    assert!(middles.len() >= 500 && spread > 0.0, "{} blocks", middles.len());
    // For tests/tune/lab-noise.txt, where somebody wants newer noise.
    let place = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("lab-noise.txt");
    let head =
        "# register reads of a guest in blocks of 100 ms, of each the middle in ns: lab/tests/vm/tune.rs\n".to_owned();
    fs::write(&place, middles.iter().fold(head, |text, one| text + &format!("{one:.2}\n"))).unwrap();
    println!("noise of {} blocks: {:.2} % each, in {}", middles.len(), spread * 100.0, place.display());
}
