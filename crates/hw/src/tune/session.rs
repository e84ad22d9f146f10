//! Changes knobs and puts them back, so that nothing is left however it ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use pciescope_core::text::chain;
use pciescope_core::{Bdf, CpuList};

use super::FoundKnob;
use super::place::{NO_DRIVER, SettingPlace};
use super::restore::{NotedChange, PutBack, RestoreLog, put_back, put_back_of};
use crate::kept::Owner;
use crate::{Error, Root, topology};

/// The knobs of an experiment. When this is dropped, everything is put back.
#[derive(Debug)]
pub struct TuneSession {
    root: Root,
    owner: Owner,
    knobs: Vec<FoundKnob>,
    /// What each place of each knob held, and what changes along with it.
    former: Vec<Vec<String>>,
    /// What is set now, by knob.
    set: Vec<(usize, String)>,
    log: Option<RestoreLog>,
    /// PM QoS, as long as it is set.
    held: Option<File>,
}

impl TuneSession {
    /// Begins: the file of what is to be put back is there, and locked.
    ///
    /// # Errors
    /// As for [`RestoreLog::create`] and [`Owner::now`].
    pub fn begin(root: &Root, bdf: Bdf, folder: &Path, knobs: Vec<FoundKnob>) -> Result<TuneSession, Error> {
        let owner = Owner::now(root, bdf)?;
        // What cannot be read is not set either, and does not change along.
        let read = |place: &SettingPlace| place.read(root).unwrap_or_default();
        let former = knobs.iter().map(|knob| knob.places.iter().chain(&knob.along).map(read).collect()).collect();
        let log = Some(RestoreLog::create(folder, &owner)?);
        Ok(TuneSession { root: root.clone(), owner, knobs, former, set: Vec::new(), log, held: None })
    }

    /// The CPUs of the workload that are set now; `None` for those that it has anyway.
    pub fn cpus(&self) -> Option<CpuList> {
        self.set.iter().find_map(|(knob, value)| match &*self.knobs[*knob].knob.name {
            "cpu" => value.parse().ok(),
            "numa" => {
                let nodes = topology::nodes(&topology::cpus(&self.root).ok()?);
                nodes.into_iter().find(|(node, _)| node.to_string() == *value).map(|(_, cpus)| cpus)
            }
            _ => None,
        })
    }

    /// Puts these values in force, and of every other knob the one that was found. Gives why the kernel or the device refused
    /// one; then all are as they were found.
    ///
    /// # Errors
    /// [`Error::Meanwhile`] where somebody else has changed a knob: it is left so. What kept a knob from being put back.
    pub fn set(&mut self, wanted: &[(usize, String)]) -> Result<Option<String>, Error> {
        // One that stays may not have begun anew with one that comes.
        let kept = self.set.iter().zip(wanted).take_while(|(set, wanted)| set == wanted).count();
        while let Some((knob, value)) = self.set.get(kept..).and_then(|rest| rest.last().cloned()) {
            self.put_back(knob, &value)?;
            self.set.pop();
        }
        for (knob, value) in &wanted[kept..] {
            // First, so that what was written of it is put back too.
            self.set.push((*knob, value.clone()));
            match self.apply(*knob, value) {
                Err(error @ Error::Meanwhile { .. }) => return Err(error),
                Err(error) => {
                    let why = chain(&error);
                    self.set(&[])?;
                    return Ok(Some(why));
                }
                Ok(()) => {}
            }
        }
        Ok(None)
    }

