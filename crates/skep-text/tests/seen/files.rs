//! The files for tools, read by our own readers: their contents, and their permitted owners. Each test runs in a
//! child, which has a perf map of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use skep_testkit::{Hidden, hidden};
use skep_text::{Arena, Config, Error, Tool};

use crate::common::*;
use crate::readers::{self, Line, What};
use crate::tool::*;

fn in_child(check: impl FnOnce(&Path)) {
    if is_child() {
        let directory = Directory::new("files");
        check(directory.path());
        let _ = fs::remove_file(map());
    } else {
        assert!(run_as_child().success());
    }
}

fn map() -> PathBuf {
    format!("/tmp/perf-{}.map", std::process::id()).into()
}

fn dump(directory: &Path) -> PathBuf {
    directory.join(format!("jit-{}.dump", std::process::id()))
}

#[test]
fn no_file_or_registration_is_made_unless_requested() {
    in_child(|_| {
        let arena = Arena::new(Config::new()).unwrap();
        assert!(!arena.is_seen());
        place_named(&arena, &returns(1), "unseen");
        assert!(!map().exists());
    });
}

#[test]
fn the_perf_map_has_a_line_for_every_text() {
    in_child(|_| {
        let work = |name: &'static str| {
            let arena = Arena::new(Config::new().perf_map(true)).unwrap();
            let place = |number| place_named(&arena, &returns(number), &format!("{name}_{number}"));
            let texts: Vec<_> = (0..500).map(place).collect();
            let line = |(number, text): (usize, &skep_text::Text)| Line {
                start: text.address(),
                size: text.len(),
                name: format!("{name}_{number}"),
            };
            let lines = texts.iter().enumerate().map(line).collect::<Vec<_>>();
            // The arena stays alive, so that no other one gets its addresses.
            (lines, arena, texts)
        };
        let threads = ["a", "b", "c", "d"].map(|name| std::thread::spawn(move || work(name)));
        let made = threads.map(|thread| thread.join().unwrap());
        let lines = made.iter().flat_map(|(lines, ..)| lines.clone()).collect::<Vec<_>>();
        let written = readers::perf_map(&map());
        assert_eq!(written.len(), lines.len());
        for line in &lines {
            assert!(written.contains(line), "{line:?} is missing");
        }
    });
}

#[test]
fn the_perf_map_keeps_a_dropped_texts_line_until_reuse() {
    in_child(|_| {
        let arena = Arena::new(Config::new().perf_map(true)).unwrap();
        let line = |text: &skep_text::Text, name: &str| Line {
            start: text.address(),
            size: text.len(),
            name: name.to_owned(),
        };
        let struck = |name: &str| Line { start: 0, size: 0, name: name.to_owned() };
        let first = place(&arena, &returns(1), 64).unwrap();
        let name = format!("skep_text_{:x}", first.address());
        let kept = place_named(&arena, &returns(2), "kept");
        let two = [line(&first, &name), line(&kept, "kept")];
        assert_eq!(readers::perf_map(&map()), two);
        drop(first);
        assert_eq!(readers::perf_map(&map()), two);
        wait_until_free(&arena, two[0].start, returns(3).len());
        let again = place_named(&arena, &returns(3), "again");
        assert_eq!(again.address(), two[0].start, "the place was not reused");
        let [_, second] = two;
        let three = [struck(&name), second, line(&again, "again")];
        assert_eq!(readers::perf_map(&map()), three);
        // One text over the addresses of two.
        drop((again, kept));
        wait_until_free(&arena, three[2].start, 128);
        let wide = place(&arena, &returns(4), 128).unwrap();
        assert_eq!(wide.address(), three[2].start, "the places were not reused");
        let name = format!("skep_text_{:x}", wide.address());
        let names = [struck(&three[0].name), struck("kept"), struck("again"), line(&wide, &name)];
        assert_eq!(readers::perf_map(&map()), names);
    });
}

#[test]
fn names_are_sanitised_and_unnamed_texts_get_their_address() {
    in_child(|directory| {
        let arena = Arena::new(Config::new().perf_map(true).jitdump(directory).gdb(true)).unwrap();
        let _evil = place_named(&arena, &returns(1), "evil\n1 ffffffff everything\0x");
        let unnamed = place_returns(&arena, 2);
        let names: Vec<_> = readers::perf_map(&map()).into_iter().map(|line| line.name).collect();
        let expected =
            ["evil_1_ffffffff_everything_x".to_owned(), format!("skep_text_{:x}", unnamed.address())];
        assert_eq!(names, expected);
        let loads = loads(directory);
        assert_eq!(loads.iter().map(|load| load.2.clone()).collect::<Vec<_>>(), expected);
    });
}

