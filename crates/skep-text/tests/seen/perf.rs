//! perf, recording a child that runs named code, or attaching to it.
//!
//! Hardware counters may be missing (virtual machines), so samples are taken by the `cpu-clock` software event.

use std::sync::Mutex;
use std::time::Duration;

use skep_text::{Arena, Config, Text};

use crate::common::*;
use crate::tool::*;

#[test]
fn perf_shows_the_name_of_code_that_is_in_the_perf_map() {
    if is_child() {
        return child_that_spins(Config::new().perf_map(true));
    }
    let Some(directory) = perf_works("perf map") else { return };
    let recorded = record(&directory);
    assert_spinning_is_seen(&directory, &recorded);
}

#[test]
fn perf_shows_the_name_of_code_that_is_in_the_jitdump() {
    if is_child() {
        return child_that_spins(Config::new().jitdump(directory()));
    }
    let Some(directory) = perf_works("jitdump") else { return };
    let recorded = record(&directory);
    let injected = inject(&directory, &recorded);
    assert_spinning_is_seen(&directory, &injected);
}

#[test]
fn perf_that_attaches_later_shows_names_from_the_perf_map() {
    if is_child() {
        return child_that_waits(Config::new().perf_map(true));
    }
    let Some(directory) = perf_works("perf map, attached") else { return };
    let recorded = attach(&directory);
    assert_spinning_is_seen(&directory, &recorded);
}

#[test]
fn perf_that_attaches_later_shows_names_from_the_jitdump() {
    if is_child() {
        return child_that_waits(Config::new().jitdump(directory()));
    }
    let Some(directory) = perf_works("jitdump, attached") else { return };
    let recorded = attach(&directory);
    let injected = inject(&directory, &recorded);
    assert_spinning_is_seen(&directory, &injected);
}

#[test]
fn by_the_jitdump_perf_tells_texts_at_one_address_apart() {
    if is_child() {
        let arena = Arena::new(Config::new().jitdump(directory())).unwrap();
        let mut last: Option<usize> = None;
        for name in ["skep_prog_1_first", "skep_prog_2_second"] {
            if let Some(address) = last {
                wait_until_free(&arena, address, counts_down().len());
            }
            let text = place_named(&arena, &counts_down(), name);
            assert!(last.is_none_or(|address| address == text.address()), "the place was not reused");
            last = Some(text.address());
            for_a_while(Duration::from_millis(300), || spin(&text));
        }
        return;
    }
    let Some(directory) = perf_works("jitdump, reused place") else { return };
    let injected = inject(&directory, &record(&directory));
    let report = run(&directory, "perf", &["report", "--stdio", "-i", &injected]);
    for name in ["skep_prog_1_first", "skep_prog_2_second"] {
        let percent =
            percent(&report, name).unwrap_or_else(|| panic!("{name} is not in the report:\n{report}"));
        assert!((20.0..80.0).contains(&percent), "{name} has {percent} %:\n{report}");
    }
}

/// Texts that live as long as their process. A leak checker finds them here.
static KEPT: Mutex<Vec<Text>> = Mutex::new(Vec::new());

#[test]
fn perf_shows_a_reused_address_s_newer_name_from_the_perf_map() {
    if is_child() {
        let arena = Arena::new(Config::new().perf_map(true)).unwrap();
        // The alphabetical order of the names must not decide, so each comes first once.
        for names in [["skep_prog_1_old", "skep_prog_2_new"], ["skep_prog_4_old", "skep_prog_3_new"]] {
            let old = place_named(&arena, &[&counts_down()[..], &[0; 100]].concat(), names[0]);
            let address = old.address();
            drop(old);
            wait_until_free(&arena, address, counts_down().len());
            let new = place_named(&arena, &counts_down(), names[1]);
            assert_eq!(new.address(), address, "the place was not reused");
            for_a_while(Duration::from_millis(300), || spin(&new));
            KEPT.lock().unwrap().push(new);
        }
        std::fs::write(directory().join("child"), std::process::id().to_string()).unwrap();
        return;
    }
    let Some(directory) = perf_works("perf map, reused place") else { return };
    let report = run(&directory, "perf", &["report", "--stdio", "-i", &record(&directory)]);
    let child = std::fs::read_to_string(directory.file("child")).unwrap();
    let _ = std::fs::remove_file(format!("/tmp/perf-{child}.map"));
    for name in ["skep_prog_2_new", "skep_prog_3_new"] {
        let percent =
            percent(&report, name).unwrap_or_else(|| panic!("{name} is not in the report:\n{report}"));
        assert!((20.0..80.0).contains(&percent), "{name} has {percent} %:\n{report}");
    }
    assert!(!report.contains("_old"), "{report}");
}