    fn apply(&mut self, knob: usize, value: &str) -> Result<(), Error> {
        let found = &self.knobs[knob];
        let raw = found.raw(value);
        for (place, former) in found.places.iter().zip(&self.former[knob]) {
            match place {
                SettingPlace::Workload => continue,
                SettingPlace::Held(path) => {
                    let path = self.root.path(path);
                    let microseconds = value.parse::<i32>().unwrap_or_default().to_le_bytes();
                    let open = OpenOptions::new().write(true).open(&path).and_then(|mut file| {
                        // Of a recorded machine the file would stay as it is written.
                        if self.root.is_live() { file.write_all(&microseconds).map(|()| file) } else { Ok(file) }
                    });
                    self.held = Some(open.map_err(|source| Error::write(&path, value, source))?);
                    continue;
                }
                _ => {}
            }
            // A knob that is set may have taken it along, as L1 takes its substates.
            if !self.set.iter().any(|(set, _)| self.knobs[*set].along.contains(place)) {
                self.unchanged(found, place, former)?;
            }
            let log = self.log.as_mut().expect("until the end");
            let entry = |place: &SettingPlace, former: &str, written: Option<&str>| NotedChange {
                knob: found.knob.name.clone(),
                place: place.clone(),
                former: former.to_owned(),
                written: written.map(str::to_owned),
            };
            let along = found.along.iter().zip(&self.former[knob][found.places.len()..]);
            for (along, former) in along.clone().filter(|(_, former)| !former.is_empty()) {
                let written = matches!(along, SettingPlace::Driver(_)).then_some(NO_DRIVER);
                log.note(entry(along, former, written))?;
            }
            log.note(entry(place, former, Some(&raw)))?;
            if let Err(error) = place.write(&self.root, &raw) {
                let now = place.read(&self.root)?;
                if now == *former {
                    return Err(error);
                }
                // What the driver made of it, such as a rounded number, is ours too.
                log.note(entry(place, former, Some(&now)))?;
                return place.write(&self.root, former).and(Err(error));
            }
            // A driver that was off begins anew, and is to have all as it was but for this place.
            let anew = along.filter(|_| matches!(place, SettingPlace::WithoutDriver { .. }));
            for (along, former) in anew.filter(|(along, _)| !matches!(along, SettingPlace::Driver(_))) {
                if along.read(&self.root).is_ok_and(|now| now != *former) {
                    along.write(&self.root, former)?;
                }
            }
        }
        Ok(())
    }

    fn put_back(&mut self, knob: usize, value: &str) -> Result<(), Error> {
        let found = &self.knobs[knob];
        let raw = found.raw(value);
        for (place, former) in found.places.iter().zip(&self.former[knob]) {
            match place {
                SettingPlace::Workload => {}
                SettingPlace::Held(_) => self.held = None,
                // A place that refused was never changed.
                place if place.read(&self.root)? == *former => {}
                place => self.unchanged(found, place, &raw)?,
            }
        }
        let log = self.log.as_ref().expect("until the end");
        // The list of a vector would keep it where it is: that waits for the end.
        let lists: Vec<SettingPlace> = found.places.iter().filter_map(SettingPlace::list).collect();
        let is_own = |entry: &&NotedChange| entry.knob == found.knob.name && !lists.contains(&entry.place);
        let own: Vec<&NotedChange> = log.entries.iter().filter(is_own).collect();
        put_back(&self.root, &own, None, false).map(drop)
    }

    fn unchanged(&self, found: &FoundKnob, place: &SettingPlace, expected: &str) -> Result<(), Error> {
        match place.read(&self.root)? {
            now if now == expected => Ok(()),
            now => Err(Error::Meanwhile {
                bdf: self.owner.bdf,
                knob: found.knob.name.clone(),
                expected: found.value(expected),
                now: found.value(&now),
            }),
        }
    }

    /// Puts everything back, and says what was not.
    ///
    /// # Errors
    /// What the kernel answered: then the file stays, and [`super::restore::restore`] can try again.
    pub fn end(mut self) -> Result<PutBack, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<PutBack, Error> {
        self.held = None;
        let Some(log) = self.log.take() else { return Ok(PutBack::default()) };
        let put = put_back_of(&self.root, &self.owner, &log.entries)?;
        log.file.delete()?;
        Ok(put)
    }
}

impl Drop for TuneSession {
    fn drop(&mut self) {
        match self.finish() {
            // A drop cannot return an error, and a machine that is not restored must not go unnoticed.
            Err(error) => eprintln!("pciescope: {}; `pciescope unbind --restore` tries again", chain(&error)),
            Ok(put) => put.left.iter().for_each(|line| eprintln!("pciescope: {line}")),
        }
    }
}
