//! Every sequence of safe calls gives results or errors: random definitions of maps, programs that use them in every
//! way, loads with everything overridden, maps and programs put into other maps, removed, replaced and dropped, between
//! runs and during them. No program does what the verifier has not proved (the interpreter in checking mode says so),
//! none writes outside its buffer, nothing panics, and the process lives.
//!
//! ```text
//!   number --> Case: objects and actions --> World: one action after the other, some of them inside of runs
//!
//!   this test --starts--> itself, in processes that take CHUNK cases each and note the case that they are at
//!             <--- died, or failed: that case, with parts left out one after the other while it still does
//! ```
//!
//! A case is a function of its number, and its runtimes are new at the start of each chunk, so the number of processes
//! at once changes nothing but the time that it takes.
//!
//! | variable | |
//! |---|---|
//! | `SKEP_SEED` | the number of the first case |
//! | `SKEP_CASES` | how many cases |
//! | `SKEP_SOAK_SECONDS` | start no chunk after so many seconds; without `SKEP_CASES`, there is no other limit |
//! | `SKEP_WORKERS` | processes at once; as many as there are processors unless told |
//! | `SKEP_KEEP_GOING` | print the number of each case that fails, and make none of them small |
//! | `SKEP_SHOW_REFUSED` | print why loads were refused |

mod case;
mod definitions;
mod fragments;
mod guarded;
mod world;

use case::Case;
use skep_testkit::{is_emulated, test_name, this_test};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Counts, Ground};

/// What a child is to do: the first number, how many, and the parts that are left out, with commas between all of them.
const CHILD: &str = "SKEP_SEQUENCES_CHILD";
/// Where it notes what it is at.
const NOTES: &str = "SKEP_SEQUENCES_NOTES";
/// How a child ends that found something.
const FOUND: i32 = 77;
/// Cases of one process.
const CHUNK: u64 = 500;
/// Seconds between lines that say how far a long run is.
const PROGRESS: u64 = 30;

