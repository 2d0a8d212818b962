//! The audit log: every load and attachment has its record, and nothing runs whose record was not kept.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{
    AuditEvent, AuditFailure, AuditRecord, Error, JsonLines, Object, Program, Quota, Runtime, RuntimeBuilder,
    Tenant,
};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<AuditRecord>>>, Arc<AtomicBool>);

impl Sink {
    fn runtime(&self, failure: AuditFailure) -> Runtime {
        self.builder(failure).build().unwrap()
    }

    fn builder(&self, failure: AuditFailure) -> RuntimeBuilder {
        let Self(records, full) = self.clone();
        let keep = move |record: &AuditRecord| match full.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk is full")),
            false => {
                records.lock().unwrap().push(record.clone());
                Ok(())
            }
        };
        Runtime::builder().audit(keep, failure)
    }

    fn take(&self) -> Vec<AuditRecord> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn fill(&self, full: bool) {
        self.1.store(full, Ordering::Relaxed);
    }
}

fn object(name: &str, text: &str, maps: Vec<MapDef>) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps(name, &RAW, &bytes, maps).unwrap()
}

fn good() -> Object {
    object("good", "r0 = 0\nexit", vec![])
}

#[test]
fn an_accepted_load_is_recorded_with_its_programs_maps_and_digest() {
    let sink = Sink::default();
    let runtime = sink.runtime(AuditFailure::Refuse);
    let tenant = Tenant::new("seven", Quota::new());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flows.bpf.o");
    let module = runtime.linker(&Object::open(path).unwrap()).tenant(&tenant).load().unwrap();
    let [record] = &*sink.take() else { panic!("one record") };
    assert_eq!((record.tenant.as_deref(), &record.refusal), (Some("seven"), &None));
    let AuditEvent::Load { sha256, programs, maps, .. } = &record.event else { panic!("{record:?}") };
    // The digest is that of another implementation.
    let sum = std::process::Command::new("sha256sum").arg(path).output().unwrap().stdout;
    assert_eq!(
        sha256.as_deref().unwrap(),
        String::from_utf8(sum).unwrap().split_whitespace().next().unwrap()
    );
    assert_eq!(programs.len(), module.programs().len());
    for (recorded, program) in programs.iter().zip(module.programs()) {
        let tag: String = program.verified().tag().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((&*recorded.name, recorded.tag.as_ref()), (program.name(), Some(&tag)));
        assert_eq!(recorded.program_type.as_deref(), Some(program.program_type().name));
    }
    let names: Vec<_> = maps.iter().map(|map| (&*map.name, map.bytes)).collect();
    let expected: Vec<_> = module.maps().iter().map(|map| (map.name(), map.memory())).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_refused_load_is_recorded_with_its_reason_whatever_step_refused_it() {
    let sink = Sink::default();
    let runtime = sink.runtime(AuditFailure::Refuse);
    let tenant = Tenant::new("t", Quota::new().map_memory(1000));
    let map = MapDef::new("m", MapKind::Array, 4, 8000, 1);
    for (object, verified, only) in [
        (object("verifier", "exit", vec![]), false, None),
        (object("quota", "r1 = map[0] ll\nr0 = 0\nexit", vec![map]), true, None),
        (good(), false, Some("absent")),
    ] {
        let linker = runtime.linker(&object).tenant(&tenant);
        let linker = if let Some(name) = only { linker.only(name) } else { linker };
        let error = linker.load().unwrap_err();
        let [record] = &*sink.take() else { panic!("one record of {error}") };
        assert_eq!(record.refusal, Some(error.to_string()));
        let AuditEvent::Load { programs, maps, .. } = &record.event else { panic!("{record:?}") };
        assert_eq!((programs.len(), programs[0].tag.is_some(), maps.len()), (1, verified, 0));
    }
}

#[test]
fn attachments_are_recorded_before_they_run_and_failed_ones_twice() {
    let sink = Sink::default();
    let runtime = sink.runtime(AuditFailure::Refuse);
    let load = |object: &Object| -> Program { runtime.load(object).unwrap().programs()[0].clone() };
    let (one, other) = (load(&good()), load(&object("other", "r0 = 1\nexit", vec![])));
    let wide = runtime.linker(&good()).buffer_len(8).load().unwrap().programs()[0].clone();
    sink.take();
    let hook = runtime.hook();
    let link = hook.attach(&one).unwrap();
    assert!(hook.attach(&wide).is_err());
    link.replace(&other).unwrap();
    drop(link);
    let told = sink.take().into_iter().map(|record| match record.event {
        AuditEvent::Attach { program, .. } => ("attach", program.name, record.refusal.is_some()),
        AuditEvent::Replace { program, .. } => ("replace", program.name, record.refusal.is_some()),
        AuditEvent::Detach { program, .. } => ("detach", program, record.refusal.is_some()),
        event => panic!("{event:?}"),
    });
    let expected = [
        ("attach", "good", false),
        ("attach", "good", false),
        ("attach", "good", true),
        ("replace", "other", false),
        ("detach", "other", false),
    ];
    assert_eq!(
        told.collect::<Vec<_>>(),
        expected.map(|(what, name, refused)| (what, name.to_owned(), refused))
    );
}

#[test]
fn programs_at_probes_are_recorded_as_those_at_hooks_are() {
    use skep::world::{Function, Machine, Probe, ProbeOptions, ProbePoint};
    let sink = Sink::default();
    let mut machine = Machine::new();
    machine.probes.add_function(Function { name: "tcp_connect".into(), address: 0, size: 0 }).unwrap();
    let world = skep::World::new(machine);
    let runtime = sink.builder(AuditFailure::Refuse).world(&world).build().unwrap();
    let kind = skep::abi::ProgramType::from_name("kprobe").unwrap();
    let module = runtime.load(&Object::from_insns("watch", kind, assemble("r0 = 0\nexit").unwrap())).unwrap();
    sink.take();
    let probe = || {
        let entry = Probe::Entry(ProbePoint::function("tcp_connect"));
        world.probe(&module.programs()[0], entry, ProbeOptions::default())
    };
    drop(probe().unwrap());
    let [attached, detached] = &*sink.take() else { panic!("two records") };
    let AuditEvent::Attach { program, target } = &attached.event else { panic!("{attached:?}") };
    assert_eq!((&*program.name, &**target), ("watch", "entry of tcp_connect"));
    let AuditEvent::Detach { program, target } = &detached.event else { panic!("{detached:?}") };
    assert_eq!((&**program, &**target), ("watch", "entry of tcp_connect"));
    sink.fill(true);
    assert!(matches!(probe(), Err(Error::Audit { .. })));
}

#[test]
fn what_the_sink_does_not_keep_does_not_take_place() {
    let sink = Sink::default();
    let runtime = sink.runtime(AuditFailure::Refuse);
    let program = runtime.load(&good()).unwrap().programs()[0].clone();
    let hook = runtime.hook();
    let link = hook.attach(&program).unwrap();
    sink.fill(true);
    let tenant = Tenant::new("t", Quota::new());
    let refused = runtime.linker(&good()).tenant(&tenant).load().unwrap_err();
    assert!(matches!(refused, Error::Audit { .. }), "{refused}");
    assert!(matches!(hook.attach(&program), Err(Error::Audit { .. })));
    assert!(matches!(link.replace(&program), Err(Error::Audit { .. })));
    assert_eq!(hook.programs().unwrap().len(), 1);
    assert_eq!(tenant.usage(skep::Resource::Programs).used, 0, "nothing stays loaded");
    drop(link);
    assert!(hook.programs().unwrap().is_empty(), "what is not recorded does not go on");
    assert_eq!(runtime.audit_failures(), 4);
    sink.fill(false);
    runtime.load(&good()).unwrap();
}

#[test]
fn lost_records_are_counted_if_a_host_prefers_to_go_on() {
    let sink = Sink::default();
    let runtime = sink.runtime(AuditFailure::Count);
    sink.fill(true);
    runtime.load(&good()).unwrap();
    assert_eq!(runtime.audit_failures(), 1);
}

#[test]
fn records_are_lines_of_json_whatever_names_objects_have() {
    let path = std::env::temp_dir().join(format!("skep-audit-{}", std::process::id()));
    let file = std::fs::File::options().create_new(true).append(true).open(&path).unwrap();
    let runtime = Runtime::builder().audit(JsonLines::new(file), AuditFailure::Refuse).build().unwrap();
    let name = "a\"\n\u{1b}]";
    runtime.load(&object(name, "r0 = 0\nexit", vec![])).unwrap();
    assert!(runtime.load(&object("refused", "exit", vec![])).is_err());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["event"], "load");
    assert_eq!(lines[0]["programs"][0]["name"], name);
    assert!(lines[0]["refusal"].is_null() && lines[1]["refusal"].as_str().unwrap().contains("refused"));
    assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'));
}
