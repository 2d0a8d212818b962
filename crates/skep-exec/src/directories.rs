//! The directories of processes' descriptors, `/proc/THREAD/fd`, kept open: a descriptor is then found without the way
//! there.
//!
//! An open directory stays its thread's, even when another thread gets the number (proc(5)): once the thread is
//! gone, nothing is found in it. So a directory that was kept never shows another process; where something is not
//! found, the directory is opened anew, and what is not found then is not there.

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, open, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Threads whose directories are kept.
const KEPT: usize = 64;

/// Open directories by the numbers of threads.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<HashMap<u32, Arc<OwnedFd>>>);

impl Directories {
    /// What stat(2) and lstat(2) say of a thread's descriptor: of the file, and of the link to it.
    pub(crate) fn look(&self, thread: u32, descriptor: i32) -> Result<(Stat, Stat), Errno> {
        let name = descriptor.to_string();
        let look = |directory: &OwnedFd| -> Result<(Stat, Stat), Errno> {
            let file = statat(directory, &*name, AtFlags::empty())?;
            Ok((file, statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW)?))
        };
        let kept = self.0.lock().get(&thread).cloned();
        if let Some(Ok(found)) = kept.map(|directory| look(&directory)) {
            return Ok(found);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = Arc::new(open(format!("/proc/{thread}/fd"), flags, Mode::empty())?);
        let found = look(&directory);
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(thread, directory);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, fstat};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_closed_descriptor_is_not_found_in_a_directory_that_is_kept() {
        let (directories, thread) =
            (Directories::default(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let null = std::fs::File::open("/dev/null").unwrap();
        let number = null.as_raw_fd();
        for _ in 0..2 {
            let (file, link) = directories.look(thread, number).unwrap();
            assert_eq!(file.st_ino, fstat(&null).unwrap().st_ino);
            assert!(FileType::from_raw_mode(link.st_mode).is_symlink());
            assert_eq!(link.st_mode & 0o600, 0o400, "open for reading alone");
        }
        // A number far from those that other tests get.
        let far = rustix::io::fcntl_dupfd_cloexec(&null, 900).unwrap();
        let number = far.as_raw_fd();
        assert!(directories.look(thread, number).is_ok());
        drop(far);
        assert_eq!(directories.look(thread, number).err(), Some(Errno::NOENT));
    }

    #[test]
    fn a_thread_that_is_gone_has_no_descriptors_and_few_are_kept() {
        let directories = Directories::default();
        let null = std::fs::File::open("/dev/null").unwrap();
        let number = null.as_raw_fd();
        for _ in 0..KEPT + 5 {
            let looked = || {
                let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                (directories.look(thread, number).is_ok(), thread)
            };
            let (found, thread) = std::thread::scope(|scope| scope.spawn(looked).join().unwrap());
            assert!(found);
            // It is joined a moment before the kernel has ended it.
            while directories.look(thread, number).is_ok() {
                std::thread::yield_now();
            }
        }
        assert!(directories.0.lock().len() <= KEPT);
    }
}