/// perf looks for names of a file's code in the file, and a memfd has none. See `src/seen.rs`.
#[test]
fn an_arena_with_a_perf_map_appears_as_anonymous_memory() {
    let arena = Arena::new(Config::new().perf_map(true)).unwrap();
    let _text = place_returns(&arena, 1);
    let _long = place(&arena, &returns(2), skep_text::PACK_BYTES + 1).unwrap();
    let range = arena.range();
    let code: Vec<_> = mappings()
        .into_iter()
        .filter(|mapping| range.contains(&mapping.range.start) && mapping.has('x'))
        .collect();
    assert!(!code.is_empty());
    for mapping in code {
        let name = &mapping.name;
        assert!(name.is_empty() || name.starts_with("/dev/zero"), "perf takes {name} for a file");
        assert!(!mapping.has('w'));
    }
    drop((_text, _long, arena));
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", std::process::id()));
}

/// Two texts; one of them runs for most of a second.
fn child_that_spins(config: Config) {
    let arena = Arena::new(config).unwrap();
    assert!(arena.is_seen());
    let texts = [place_named(&arena, &counts_down(), SPIN), place_named(&arena, &counts_down(), IDLE)];
    for_a_while(Duration::from_millis(600), || spin(&texts[0]));
    assert!(arena.missed().is_empty());
    std::fs::write(directory().join("child"), std::process::id().to_string()).unwrap();
}

/// As [`child_that_spins`], but until the parent has seen enough.
fn child_that_waits(config: Config) {
    let arena = Arena::new(config).unwrap();
    let texts = [place_named(&arena, &counts_down(), SPIN), place_named(&arena, &counts_down(), IDLE)];
    std::fs::write(directory().join("child"), std::process::id().to_string()).unwrap();
    say_ready();
    until_parent_lets_go(|| spin(&texts[0]));
}

/// A directory, if perf is installed and the kernel lets it sample.
fn perf_works(what: &str) -> Option<Directory> {
    let what = format!("names in perf ({what})");
    if !is_installed("perf", "linux-perf", &what) {
        return None;
    }
    let directory = Directory::new(&what.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let file = directory.file("try.data");
    let arguments = ["record", "-e", "cpu-clock", "-o", &file, "--", "true"];
    let tried = command("perf", &directory).args(arguments).output().unwrap();
    if !tried.status.success() {
        is_refused(&what, &String::from_utf8_lossy(&tried.stderr));
        return None;
    }
    Some(directory)
}

/// `-k 1`: timestamps from CLOCK_MONOTONIC, as in the jitdump. `-N`: no build-id cache for other recordings.
const RECORD: [&str; 6] = ["record", "-e", "cpu-clock", "-k", "1", "-N"];

fn record(directory: &Directory) -> String {
    let file = directory.file("recorded.data");
    let child = child_arguments();
    let child: Vec<&str> = child.iter().map(String::as_str).collect();
    run(directory, "perf", &[&RECORD[..], &["-o", &file, "--"], &child].concat());
    file
}

fn attach(directory: &Directory) -> String {
    let file = directory.file("recorded.data");
    let child = Ready::start(directory);
    let id = child.id().to_string();
    run(directory, "perf", &[&RECORD[..], &["-o", &file, "-p", &id, "--", "sleep", "0.5"]].concat());
    child.finish();
    file
}

fn inject(directory: &Directory, recorded: &str) -> String {
    let injected = directory.file("injected.data");
    run(directory, "perf", &["inject", "--jit", "-i", recorded, "-o", &injected]);
    injected
}

fn assert_spinning_is_seen(directory: &Directory, data: &str) {
    let report = run(directory, "perf", &["report", "--stdio", "-i", data]);
    let script = run(directory, "perf", &["script", "-i", data]);
    // Before the assertions, so that the file does not remain.
    let child = std::fs::read_to_string(directory.file("child")).unwrap();
    let _ = std::fs::remove_file(format!("/tmp/perf-{child}.map"));

    let spinning = percent(&report, SPIN).unwrap_or_else(|| panic!("{SPIN} is not in the report:\n{report}"));
    assert!(spinning > 50.0, "the child did little else, and has {spinning} %:\n{report}");
    assert!(!report.contains(IDLE), "what never ran is in the report:\n{report}");
    assert!(script.contains(SPIN), "{script}");
}

/// The share of the symbol in the report, whose lines end with it and begin with the share.
fn percent(report: &str, symbol: &str) -> Option<f64> {
    let line = report.lines().find(|line| line.split_whitespace().next_back() == Some(symbol))?;
    line.split_whitespace().next()?.trim_end_matches('%').parse().ok()
}
