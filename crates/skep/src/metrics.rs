//! Metrics of runtimes and tenants in Prometheus's text format, version 0.0.4.
//!
//! The format by hand: a family has a type and a text, a sample a name, labels and a number. All samples of a family
//! follow each other, also those of several runtimes, as the format demands. Names of programs and maps come from
//! object files, so label values may hold anything, and are escaped.
//!
//! What would break it: two samples of the same labels. Each program, map and link has a number that no other one of
//! the runtime gets.

use crate::runtime::Runtime;
use crate::stats::RunStats;
use crate::tenant::{Resource, Tenant};
use std::fmt::{self, Write};

/// Metrics of runtimes and tenants, for Prometheus and what else reads its text format. `Display` takes them at that
/// moment and writes them. A scrape costs about a millisecond for each runtime.
///
/// ```
/// use skep::{Metrics, Object, Quota, Runtime, Tenant};
///
/// let runtime = Runtime::new()?;
/// runtime.enable_stats(true);
/// let tenant = Tenant::new("customer-7", Quota::new().programs(10));
/// let insns = skep::isa::assemble("r0 = 0\nexit").expect("the text is right");
/// let object = Object::from_insns("nothing", &skep::abi::RAW, insns);
/// let module = runtime.linker(&object).tenant(&tenant).load()?;
/// module.programs()[0].run_raw(&mut [])?;
///
/// let text = Metrics::new().runtime("edge", &runtime).tenant(&tenant).to_string();
/// let labels = r#"runtime="edge",id="1",program="nothing",type="raw""#;
/// assert!(text.contains(&format!("skep_program_run_seconds_count{{{labels}")));
/// assert!(text.contains(r#"skep_tenant_used{tenant="customer-7",resource="programs"} 1"#));
/// # Ok::<(), skep::Error>(())
/// ```
///
/// All times are in seconds, all sizes in bytes. The bounds of histograms (`le`) are a nanosecond below a power of two
/// nanoseconds, because bounds are inclusive: those are exact.
#[derive(Debug, Default)]
#[must_use]
pub struct Metrics<'a> {
    runtimes: Vec<(&'a str, &'a Runtime)>,
    tenants: Vec<&'a Tenant>,
}

impl<'a> Metrics<'a> {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of a runtime: its programs, links, maps that a load created or was given, code memory and reclamation. The
    /// name is the value of the label `runtime`, and each runtime's is its own.
    pub fn runtime(mut self, name: &'a str, runtime: &'a Runtime) -> Self {
        self.runtimes.push((name, runtime));
        self
    }

    /// Those of a tenant: what it has, may have, and was refused.
    pub fn tenant(mut self, tenant: &'a Tenant) -> Self {
        self.tenants.push(tenant);
        self
    }
}

impl fmt::Display for Metrics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut families = Families::default();
        for (name, runtime) in &self.runtimes {
            programs(&mut families, name, runtime);
            links(&mut families, name, runtime);
            maps(&mut families, name, runtime);
            memory(&mut families, name, runtime);
        }
        for tenant in &self.tenants {
            quotas(&mut families, tenant);
        }
        for ((name, kind, help), samples) in families.0 {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")?;
        }
        Ok(())
    }
}

