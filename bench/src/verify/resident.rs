//! The most memory that this process had at once, as the system counts it.

use std::fs;

/// What the process grows to, beyond what it had at a moment. Memory that was given back since and that the process
/// keeps for later use counts, so this says rather too much than too little.
pub(super) struct Growth {
    before: u64,
}

impl Growth {
    /// Since now. `None` where the system does not count, or cannot begin again.
    pub(super) fn start() -> Option<Self> {
        let growth = Self { before: 0 };
        Some(Self { before: growth.peak_of(|| ()).1? })
    }

    /// The most that there was while `what` was done.
    pub(super) fn peak_of<T>(&self, what: impl FnOnce() -> T) -> (T, Option<u64>) {
        // Five sets the peak to what is resident now (proc_pid_clear_refs(5)).
        let counts = fs::write("/proc/self/clear_refs", "5").is_ok();
        let done = what();
        let bytes = counts.then(|| bytes("VmHWM:")).flatten();
        (done, bytes.map(|bytes| bytes.saturating_sub(self.before)))
    }
}

fn bytes(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
