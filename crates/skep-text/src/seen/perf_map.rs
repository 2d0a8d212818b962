//! The perf map: `/tmp/perf-PID.map`, one line for each text.
//!
//! The format is one line of `START SIZE NAME` for each function, the numbers hexadecimal without `0x`; the file must
//! belong to the user the process runs as (Linux, tools/perf/Documentation/jit-interface.txt).
//!
//! Protocol: one file for the process, shared by its arenas, and by other compilers in it that follow the same
//! convention: it is opened for appending, and each line is one write, which the kernel never interleaves with
//! another. The line of a dropped text stays, because its samples are named when the recording is read. When another
//! text reuses its address, perf 6.1 would keep showing the older name, the first in the file; so that line is
//! *struck out*: its numbers are overwritten with zeros.
//!
//! ```text
//!   7f0a2be00040 1a4 skep_prog_.._old          000000000000 000 skep_prog_.._old
//!                                       --->   7f0a2be00040 2c0 skep_prog_.._new
//! ```
//!
//! Invariant: our lines that are not struck out do not overlap.
//!
//! The file stays open as long as the process lives: one descriptor, however many arenas come and go.
//!
//! What would break it: a line in two writes; a name with a line break; another writer through the same descriptor,
//! because after a write the descriptor's offset tells where the line went.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};

use super::file::{self, Existing, Loss};
use super::{Missed, Tool};
use crate::error::{During, Error, SystemCall};

/// One arena's share of the process's perf map.
pub(super) struct PerfMap {
    file: Arc<File>,
}

struct File {
    descriptor: OwnedFd,
    /// The process that may write.
    process: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loss: Loss,
    /// The lines that are not struck out, by the first address.
    lines: BTreeMap<usize, Line>,
}

struct Line {
    /// The end of the addresses.
    end: usize,
    /// Where in the file it begins.
    offset: u64,
    /// How many bytes the two numbers and the space between them are.
    numbers: usize,
}

/// The map of this process, or of the one that it was forked from.
static OPEN: Mutex<Option<Arc<File>>> = Mutex::new(None);

impl PerfMap {
    pub(super) fn open() -> Result<Self, Error> {
        let process = std::process::id();
        let path = format!("/tmp/perf-{process}.map");
        let path = Path::new(&path);
        let mut open = file::lock(&OPEN);
        if let Some(file) = &*open
            && file.process == process
            && file::is_still_at(&file.descriptor, path)
        {
            return Ok(Self { file: Arc::clone(file) });
        }
        const STEP: SystemCall = SystemCall::OpenPerfMap;
        let descriptor = file::open(path, Existing::Open, OFlags::WRONLY | OFlags::APPEND, STEP)?;
        if file::is_stale(&rustix::fs::fstat(&descriptor).during(STEP)?) {
            rustix::fs::ftruncate(&descriptor, 0).during(STEP)?;
        }
        let file = File { descriptor, process, state: Mutex::default() };
        let file = Arc::new(file);
        *open = Some(Arc::clone(&file));
        Ok(Self { file })
    }

    pub(super) fn add(&self, name: &str, address: usize, len: usize) {
        if self.file.process != std::process::id() {
            return;
        }
        let numbers = format!("{address:x} {len:x}");
        let line = format!("{numbers} {name}\n");
        let mut state = file::lock(&self.file.state);
        if state.loss.count_if_stopped() {
            return;
        }
        let end = address + len;
        state.strike_out(&self.file.descriptor, address, end);
        match retry_on_intr(|| rustix::io::write(&self.file.descriptor, line.as_bytes())) {
            Ok(written) if written == line.len() => {
                // Appending moved the offset to the end of the line.
                if let Ok(after) = rustix::fs::tell(&self.file.descriptor) {
                    let offset = after - line.len() as u64;
                    state.lines.insert(address, Line { end, offset, numbers: numbers.len() });
                }
            }
            // Part of a line, the last one that this process writes. A line break keeps other writers' lines apart
            // from it; if even this byte does not fit, they cannot append either.
            Ok(_) => {
                let _ = rustix::io::write(&self.file.descriptor, b"\n");
                state.loss.stop(Errno::NOSPC);
            }
            Err(errno) => state.loss.stop(errno),
        }
    }

    pub(super) fn missed(&self) -> Option<Missed> {
        file::lock(&self.file.state).loss.report(Tool::PerfMap)
    }
}

impl State {
    /// Strikes out the lines of all texts that overlapped these addresses.
    fn strike_out(&mut self, file: &OwnedFd, start: usize, end: usize) {
        // They do not overlap, so their ends are in the same order as their beginnings.
        while let Some((&first, _)) = self.lines.range(..end).next_back().filter(|(_, line)| line.end > start)
            && let Some(Line { offset, numbers, .. }) = self.lines.remove(&first)
        {
            let mut zeros = vec![b'0'; numbers];
            zeros[format!("{first:x}").len()] = b' ';
            // Linux appends whatever is written to a file opened for that, pwrite(2) says so under "BUGS". A failure
            // leaves a name that is out of date.
            let _ = rustix::fs::fcntl_setfl(file, OFlags::empty())
                .and_then(|()| rustix::io::pwrite(file, &zeros, offset));
            let _ = rustix::fs::fcntl_setfl(file, OFlags::APPEND);
        }
    }
}
