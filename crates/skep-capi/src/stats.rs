//! What programs did and may do: statistics, metrics, budgets and interruption.

use crate::argument::{bytes, give, name, place, shared};
use crate::options::{self, Options};
use crate::status::{Failure, guard};
use crate::tenant::Quotas;
use crate::text::give_text;
use skep::{Link, Metrics, Program, RunStats, Runtime};
use std::ffi::{c_char, c_int};

/// `skep_stats`: the runs of a program or of a link.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StatsInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Runs that have ended.
    pub run_cnt: u64,
    /// Their time in nanoseconds.
    pub run_time_ns: u64,
    /// Runs that did not take place.
    pub misses: u64,
    /// The time below which half of them were.
    pub median_ns: u64,
    /// The time below which 99 of 100 were.
    pub p99_ns: u64,
}

/// `skep_bucket`: how often runs took how long.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bucket {
    /// The shortest time, in nanoseconds.
    pub from_ns: u64,
    /// The longest time, in nanoseconds.
    pub to_ns: u64,
    /// How many runs.
    pub count: u64,
}

// SAFETY: six words of numbers.
unsafe impl Options for StatsInfo {
    const NAME: &'static str = "skep_stats";
}

impl StatsInfo {
    fn of(stats: &RunStats) -> Self {
        let quantile = |share| stats.times.quantile(share).map_or(0, |bucket| bucket.to);
        Self {
            size: 0,
            run_cnt: stats.run_cnt,
            run_time_ns: stats.run_time_ns,
            misses: stats.misses,
            median_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        }
    }
}

/// Turns statistics on or off.
///
/// # Safety
///
/// `runtime` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_enable_stats(runtime: *const Runtime, on: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { shared(runtime, "skep_runtime_enable_stats: runtime")? }.enable_stats(on != 0);
        Ok(())
    })
}

/// The runs of a program.
///
/// # Safety
///
/// `program` is null or valid; `stats` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_stats(program: *const Program, stats: *mut StatsInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let program = shared(program, "skep_program_stats: program")?;
            options::write(stats, StatsInfo::of(&program.stats()))
        }
    })
}

/// Counts the runs of a program from 0 again.
///
/// # Safety
///
/// `program` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_reset_stats(program: *const Program) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { shared(program, "skep_program_reset_stats: program")? }.reset_stats();
        Ok(())
    })
}

/// The runs through a link.
///
/// # Safety
///
/// `link` is null or not freed; `stats` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_link_stats(link: *const Link, stats: *mut StatsInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let link = shared(link, "skep_link_stats: link")?;
            options::write(stats, StatsInfo::of(&link.stats()))
        }
    })
}

/// The buckets of a program's times that are not empty. `*count` is how many there is room for, and then how many there
/// are.
///
/// # Safety
///
/// `program` is null or valid; `buckets` is null or writable for `*count` of them; `count` is null or readable and
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_histogram(
    program: *const Program,
    buckets: *mut Bucket,
    count: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        unsafe {
            let program = shared(program, "skep_program_histogram: program")?;
            let count = place(count, "skep_program_histogram: count")?;
            let room = count.read();
            if buckets.is_null() && room > 0 {
                return Err(Failure::argument("skep_program_histogram: buckets is NULL"));
            }
            let times = program.stats().times;
            for (at, found) in times.buckets().take(room).enumerate() {
                let skep::Bucket { from, to, count, .. } = found;
                buckets.add(at).write(Bucket { from_ns: from, to_ns: to, count });
            }
            count.write(times.buckets().count());
        }
        Ok(())
    })
}

/// Metrics of a runtime and of tenants in the text format of Prometheus.
///
/// # Safety
///
/// `runtime` is null or not freed; `called` is null or ends in a zero byte; `tenants` is null or readable for `count`
/// pointers to tenants that are not freed; `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_metrics(
    runtime: *const Runtime,
    called: *const c_char,
    tenants: *const *const Quotas,
    count: usize,
    text: *mut *mut c_char,
) -> c_int {
    guard(|| {
        let to = place(text, "skep_runtime_metrics: text")?;
        // SAFETY: the caller's promise, to all.
        unsafe {
            let runtime = shared(runtime, "skep_runtime_metrics: runtime")?;
            let name = name(called, "skep_runtime_metrics: name")?;
            let len = count.checked_mul(size_of::<*const Quotas>());
            let len = len.ok_or_else(|| Failure::argument("skep_runtime_metrics: count is too large"))?;
            bytes(tenants.cast(), len, "skep_runtime_metrics: tenants")?;
            let mut metrics = Metrics::new().runtime(name, runtime);
            for at in 0..count {
                let tenant = shared(tenants.add(at).read(), "skep_runtime_metrics: tenant")?;
                metrics = metrics.tenant(tenant.tenant());
            }
            give_text(to, &metrics.to_string());
        }
        Ok(())
    })
}

/// How many virtual CPUs there are; 0 for null.
///
/// # Safety
///
/// `runtime` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_cpus(runtime: *const Runtime) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { runtime.as_ref() }.map_or(0, Runtime::cpus)
}

/// How many audit records were not kept; 0 for null.
///
/// # Safety
///
/// `runtime` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_audit_failures(runtime: *const Runtime) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { runtime.as_ref() }.map_or(0, Runtime::audit_failures)
}

/// Gives the caller a handle of the program whose runs have a budget of their own.
///
/// # Safety
///
/// `program` is null or valid; `limited` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_with_budget(
    program: *const Program,
    units: u64,
    ns: u64,
    limited: *mut *mut Program,
) -> c_int {
    guard(|| {
        let to = place(limited, "skep_program_with_budget: limited")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let program = shared(program, "skep_program_with_budget: program")?;
            give(to, program.with_budget(options::budget(units, ns))?);
        }
        Ok(())
    })
}

/// Ends all runs of a program that are in progress.
///
/// # Safety
///
/// `program` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_interrupt(program: *const Program) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        Ok(unsafe { shared(program, "skep_program_interrupt: program")? }.interrupt()?)
    })
}

/// Ends all runs that are in progress.
///
/// # Safety
///
/// `runtime` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_runtime_interrupt(runtime: *const Runtime) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { shared(runtime, "skep_runtime_interrupt: runtime")? }.interrupt();
        Ok(())
    })
}