#[test]
fn no_sequence_of_safe_calls_does_harm() {
    if let Ok(order) = std::env::var(CHILD) {
        return go_through(&order);
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("SKEP_SOAK_SECONDS");
    let usual = match seconds {
        Some(_) => u64::MAX >> 1,
        None if is_emulated() => 20,
        None => 200,
    };
    let (first, cases) = (number("SKEP_SEED").unwrap_or(1), number("SKEP_CASES").unwrap_or(usual));
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let search = Search {
        end: first.saturating_add(cases),
        started: Instant::now(),
        seconds: seconds.unwrap_or(u64::MAX),
        keep_going: std::env::var_os("SKEP_KEEP_GOING").is_some(),
        found: Mutex::new(Found {
            next: first,
            cases: 0,
            counts: Counts::default(),
            failures: Vec::new(),
            said: 0,
        }),
    };
    std::thread::scope(|scope| {
        for _ in 0..number("SKEP_WORKERS").unwrap_or_else(processors).max(1) {
            // Processes are started by the name of the test, which a thread has to bear for that.
            let worker = std::thread::Builder::new().name(test_name());
            worker.spawn_scoped(scope, || search.work()).expect("a thread");
        }
    });
    let Found { cases, counts, failures, .. } = search.found.into_inner().expect("no worker panics");
    println!("{cases} cases from {first} on: {counts:?}");
    if let Some(failure) = failures.iter().min_by_key(|failure| failure.number) {
        assert!(!search.keep_going, "{} of the cases fail", failures.len());
        fail(failure);
    }
    assert!(
        cases < 100 || counts.loaded > cases / 2 && counts.runs > cases / 2,
        "too little happens: {counts:?}"
    );
}

/// Cases that are gone through by several workers, each of which has one process at a time.
struct Search {
    /// One past the last case.
    end: u64,
    started: Instant,
    /// After so many seconds no chunk is started.
    seconds: u64,
    keep_going: bool,
    found: Mutex<Found>,
}

struct Found {
    /// The first case of the next chunk.
    next: u64,
    cases: u64,
    counts: Counts,
    failures: Vec<Failure>,
    /// How far into the run the last line about it was printed, in units of [`PROGRESS`].
    said: u64,
}

struct Failure {
    number: u64,
    /// The first case of the process that failed.
    first: u64,
    text: String,
}

impl Search {
    fn work(&self) {
        while let Some(chunk) = self.next() {
            let mut next = chunk.start;
            while next < chunk.end {
                let notes = child(next, chunk.end - next, &[]);
                let end = match notes.failure {
                    Some(_) => notes.at.max(next) + 1,
                    None => chunk.end,
                };
                let failure = notes.failure.map(|text| Failure { number: end - 1, first: next, text });
                self.add(end - next, &notes.counts, failure);
                next = end;
            }
        }
    }

    /// The next chunk, unless the search is over.
    fn next(&self) -> Option<Range<u64>> {
        let mut found = self.found.lock().expect("no worker panics");
        let over = self.started.elapsed().as_secs() >= self.seconds;
        let start = found.next;
        let end = start.saturating_add(CHUNK).min(self.end);
        if over || start == end || (!self.keep_going && !found.failures.is_empty()) {
            return None;
        }
        found.next = end;
        Some(start..end)
    }

    fn add(&self, cases: u64, counts: &Counts, failure: Option<Failure>) {
        let mut found = self.found.lock().expect("no worker panics");
        found.cases += cases;
        found.counts.add(counts);
        if let Some(failure) = failure {
            println!("SKEP_SEED={} SKEP_CASES=1: {}", failure.number, failure.text);
            found.failures.push(failure);
        }
        let seconds = self.started.elapsed().as_secs();
        if seconds / PROGRESS > found.said {
            found.said = seconds / PROGRESS;
            println!("{} cases in {seconds} s, now at {}", found.cases, found.next);
        }
    }
}

/// What a child said before it ended.
struct Notes {
    at: u64,
    counts: Counts,
    failure: Option<String>,
}

/// Goes through cases in a process of their own.
fn child(first: u64, count: u64, dropped: &[usize]) -> Notes {
    let path = notes_path();
    let file =
        File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("a file");
    let order: Vec<String> = [first, count]
        .into_iter()
        .chain(dropped.iter().map(|part| *part as u64))
        .map(|n| n.to_string())
        .collect();
    let mut command = this_test();
    command.env(CHILD, order.join(",")).env(NOTES, &path);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    if std::env::var_os("SKEP_SHOW_REFUSED").is_none() {
        command.stdout(Stdio::null());
    }
    let mut running = command.spawn().expect("a process");
    let mut stderr = running.stderr.take().expect("it is piped");
    let said = std::thread::spawn(move || std::io::read_to_string(&mut stderr).unwrap_or_default());
    let patience = Duration::from_secs(if is_emulated() { 600 } else { 120 });
    let (mut at, mut since, mut hung) = (0, Instant::now(), false);
    let status = loop {
        match running.try_wait().expect("it is a child") {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
        let now = read(&file, 0);
        if now != at {
            (at, since) = (now, Instant::now());
        } else if since.elapsed() > patience && !hung {
            hung = true;
            running.kill().expect("it is a child");
        }
    };
    let said = said.join().expect("it only reads");
    let at = read(&file, 0);
    let of = |place| read(&file, place);
    let counts = Counts { loaded: of(1), refused: of(2), done: of(3), not_done: of(4), runs: of(5) };
    let _ = std::fs::remove_file(&path);
    let failure = match status.code() {
        Some(0) => None,
        _ if hung => Some("it does not end".to_owned()),
        Some(_) => Some(gist(&said).to_owned()),
        None => Some(format!("signal {}: {}", status.signal().unwrap_or(0), gist(&said))),
    };
    Notes { at, counts, failure }
}

/// A path that no other child is given.
fn notes_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Any order will do, as long as the numbers differ.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("skep-sequences-{}-{number}", std::process::id()))
}

