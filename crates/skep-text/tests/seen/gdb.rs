//! GDB, starting a child that runs named code, or attaching to it.

use skep_text::{Arena, Config};

use crate::common::*;
use crate::tool::*;

#[test]
fn gdb_breaks_at_a_text_s_name_and_shows_it() {
    if is_child() {
        let arena = Arena::new(Config::new().gdb(true)).unwrap();
        assert!(arena.is_seen());
        let texts = [place_named(&arena, &counts_down(), SPIN), place_named(&arena, &counts_down(), IDLE)];
        return spin(&texts[0]);
    }
    let Some(directory) = gdb_works("breakpoint") else { return };
    let said = gdb_runs(&directory, SPIN, &["backtrace 2", "info symbol $pc", "info symbol $pc + 32"]);
    let frame = said.lines().find(|line| line.starts_with("#0 ")).unwrap_or_else(|| panic!("{said}"));
    assert!(frame.contains(&format!(" in {SPIN} ()")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("#1 ") && line.contains("spin")), "no caller:\n{said}");
    assert!(said.lines().any(|line| line.starts_with(&format!("{SPIN} in section .text"))), "{said}");
    assert!(said.lines().any(|line| line.starts_with(&format!("{IDLE} in section .text"))), "{said}");
}

#[test]
fn gdb_that_attaches_later_shows_the_name_in_the_backtrace() {
    if is_child() {
        let arena = Arena::new(Config::new().gdb(true)).unwrap();
        let texts = [place_named(&arena, &counts_down(), SPIN), place_named(&arena, &counts_down(), IDLE)];
        say_ready();
        return until_parent_lets_go(|| spin(&texts[0]));
    }
    let Some(directory) = gdb_works("attaching") else { return };
    let child = Ready::start(&directory);
    let id = child.id().to_string();
    let said = gdb(&directory, &["-p", &id], &["thread apply all backtrace 3", "info functions skep_prog_"]);
    child.finish();
    assert!(said.contains(&format!(" in {SPIN} ()")), "{said}");
    assert!(said.contains(IDLE), "{said}");
}

#[test]
fn gdb_forgets_a_dropped_text_and_keeps_its_neighbours() {
    const GONE: [&str; 3] = ["skep_prog_1_gone", "skep_prog_2_gone", "skep_prog_3_gone"];
    const KEPT: [&str; 2] = ["skep_prog_4_kept", "skep_prog_5_kept"];
    if is_child() {
        let other = Arena::new(Config::new().gdb(true)).unwrap();
        let arena = Arena::new(Config::new().gdb(true)).unwrap();
        // Drops the last, the middle and the first of the list.
        let oldest = place_named(&other, &counts_down(), GONE[0]);
        let kept = place_named(&arena, &counts_down(), KEPT[0]);
        let middle = place_named(&arena, &counts_down(), GONE[1]);
        let spinning = place_named(&arena, &counts_down(), KEPT[1]);
        let newest = place_named(&other, &counts_down(), GONE[2]);
        drop((oldest, middle, newest));
        for arena in [&other, &arena] {
            wait_until_reclaimed(arena);
        }
        drop(other);
        spin(&spinning);
        return drop(kept);
    }
    let Some(directory) = gdb_works("unloading") else { return };
    let said = gdb_runs(&directory, KEPT[1], &["info functions skep_prog_"]);
    let (_, listed) = said.split_once("matching regular expression").unwrap_or_else(|| panic!("{said}"));
    for name in KEPT {
        assert!(listed.contains(name), "{name} is missing:\n{said}");
    }
    for name in GONE {
        assert!(!listed.contains(name), "{name} is still there:\n{said}");
    }
}

/// Runs the test as a child up to a function, and then the commands.
fn gdb_runs(directory: &Directory, function: &str, commands: &[&str]) -> String {
    let child = child_arguments();
    let child: Vec<&str> = child.iter().map(String::as_str).collect();
    let stop = format!("break {function}");
    let commands = [&["set breakpoint pending on", &stop, "run"][..], commands, &["kill"]].concat();
    gdb(directory, &[&["--args"][..], &child].concat(), &commands)
}

fn gdb(directory: &Directory, target: &[&str], commands: &[&str]) -> String {
    let mut arguments =
        vec!["-batch", "-nx", "-ex", "set debuginfod enabled off", "-ex", "set pagination off"];
    commands.iter().for_each(|command| arguments.extend(["-ex", command]));
    arguments.extend(target);
    run(directory, "gdb", &arguments)
}

/// A directory, if GDB is installed and the kernel lets it trace.
fn gdb_works(what: &str) -> Option<Directory> {
    let what = format!("names in GDB ({what})");
    if !is_installed("gdb", "gdb", &what) {
        return None;
    }
    let directory = Directory::new(&what.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let arguments = ["-batch", "-nx", "-ex", "run", "-ex", "info program", "--args", "true"];
    let tried = command("gdb", &directory).args(arguments).output().unwrap();
    if !String::from_utf8_lossy(&tried.stdout).contains("exited normally") {
        is_refused(&what, &String::from_utf8_lossy(&tried.stderr));
        return None;
    }
    Some(directory)
}
