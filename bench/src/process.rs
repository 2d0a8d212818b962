//! What the system reports about this machine and this process: memory, threads, processor time.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// A field of the first processor in `/proc/cpuinfo`.
pub(crate) fn cpu(field: &str) -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim_start().strip_prefix(':')?.trim().to_owned())
}

/// Resident bytes now.
pub(crate) fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Returns freed memory to the system, and [resets the peak](reset_peak).
pub(crate) fn trim() -> bool {
    // SAFETY: it may be called at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    reset_peak()
}

/// Sets the peak of resident memory to what is resident now. Returns whether the system can do that.
fn reset_peak() -> bool {
    // Five does it (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most bytes that were resident since the peak was reset.
pub(crate) fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The most bytes that were resident during `work`; `None` where the system does not count. Memory that was freed
/// before and that the process keeps for later use counts, so the result is too large rather than too small.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let counts = reset_peak();
    (work(), counts.then(peak).flatten())
}

/// How many threads there are now.
pub(crate) fn threads() -> u32 {
    fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u32)
}

/// Processor time of all threads.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Seconds that some work took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Passed {
    pub(crate) wall: f64,
    /// Processor time of the calling thread.
    pub(crate) thread: f64,
    /// Processor time of the other threads: work that was put off to the background is not gone, and must show.
    pub(crate) background: f64,
}

/// Does the work, with all three clocks read before and after.
pub(crate) fn clocked<T>(work: impl FnOnce() -> T) -> (T, Passed) {
    let (thread, process, wall) = (thread_time(), cpu_time(), Instant::now());
    let done = work();
    // First the time: reading processor time takes two system calls.
    let wall = wall.elapsed().as_secs_f64();
    let (thread, process) = (thread_time() - thread, cpu_time() - process);
    let background = process.saturating_sub(thread).as_secs_f64();
    (done, Passed { wall, thread: thread.as_secs_f64(), background })
}
