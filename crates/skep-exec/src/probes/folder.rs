//! Directories that change while an application sees them.
//!
//! The application may be of the same user, and so may change them too. Invariant: nothing is made or removed outside of
//! the directory that was opened, whatever links somebody puts there: each step is taken from an open directory, and
//! follows no link.

use crate::table::number;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, open, openat, unlinkat};
use skep_sys::Errno;
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// A directory that only this process knows until then.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self(open(path, DIRECTORY, Mode::empty())?))
    }

    /// Makes a directory with these files, in another one which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`Errno::EEXIST`] if there is something of that name, and those of making files.
    pub(super) fn add(&self, (group, name): (&str, &str), files: &[(&str, &str)]) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o755);
        match mkdirat(&self.0, group, mode) {
            Err(rustix::io::Errno::EXIST) | Ok(()) => {}
            Err(error) => return Err(number(error)),
        }
        let group = openat(&self.0, group, DIRECTORY, Mode::empty()).map_err(number)?;
        mkdirat(&group, name, mode).map_err(number)?;
        let own = openat(&group, name, DIRECTORY, Mode::empty()).map_err(number)?;
        for (file, text) in files {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&own, *file, flags, Mode::from_raw_mode(0o444)).map_err(number)?;
            rustix::io::write(&file, text.as_bytes()).map_err(number)?;
        }
        Ok(())
    }

    /// Removes it, and the other one if that is empty then. What somebody else put there stays.
    pub(super) fn remove(&self, (group, name): (&str, &str), files: &[&str]) {
        let Ok(outer) = openat(&self.0, group, DIRECTORY, Mode::empty()) else { return };
        if let Ok(own) = openat(&outer, name, DIRECTORY, Mode::empty()) {
            for file in files {
                let _removed = unlinkat(&own, *file, AtFlags::empty());
            }
        }
        let _removed = unlinkat(&outer, name, AtFlags::REMOVEDIR);
        let _empty = unlinkat(&self.0, group, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_made_or_removed_behind_a_link() {
        let files = Files::new().unwrap();
        let (inside, outside) = (files.directory("inside").unwrap(), files.directory("outside").unwrap());
        let folder = Folder::open(&inside).unwrap();
        let text = [("id", "1\n")];
        folder.add(("group", "name"), &text).unwrap();
        assert_eq!(fs::read_to_string(inside.join("group/name/id")).unwrap(), "1\n");
        assert_eq!(folder.add(("group", "name"), &text), Err(Errno::EEXIST));
        folder.remove(("group", "name"), &["id"]);
        assert!(!inside.join("group").exists());
        symlink(&outside, inside.join("link")).unwrap();
        assert_eq!(folder.add(("link", "name"), &text), Err(Errno::ENOTDIR));
        fs::create_dir(outside.join("name")).unwrap();
        fs::write(outside.join("name/id"), "2").unwrap();
        folder.remove(("link", "name"), &["id"]);
        fs::create_dir(inside.join("group")).unwrap();
        symlink(outside.join("name"), inside.join("group/name")).unwrap();
        assert_eq!(folder.add(("group", "name"), &text), Err(Errno::EEXIST));
        folder.remove(("group", "name"), &["id"]);
        assert_eq!(fs::read_to_string(outside.join("name/id")).unwrap(), "2");
    }
}