#[test]
fn the_jitdump_has_the_code_of_every_text_in_order() {
    in_child(|directory| {
        let place = |name: &str, count: u32| {
            let arena = Arena::new(Config::new().jitdump(directory)).unwrap();
            // A different spelling of the path is the same directory.
            let same = directory.join("..").join(directory.file_name().unwrap());
            let other = Arena::new(Config::new().jitdump(same)).unwrap();
            for number in 0..count {
                let arena = if number % 2 == 0 { &arena } else { &other };
                drop(place_named(arena, &returns(number), &format!("{name}_{number}")));
            }
        };
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                scope.spawn(move || place(name, 300));
            }
        });
        // All arenas are gone; a new one appends to the file.
        place("c", 3);

        // The arenas' keepers finish last. A record that is just being written is not there as a whole, so only the
        // start of the last one is looked at: its kind (3, JIT_CODE_CLOSE) and its size.
        let close = [3_u32, 16].map(u32::to_ne_bytes);
        let is_closed = || {
            let bytes = std::fs::read(dump(directory)).unwrap();
            bytes.last_chunk::<16>().is_some_and(|last| last.starts_with(close.as_flattened()))
        };
        assert!(eventually(is_closed));
        let read = readers::jitdump(&dump(directory));
        assert_eq!(read.machine, ELF_MACHINE);
        assert_eq!(read.process, std::process::id());
        let (last, records) = read.records.split_last().unwrap();
        assert!(matches!(last.what, What::Close));
        let mut time = read.timestamp;
        let mut seen = std::collections::BTreeSet::new();
        let mut threads = std::collections::BTreeSet::new();
        for (count, record) in records.iter().enumerate() {
            assert!(time <= record.timestamp);
            time = record.timestamp;
            let What::Load { process, thread, index, name, code, .. } = &record.what else {
                panic!("a record after the end");
            };
            assert_eq!((*process, *index), (std::process::id(), count as u64));
            let (_, number) = name.split_once('_').unwrap();
            assert_eq!(*code, returns(number.parse().unwrap()));
            assert!(Path::new(&format!("/proc/self/task/{thread}")).exists() || !name.starts_with('c'));
            seen.insert(name.clone());
            threads.insert(*thread);
        }
        assert_eq!((records.len(), seen.len(), threads.len()), (603, 603, 3));
        // The marker by which perf finds it.
        let name = dump(directory).to_str().unwrap().to_owned();
        let markers = || mappings().into_iter().filter(|mapping| mapping.name == name).collect::<Vec<_>>();
        if markers().is_empty() {
            hidden(Hidden::MissingMappings, "the marker by which perf finds the file");
            return;
        }
        assert_eq!(markers().len(), 1, "{:?}", markers());
        assert!(markers()[0].has('x') && !markers()[0].has('w'));
    });
}

#[test]
fn foreign_files_links_and_writable_directories_are_refused() {
    in_child(|directory| {
        for (config, path) in
            [(Config::new().perf_map(true), map()), (Config::new().jitdump(directory), dump(directory))]
        {
            let refused = |what: &str| {
                let error = Arena::new(config.clone()).expect_err(what);
                assert!(matches!(error, Error::NotOurs { .. } | Error::System { .. }), "{what}: {error:?}");
                assert!(error.to_string().contains("remove"), "{what}: {error}");
            };
            let victim = directory.join("victim");
            fs::write(&victim, "precious").unwrap();

            symlink(&victim, &path).unwrap();
            refused("a symbolic link");
            fs::remove_file(&path).unwrap();

            if path.parent() == victim.parent() || fs::hard_link(&victim, &path).is_ok() {
                let _ = fs::hard_link(&victim, &path);
                refused("a hard link");
                fs::remove_file(&path).unwrap();
            }
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            refused("a file that others can write");
            if rustix::process::geteuid().is_root() {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
                std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
                refused("a file of another user");
            }
            fs::remove_file(&path).unwrap();

            rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
                0,
            )
            .unwrap();
            refused("a FIFO");
            fs::remove_file(&path).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            fs::remove_file(&victim).unwrap();

            // And without any of these it works, for this user alone.
            Arena::new(config.clone()).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        }
    });
}

