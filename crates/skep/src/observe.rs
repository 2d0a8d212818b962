//! Who is told of loads, attachments and the end of programs: the host's [audit log](crate::audit), and, with the
//! feature `tracing`, its subscriber. Never of runs.

use crate::audit::{AuditEvent, AuditFailure, AuditRecord, AuditSink, AuditedMap, AuditedProgram};
use crate::error::Error;
use crate::object::Object;
use crate::tenant::Tenant;
use skep_maps::Map;
use skep_verifier::Verified;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Who observes a runtime.
#[derive(Default)]
pub(crate) struct Observed {
    audit: Option<(Box<dyn AuditSink>, AuditFailure)>,
    /// Records that were not kept. Alone: a number for people.
    lost: AtomicU64,
}

/// A program from its load to its end. Kept by its image.
pub(crate) struct Life {
    #[cfg(feature = "tracing")]
    name: Arc<str>,
}

impl Observed {
    pub(crate) fn new(audit: Option<(Box<dyn AuditSink>, AuditFailure)>) -> Self {
        Self { audit, lost: AtomicU64::default() }
    }

    /// How many records were not kept.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether anybody wants to be told.
    pub(crate) fn listens(&self) -> bool {
        self.audit.is_some() || cfg!(feature = "tracing")
    }

    /// Tells of an event, which is refused if the audit log does not keep it and it must.
    pub(crate) fn tell(
        &self,
        tenant: Option<&Tenant>,
        refusal: Option<&Error>,
        event: impl FnOnce() -> AuditEvent,
    ) -> Result<(), Error> {
        if !self.listens() {
            return Ok(());
        }
        let record = AuditRecord {
            time: SystemTime::now(),
            tenant: tenant.map(|tenant| tenant.name().to_owned()),
            event: event(),
            refusal: refusal.map(ToString::to_string),
        };
        trace(&record);
        let Some((sink, failure)) = &self.audit else { return Ok(()) };
        match sink.keep(&record) {
            Ok(()) => Ok(()),
            Err(source) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                match failure {
                    AuditFailure::Refuse => Err(Error::Audit { source }),
                    AuditFailure::Count => Ok(()),
                }
            }
        }
    }

    /// Makes a change between two records: one before it, and one of its failure, if it fails.
    pub(crate) fn around<R>(
        &self,
        tenant: Option<&Tenant>,
        event: impl Fn() -> AuditEvent,
        change: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.tell(tenant, None, &event)?;
        // That it is refused needs no permission.
        change().inspect_err(|error| drop(self.tell(tenant, Some(error), &event)))
    }
}

/// The event of a load. `verified`: the programs that were, with their tags.
pub(crate) fn load(
    object: &Object,
    wanted: &[String],
    verified: &[AuditedProgram],
    maps: &[Arc<Map>],
) -> AuditEvent {
    let known = |name: &String| verified.iter().find(|program| program.name == *name).cloned();
    let unknown = |name: &String| AuditedProgram { name: name.clone(), program_type: None, tag: None };
    AuditEvent::Load {
        sha256: object.sha256().map(|digest| hex(&digest)),
        programs: wanted.iter().map(|name| known(name).unwrap_or_else(|| unknown(name))).collect(),
        maps: maps.iter().map(|map| audited_map(map)).collect(),
    }
}

/// The event of an attachment.
pub(crate) fn attach(program: &Verified, target: &str) -> AuditEvent {
    AuditEvent::Attach { program: self::program(program), target: target.to_owned() }
}

/// A program that passed the verifier.
pub(crate) fn program(verified: &Verified) -> AuditedProgram {
    AuditedProgram {
        name: verified.name().to_owned(),
        program_type: Some(verified.program_type().name.to_owned()),
        tag: Some(hex(&verified.tag())),
    }
}

fn audited_map(map: &Map) -> AuditedMap {
    let def = map.def();
    AuditedMap {
        name: def.name.clone(),
        kind: def.kind.name().to_owned(),
        max_entries: def.max_entries,
        bytes: map.memory(),
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

impl Life {
    pub(crate) fn begin(name: &Arc<str>) -> Self {
        let _ = name;
        Self {
            #[cfg(feature = "tracing")]
            name: Arc::clone(name),
        }
    }
}

#[cfg(feature = "tracing")]
impl Drop for Life {
    fn drop(&mut self) {
        tracing::debug!(target: "skep", program = &*self.name, "unloaded");
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("audit", &self.audit.is_some()).field("lost", &self.lost()).finish()
    }
}

/// The span around a load.
#[cfg(feature = "tracing")]
pub(crate) fn loading(tenant: Option<&Tenant>) -> tracing::span::EnteredSpan {
    tracing::info_span!(target: "skep", "load", tenant = tenant.map(Tenant::name)).entered()
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn loading(_tenant: Option<&Tenant>) {}

#[cfg(not(feature = "tracing"))]
fn trace(_record: &AuditRecord) {}

/// The record as an event of `tracing`.
#[cfg(feature = "tracing")]
fn trace(record: &AuditRecord) {
    let tenant = record.tenant.as_deref();
    let names = |programs: &[AuditedProgram]| {
        programs.iter().map(|program| &*program.name).collect::<Vec<_>>().join(", ")
    };
    let (what, programs, target) = match &record.event {
        AuditEvent::Load { programs, .. } => ("loaded", names(programs), None),
        AuditEvent::Attach { program, target } => ("attached", program.name.clone(), Some(&**target)),
        AuditEvent::Replace { program, target } => ("replaced", program.name.clone(), Some(&**target)),
        AuditEvent::Detach { program, target } => ("detached", program.clone(), Some(&**target)),
    };
    match &record.refusal {
        None => tracing::info!(target: "skep", tenant, programs, at = target, "{what}"),
        Some(why) => tracing::warn!(target: "skep", tenant, programs, at = target, why, "not {what}"),
    }
}
