//! What the system says of this process: its memory and its threads.

use std::fs;
use std::time::Duration;

/// Bytes that are resident now.
pub(super) fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Gives back what was freed before, and has the system forget how much was resident until now: whether it does.
pub(super) fn forget() -> bool {
    // SAFETY: it may be called at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    // Five sets the peak to what is resident now (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most bytes that were resident since [`forget`].
pub(super) fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// How many threads there are now.
pub(super) fn threads() -> u32 {
    fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u32)
}

/// Processor time that all its threads have taken.
pub(super) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
