//! Files that an application sees, for as long as it runs.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

/// A directory of its own, which is removed in the end.
#[derive(Debug)]
pub(crate) struct Files(PathBuf);

impl Files {
    /// `TMPDIR` or `/tmp` may not be there, or not be writable.
    pub(crate) fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        let mut number = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        for _ in 0..100 {
            let path = parent.join(format!("skep-exec-{}-{number:x}", std::process::id()));
            // Others may enter: an application that runs as another user loads the library too.
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(1),
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Writes a file that nobody changes.
    pub(crate) fn add(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path)?;
        file.write_all(bytes)?;
        Ok(path)
    }

    /// Makes an empty directory in it.
    pub(crate) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        Ok(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be removed is a few kilobytes in a directory for such files.
        let _removed = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_there_until_they_are_dropped() {
        let (one, other) = (Files::new().unwrap(), Files::new().unwrap());
        let path = one.add("a", b"text").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert!(one.add("a", b"other").is_err(), "nobody writes over it");
        let another = other.add("a", b"another").unwrap();
        drop(one);
        assert!(!path.exists() && !path.parent().unwrap().exists());
        assert_eq!(fs::read(another).unwrap(), b"another");
    }
}
