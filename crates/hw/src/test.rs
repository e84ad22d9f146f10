//! What the tests of several modules need.

use std::ops::Deref;
use std::path::Path;

use crate::Root;
use crate::probe::Watch;

/// A machine of files, in a folder that goes with it.
pub struct Tree {
    _folder: tempfile::TempDir,
    root: Root,
}

impl Deref for Tree {
    type Target = Root;
    fn deref(&self) -> &Root {
        &self.root
    }
}

impl Tree {
    pub fn new() -> Tree {
        let folder = tempfile::tempdir().unwrap();
        Tree { root: Root::at(folder.path()), _folder: folder }
    }

    /// One of these files.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::new();
        files.iter().for_each(|(path, text)| tree.put(path, text));
        tree
    }

    /// Makes a folder and those above it.
    pub fn folder(&self, path: impl AsRef<Path>) {
        std::fs::create_dir_all(self.path(path)).unwrap();
    }

    /// Writes a file.
    pub fn put(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        self.folder(path.as_ref().parent().unwrap());
        std::fs::write(self.path(path), bytes).unwrap();
    }

    /// Makes a symbolic link.
    pub fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.folder(path.as_ref().parent().unwrap());
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }
}

/// A watch that never stops a run.
pub struct Silent;

impl Watch for Silent {
    fn progress(&self, _: u64, _: u64) {}
    fn is_stopped(&self) -> bool {
        false
    }
}
