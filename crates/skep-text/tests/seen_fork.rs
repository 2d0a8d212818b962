//! A forked child does not write the files for profilers, which belong to the parent.
//!
//! One thread and no test harness, because it forks.

mod common;

use std::fs;

use common::*;
use skep_text::{Arena, Config};

fn main() {
    let directory = std::env::temp_dir().join(format!("skep-text-{}-fork", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let map = |process: u32| format!("/tmp/perf-{process}.map");
    let dump = |process: u32| directory.join(format!("jit-{process}.dump"));
    let config = || Config::new().perf_map(true).jitdump(&directory).gdb(true);

    let parent = std::process::id();
    let arena = Arena::new(config()).unwrap();
    let text = place_returns(&arena, 1);
    let draft = arena.draft(64).unwrap();
    let before = (fs::read(map(parent)).unwrap(), fs::read(dump(parent)).unwrap());

    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(draft.finalize().is_err());
            // The last handles of this process: the end of the dump is not for the child to write.
            drop((text, arena));
            assert_eq!(before, (fs::read(map(parent)).unwrap(), fs::read(dump(parent)).unwrap()));

            let own = Arena::new(config()).unwrap();
            let text = place_returns(&own, 2);
            assert_eq!(call(&text), 2);
            let line = format!("{0:x} {1:x} skep_text_{0:x}\n", text.address(), text.len());
            assert_eq!(fs::read_to_string(map(std::process::id())).unwrap(), line);
            assert!(dump(std::process::id()).metadata().unwrap().len() > 40);
            assert_eq!(before, (fs::read(map(parent)).unwrap(), fs::read(dump(parent)).unwrap()));
        }));
        let _ = fs::remove_file(map(std::process::id()));
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    let mut status = 0;
    // SAFETY: `status` is a place for an int.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's promises");

    // The parent continues to write its own files.
    let another = place_returns(&arena, 3);
    assert_eq!((call(&text), call(&another)), (1, 3));
    assert_eq!(fs::read_to_string(map(parent)).unwrap().lines().count(), 2);
    assert!(fs::read(dump(parent)).unwrap().len() > before.1.len());
    fs::remove_file(map(parent)).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    println!("seen_fork: all promises hold");
}