#[test]
fn an_unusable_jitdump_directory_is_an_error_with_a_remedy() {
    in_child(|directory| {
        let error = Arena::new(Config::new().jitdump(directory.join("missing"))).unwrap_err().to_string();
        assert!(
            error.contains("creating the jitdump failed") && error.contains("directory that exists"),
            "{error}"
        );
    });
}

#[test]
fn files_of_an_earlier_process_of_the_same_number_are_replaced() {
    in_child(|directory| {
        let long_ago = SystemTime::now() - Duration::from_secs(7 * 24 * 3600);
        let old = |path: &Path, time: SystemTime| {
            fs::write(path, "1000 40 from_before\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        let names = || readers::perf_map(&map()).into_iter().map(|line| line.name).collect::<Vec<_>>();
        old(&map(), long_ago);
        old(&dump(directory), long_ago);
        let config = Config::new().perf_map(true).jitdump(directory);
        place_named(&Arena::new(config).unwrap(), &returns(1), "ours");
        assert_eq!(names(), ["ours"]);
        assert_eq!(loads(directory).len(), 1);

        // Another compiler in this process, whose lines must stay.
        fs::remove_file(map()).unwrap();
        old(&map(), SystemTime::now());
        place_named(&Arena::new(Config::new().perf_map(true)).unwrap(), &returns(1), "ours");
        assert_eq!(names(), ["from_before", "ours"]);
    });
}

#[test]
fn another_compiler_s_jitdump_is_not_touched() {
    in_child(|directory| {
        let path = dump(directory);
        fs::write(&path, "theirs").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let file = fs::File::open(&path).unwrap();
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::EXEC;
        let flags = rustix::mm::MapFlags::PRIVATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, flags, &file, 0) }.unwrap();
        let error = Arena::new(Config::new().jitdump(directory)).unwrap_err().to_string();
        assert!(error.contains("another compiler") && error.contains("another directory"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    });
}

#[test]
fn a_full_disk_fails_no_load_and_is_reported() {
    in_child(|directory| {
        let arena = Arena::new(Config::new().perf_map(true).jitdump(directory)).unwrap();
        let before = place_named(&arena, &returns(1), "before");
        assert!(arena.missed().is_empty());
        // A size limit for this process's files: the write that crosses it is truncated, and the next one fails.
        let limit = map().metadata().unwrap().len().max(dump(directory).metadata().unwrap().len()) + 100;
        // SAFETY: ignoring a signal; without that the limit would end the process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let limit = rustix::process::Rlimit { current: Some(limit), maximum: Some(1 << 40) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();

        let name = "x".repeat(200);
        let texts: Vec<_> = (0..10).map(|number| place_named(&arena, &returns(number), &name)).collect();
        assert!(texts.iter().enumerate().all(|(number, text)| call(text) == number as u32));
        assert_eq!(call(&before), 1);

        let missed = arena.missed();
        assert_eq!(
            missed.iter().map(|missed| missed.tool).collect::<Vec<_>>(),
            [Tool::PerfMap, Tool::Jitdump]
        );
        assert!(missed.iter().all(|missed| (1..=10).contains(&missed.texts)), "{missed:?}");
        assert!(missed[1].to_string().starts_with("the jitdump lacks 10 texts: "), "{}", missed[1]);
        drop((arena, before, texts));
        // The test's own output may go to a file as well.
        let none = rustix::process::Rlimit { current: Some(1 << 40), maximum: Some(1 << 40) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, none).unwrap();

        let loads = loads(directory);
        assert_eq!(loads.len(), 1);
        assert_eq!(loads[0].2, "before");
        let whole = fs::read_to_string(map()).unwrap();
        assert!(whole.lines().next().unwrap().ends_with(" before"), "{whole}");
    });
}

/// Address, index, name.
fn loads(directory: &Path) -> Vec<(u64, u64, String)> {
    let load = |record: readers::Record| match record.what {
        What::Load { address, index, name, .. } => Some((address, index, name)),
        What::Close => None,
    };
    readers::jitdump(&dump(directory)).records.into_iter().filter_map(load).collect()
}