/// The line that says most of what a child said at its end.
fn gist(said: &str) -> &str {
    let found = said.lines().find_map(|line| line.strip_prefix("FOUND: "));
    let panicked = said.lines().skip_while(|line| !line.contains("panicked at"));
    found.or_else(|| panicked.take(2).last()).unwrap_or_default()
}

fn read(file: &File, place: u64) -> u64 {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, 8 * place) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}

/// What the child does: one case after the other, until one fails.
fn go_through(order: &str) {
    let numbers: Vec<u64> = order.split(',').map(|n| n.parse().expect("a number")).collect();
    let [first, count, dropped @ ..] = &numbers[..] else { panic!("an order has two numbers") };
    let dropped: Vec<usize> = dropped.iter().map(|part| *part as usize).collect();
    let path = std::env::var_os(NOTES).expect("a child is told where to note");
    let notes = File::options().write(true).open(Path::new(&path)).expect("the parent made it");
    let mut counts = Counts::default();
    let ground = Ground::new();
    for number in *first..first + count {
        let case = Case::from_seed(number).without(&dropped);
        let so_far = [number, counts.loaded, counts.refused, counts.done, counts.not_done, counts.runs];
        let bytes: Vec<u8> = so_far.iter().flat_map(|count| count.to_ne_bytes()).collect();
        notes.write_all_at(&bytes, 0).expect("notes can be taken");
        let gone = catch_unwind(AssertUnwindSafe(|| ground.go_through(&case)));
        match gone {
            Ok((these, Ok(()))) => counts.add(&these),
            Ok((_, Err(failure))) => {
                eprintln!("FOUND: {failure}");
                std::process::exit(FOUND);
            }
            // The panic has said what it was.
            Err(_) => std::process::exit(FOUND),
        }
    }
    let so_far = [first + count, counts.loaded, counts.refused, counts.done, counts.not_done, counts.runs];
    let bytes: Vec<u8> = so_far.iter().flat_map(|count| count.to_ne_bytes()).collect();
    notes.write_all_at(&bytes, 0).expect("notes can be taken");
}

/// Fails with a case of which no part can be left out any more, while it fails for the same reason.
fn fail(failure: &Failure) -> ! {
    let Failure { number, first, text: failure } = failure;
    let number = *number;
    if child(number, 1, &[]).failure.is_none() {
        let cases = number - first + 1;
        panic!("{failure}\nin case {number}, but not alone: SKEP_SEED={first} SKEP_CASES={cases}");
    }
    let parts = Case::from_seed(number).len();
    let mut dropped: Vec<usize> = Vec::new();
    let mut step = parts.div_ceil(2).max(1);
    loop {
        for from in (0..parts).step_by(step) {
            let these = (from..parts.min(from + step)).filter(|part| !dropped.contains(part));
            let more: Vec<usize> = dropped.iter().copied().chain(these).collect();
            if more.len() > dropped.len()
                && child(number, 1, &more).failure.is_some_and(|found| kind(&found) == kind(failure))
            {
                dropped = more;
            }
        }
        match step {
            1 => break,
            _ => step = step.div_ceil(2),
        }
    }
    let case = Case::from_seed(number).without(&dropped);
    panic!("SKEP_SEED={number} SKEP_CASES=1: {failure}\nthe smallest such case:\n{case}");
}

/// A failure without its numbers: what stays the same while a case shrinks.
fn kind(failure: &str) -> String {
    let words = failure.split_whitespace();
    words.filter(|word| !word.contains(|c: char| c.is_ascii_digit())).take(6).collect::<Vec<_>>().join(" ")
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.loaded += other.loaded;
        self.refused += other.refused;
        self.done += other.done;
        self.not_done += other.not_done;
        self.runs += other.runs;
    }
}