/// A family's name, type and text.
type Family = (&'static str, &'static str, &'static str);

/// Samples by family, in the order of the first of each.
#[derive(Default)]
struct Families(Vec<(Family, String)>);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Families {
    fn of(&mut self, family: Family) -> &mut String {
        let at = self.0.iter().position(|(known, _)| known.0 == family.0).unwrap_or_else(|| {
            self.0.push((family, String::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn add(&mut self, family: Family, labels: Labels<'_>, value: u64) {
        sample(self.of(family), family.0, "", labels, value);
    }

    fn add_histogram(&mut self, family: Family, labels: Labels<'_>, stats: &RunStats) {
        /// The powers of two nanoseconds below which bounds are: 64 ns to a second.
        const BOUNDS: std::ops::RangeInclusive<u32> = 6..=30;

        let text = self.of(family);
        let mut bucket = |bound: &str, count: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            sample(text, family.0, "_bucket", &labels, count);
        };
        for power in BOUNDS {
            let bound = (1_u64 << power) - 1;
            bucket(&seconds(bound), stats.times.up_to(bound));
        }
        bucket("+Inf", stats.run_cnt);
        sample(text, family.0, "_sum", labels, seconds(stats.run_time_ns));
        sample(text, family.0, "_count", labels, stats.run_cnt);
    }
}

fn programs(to: &mut Families, runtime: &str, of: &Runtime) {
    const RUNS: Family = ("skep_program_run_seconds", "histogram", "Times of runs while statistics were on.");
    const MISSES: Family = ("skep_program_misses_total", "counter", "Runs that a held lock prevented.");
    const CODE: Family = ("skep_program_code_bytes", "gauge", "Machine code.");

    for (id, program) in of.shared().registry.programs() {
        let (id, tag) = (id.to_string(), crate::observe::hex(&program.verified.tag()));
        let tenant = program.tenant.as_ref().map_or("", |tenant| tenant.name());
        let labels = &[
            ("runtime", runtime),
            ("id", &*id),
            ("program", program.name()),
            ("type", program.verified.program_type().name),
            ("tag", &*tag),
            ("tenant", tenant),
        ];
        let stats = program.counted.stats();
        to.add_histogram(RUNS, labels, &stats);
        to.add(MISSES, labels, stats.misses);
        to.add(CODE, labels, program.compiled.code_bytes() as u64);
    }
}

fn links(to: &mut Families, runtime: &str, of: &Runtime) {
    const RUNS: Family =
        ("skep_link_run_seconds", "histogram", "Times of runs through the link while statistics were on.");

    for (id, link) in of.shared().registry.links() {
        let (id, (program, _)) = (id.to_string(), link.program());
        let labels = &[("runtime", runtime), ("id", &*id), ("program", &*program)];
        to.add_histogram(RUNS, labels, &link.counted.stats());
    }
}

fn maps(to: &mut Families, runtime: &str, of: &Runtime) {
    const ENTRIES: Family = ("skep_map_entries", "gauge", "Elements in the map.");
    const MOST: Family = ("skep_map_max_entries", "gauge", "The map's capacity.");
    const MEMORY: Family = ("skep_map_memory_bytes", "gauge", "Memory that the map has from the system.");
    const WAITING: Family = ("skep_map_waiting_entries", "gauge", "Removed elements that wait for readers.");

    for (id, map) in of.shared().registry.maps() {
        let id = id.to_string();
        let labels = &[("runtime", runtime), ("id", &*id), ("map", map.name()), ("kind", map.kind().name())];
        let stats = map.stats();
        to.add(ENTRIES, labels, map.len().into());
        to.add(MOST, labels, map.def().max_entries.into());
        to.add(MEMORY, labels, stats.bytes);
        to.add(WAITING, labels, stats.in_flight);
    }
}

fn memory(to: &mut Families, runtime: &str, of: &Runtime) {
    const CODE: Family =
        ("skep_code_memory_bytes", "gauge", "Code memory: mapped, used and waiting for readers.");
    const PACKS: Family = ("skep_code_packs", "gauge", "Packs of code memory, and how many are huge pages.");
    const TEXTS: Family = ("skep_code_texts", "gauge", "Pieces of code.");
    const CALLBACKS: Family = ("skep_callbacks_waiting", "gauge", "Callbacks that wait for a grace period.");
    const PERIODS: Family = ("skep_grace_periods_total", "counter", "Grace periods that were seen to end.");
    const CPUS: Family = ("skep_virtual_cpus", "gauge", "Virtual CPUs that exist, and that threads own.");
    const LOST: Family =
        ("skep_audit_failures_total", "counter", "Audit records that the sink did not keep.");

    let code = of.occupancy();
    for (state, bytes) in
        [("mapped", code.mapped_bytes), ("used", code.used_bytes), ("waiting", code.waiting_bytes)]
    {
        to.add(CODE, &[("runtime", runtime), ("state", state)], bytes as u64);
    }
    for (state, packs) in [("all", code.packs), ("empty", code.empty_packs), ("huge", code.huge_packs)] {
        to.add(PACKS, &[("runtime", runtime), ("state", state)], packs as u64);
    }
    to.add(TEXTS, &[("runtime", runtime)], code.texts as u64);
    let domain = &of.shared().domain;
    let stats = domain.stats();
    to.add(CALLBACKS, &[("runtime", runtime)], stats.waiting);
    to.add(PERIODS, &[("runtime", runtime)], stats.grace_periods);
    for (state, cpus) in [("all", domain.limit()), ("owned", domain.in_use())] {
        to.add(CPUS, &[("runtime", runtime), ("state", state)], cpus.into());
    }
    to.add(LOST, &[("runtime", runtime)], of.audit_failures());
}

fn quotas(to: &mut Families, tenant: &Tenant) {
    const USED: Family =
        ("skep_tenant_used", "gauge", "What the tenant has, what waits for readers included.");
    const PEAK: Family = ("skep_tenant_peak", "gauge", "The most that it had at a time.");
    const LIMIT: Family = ("skep_tenant_limit", "gauge", "What it may have. Absent without a limit.");
    const REFUSED: Family = ("skep_tenant_refused_total", "counter", "How often it was refused more.");

    for (name, resource) in [
        ("map_bytes", Resource::MapMemory),
        ("maps", Resource::Maps),
        ("code_bytes", Resource::CodeMemory),
        ("programs", Resource::Programs),
    ] {
        let labels = &[("tenant", tenant.name()), ("resource", name)];
        let usage = tenant.usage(resource);
        to.add(USED, labels, usage.used);
        to.add(PEAK, labels, usage.peak);
        if usage.limit != u64::MAX {
            to.add(LIMIT, labels, usage.limit);
        }
        to.add(REFUSED, labels, usage.refused);
    }
}

/// Writing to a string cannot fail.
fn sample(to: &mut String, name: &str, suffix: &str, labels: Labels<'_>, value: impl fmt::Display) {
    let _ = write!(to, "{name}{suffix}{{");
    for (at, (label, value)) in labels.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(to, "{comma}{label}=\"{}\"", escape(value));
    }
    let _ = writeln!(to, "}} {value}");
}

/// A label's value as the format has it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nanoseconds in seconds, exactly.
fn seconds(nanoseconds: u64) -> String {
    let text = format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_exactly() {
        for (nanoseconds, text) in
            [(0, "0"), (63, "0.000000063"), (1_500_000_000, "1.5"), (10_000_000_000, "10")]
        {
            assert_eq!(seconds(nanoseconds), text);
        }
    }

    #[test]
    fn label_values_cannot_end_early() {
        assert_eq!(escape("a\"} 1\nb\\"), r#"a\"} 1\nb\\"#);
    }
}
