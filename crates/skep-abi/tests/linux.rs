//! The tables agree with what Linux was observed to do; every exception is listed here with its reason.
//!
//! The data are in `tests/data/`. The head of each file says how it was obtained.

use skep_abi::{
    Access, ArgKind, Callback, Context, ContextLayout, DynptrArg, FieldKind, HelperProto, HelperSet, LINUX,
    MapKind, ProgramType, Results, RetKind, Section, SpecialKind, StructKind, TYPES, holders, linux_helper,
    map_helpers,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Helpers that a type may call here but not in the data.
const MORE_HELPERS: &[(&str, &[u32], &str)] = &[
    ("kprobe", &[58], "override_return depends on how the kernel was built"),
    ("kprobe.multi", &[58], "the same"),
    ("kprobe.session", &[58], "the same"),
    ("uprobe.multi", &[58], "the same"),
    ("uprobe.s", &[58], "the same"),
    ("uprobe.multi.s", &[58], "the same"),
    ("lsm/void", &[147, 161, 193], "only in hooks that may sleep; the data's may not"),
];

/// Arguments that are stricter or wider here: helper, argument from 1, reason.
const OTHER_ARGUMENTS: &[(u32, usize, &str)] = &[
    (2, 4, "numbers only, since an address is useless as flags"),
    (9, 2, "the same for an offset"),
    (9, 5, "the same for flags"),
    (10, 2, "the same"),
    (10, 3, "the same"),
    (10, 4, "the same"),
    (10, 5, "the same"),
    (11, 2, "the same"),
    (11, 3, "the same"),
    (11, 4, "the same"),
    (11, 5, "the same"),
    (12, 3, "the same for an index"),
    (26, 2, "the same for an offset"),
    (28, 5, "the same for a seed"),
    (44, 2, "the same for a distance"),
    (54, 2, "the same"),
    (65, 2, "the same"),
    (69, 2, "fib_lookup writes there, so read-only memory is refused"),
    (81, 2, "no kind of argument says that the flags must be 0"),
    (101, 2, "sysctl_get_name writes there, so read-only memory is refused"),
    (119, 2, "read_branch_records writes there"),
    (147, 2, "d_path writes there"),
    (149, 1, "snprintf_btf writes there"),
    (165, 1, "snprintf writes there"),
    (197, 1, "memory behind a dynptr may be written through it"),
];

/// Reads that Linux accepts and skep refuses: section or structure, offsets, reason.
const ODD_READS: &[(&str, Range<u32>, &str)] = &[
    ("raw_tp.w", 1..8, "all but the first byte of an address"),
    ("*tcp_sock", 84..85, "the upper half of bytes_received, though not the lower one"),
    ("*tcp_sock", 92..93, "the upper half of bytes_acked, though not the lower one"),
];

fn lines(data: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    data.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

fn numbers(text: &str) -> HelperSet {
    let mut set = HelperSet::EMPTY;
    for run in text.split(' ').filter(|run| *run != "-") {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
        for id in first..=last {
            set = set.with(&[id]);
        }
    }
    set
}

fn type_of(section: &str) -> Section<'_> {
    Section::parse(section).unwrap_or_else(|| panic!("no type for {section}"))
}

/// What the programs of the data were attached to.
fn attached_to(section: &str) -> Option<&str> {
    match section {
        "fentry" | "fexit" => Some("vfs_read"),
        "fmod_ret" => Some("security_file_open"),
        "fentry.s" | "fexit.s" | "fmod_ret.s" => Some("bpf_fentry_test1"),
        _ => type_of(section).target,
    }
}

/// All sections with the data's entries about their helpers.
fn helpers() -> Vec<(&'static str, Vec<&'static str>)> {
    let data = include_str!("data/helpers.tsv");
    lines(data)
        .flat_map(|line| line[0].split(',').map(move |section| (section, line.clone())).collect::<Vec<_>>())
        .collect()
}

#[test]
fn each_type_may_call_the_same_helpers_as_in_linux() {
    let mut wrong = Vec::new();
    for (section, line) in helpers() {
        let linux = numbers(line[1]);
        let more = MORE_HELPERS.iter().find(|entry| entry.0 == section).map_or(&[][..], |entry| entry.1);
        let kind = type_of(section).kind;
        let target = attached_to(section);
        let ours: Vec<u32> = kind.helpers.iter().filter(|id| kind.may_call(*id, target)).collect();
        let ours = HelperSet::of(&ours);
        assert!(
            more.iter().all(|id| ours.contains(*id) && !linux.contains(*id)),
            "{section}: a stale exception"
        );
        let (ours, linux): (BTreeSet<_>, BTreeSet<_>) =
            (ours.without(more).iter().collect(), linux.iter().collect());
        if ours != linux {
            let lacks: Vec<_> = linux.difference(&ours).collect();
            let adds: Vec<_> = ours.difference(&linux).collect();
            wrong.push(format!("{section}: lacks {lacks:?}, adds {adds:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn sleeping_and_gpl_helpers_are_those_of_linux() {
    for (section, line) in helpers() {
        let found = type_of(section);
        let (sleeping, gpl) = (numbers(line[2]), line[3]);
        for id in numbers(line[1]).iter() {
            let proto = found.kind.helper(id).unwrap_or_else(|| panic!("{section}: {id}"));
            assert_eq!(proto.sleeps && !found.sleepable, sleeping.contains(id), "{section}: {}", proto.name);
            if gpl != "all" {
                assert_eq!(proto.gpl_only, numbers(gpl).contains(id), "{section}: {}", proto.name);
            }
        }
    }
}

#[test]
fn types_have_the_numbers_and_results_of_linux() {
    for line in lines(include_str!("data/types.tsv")) {
        let [section, number, attach, results] = line[..] else { panic!("{line:?}") };
        let kind = type_of(section).kind;
        assert_eq!(kind.number, Some(number.parse().unwrap()), "{section}");
        // For structures of functions the number is the member's, and a control group's packets come in by default.
        if kind.name != "struct_ops" {
            assert_eq!(kind.attach.unwrap_or(0), attach.parse().unwrap(), "{section}");
        }
        let ours = match kind.results {
            Results::Any => "any".to_owned(),
            Results::Range { min, max } => format!("[{min}, {max}]"),
            Results::OfAttachment => {
                assert!(matches!(kind.context, Context::Arguments { .. }), "{section}");
                continue;
            }
        };
        assert_eq!(ours, results, "{section}");
    }
}

/// By offset: the sizes that may be read and written, and what is read.
type Accesses = BTreeMap<u32, (String, String, String)>;

/// The accesses that the tables allow, in the format of the data.
fn accesses(context: &Context, end: u32) -> Accesses {
    let mut all = Accesses::new();
    for offset in 0..end {
        let (mut reads, mut writes, mut loaded) = (String::new(), String::new(), "-");
        for size in [1, 2, 4, 8] {
            let (read, write, kind) = match context {
                Context::Struct(layout) => match layout.field(offset, size) {
                    Some(field) => {
                        let allows = |write| field.allows(offset - field.offset, size, write);
                        (allows(false), allows(true), field_kind(&field.kind))
                    }
                    None => continue,
                },
                Context::Bytes { first, bytes, writable, words, .. } => {
                    let inside = *first <= offset && offset + size <= *bytes && (!words || size == 8);
                    (inside, inside && *writable, "number")
                }
                Context::Buffer | Context::Arguments { .. } => panic!("no fixed layout"),
            };
            if offset % size != 0 {
                continue;
            }
            if read {
                reads += &size.to_string();
                loaded = kind;
            }
            if write {
                writes += &size.to_string();
            }
        }
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        if !reads.is_empty() || !writes.is_empty() {
            all.insert(offset, (or_dash(reads), or_dash(writes), loaded.to_owned()));
        }
    }
    all
}

fn field_kind(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Scalar => "number",
        FieldKind::PacketData => "data",
        FieldKind::PacketEnd => "end",
        FieldKind::PacketMeta => "meta",
        FieldKind::Struct { kind: StructKind::Sock, maybe_null: true } => "sock_or_null",
        FieldKind::Struct { kind: StructKind::SockCommon, maybe_null: true } => "sock_common_or_null",
        FieldKind::Struct { kind, maybe_null: false } => kind.name(),
        FieldKind::Memory { .. } => "tp_buffer",
        other => panic!("{other:?}"),
    }
}

/// By section or structure, what Linux accepts.
fn contexts() -> Vec<(Vec<&'static str>, Accesses)> {
    let mut all: Vec<(Vec<&str>, Accesses)> = Vec::new();
    for line in lines(include_str!("data/context.tsv")) {
        if let Some(names) = line[0].strip_prefix("= ") {
            all.push((names.split(',').collect(), Accesses::new()));
            continue;
        }
        let (run, step) = line[0].split_once('/').unwrap_or((line[0], "1"));
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
        for offset in (first..=last).step_by(step.parse().unwrap()) {
            let what = (line[1].to_owned(), line[2].to_owned(), line[3].to_owned());
            assert!(all.last_mut().unwrap().1.insert(offset, what).is_none(), "{line:?}");
        }
    }
    all
}

/// Contexts that contain machine registers; the data were taken on x86-64.
fn of_machine(section: &str) -> bool {
    ["kprobe", "uprobe", "perf_event"].iter().any(|name| section.starts_with(name))
}

#[test]
fn contexts_are_accessed_as_in_linux() {
    for (names, linux) in contexts() {
        for name in names {
            let context = match name.strip_prefix('*') {
                Some(structure) => Context::Struct(layout(structure)),
                None => type_of(name).kind.context,
            };
            if of_machine(name) && std::env::consts::ARCH != "x86_64" {
                eprintln!("SKIPPED: the registers in the context of {name}: the data are of x86-64");
                continue;
            }
            // Contexts of plain bytes extend beyond what was queried.
            let end = match (&context, linux.last_key_value()) {
                (Context::Bytes { bytes, .. }, Some((last, _))) => (*bytes).min(last + 1),
                _ => 264,
            };
            let ours = accesses(&context, end);
            let odd =
                |offset: &u32| ODD_READS.iter().any(|entry| entry.0 == name && entry.1.contains(offset));
            for offset in (0..end).filter(|offset| !odd(offset)) {
                assert_eq!(ours.get(&offset), linux.get(&offset), "{name} at {offset}: ours, Linux's");
            }
        }
    }
}

fn layout(structure: &str) -> &'static ContextLayout {
    let kinds = [StructKind::SockCommon, StructKind::Sock, StructKind::TcpSock, StructKind::FlowKeys];
    kinds
        .into_iter()
        .find(|kind| kind.name() == structure)
        .and_then(|kind| kind.layout(&skep_abi::XDP))
        .unwrap()
}

#[test]
fn every_fixed_context_was_compared() {
    let compared: Vec<&ProgramType> = contexts()
        .iter()
        .flat_map(|(names, _)| {
            names.iter().filter(|name| !name.starts_with('*')).map(|name| type_of(name).kind)
        })
        .collect();
    // A type with the same context as another that was compared.
    let same = |kind: &ProgramType| compared.iter().any(|other| other.context == kind.context);
    let left: Vec<&str> = TYPES
        .iter()
        .filter(|kind| !matches!(kind.context, Context::Arguments { .. } | Context::Buffer) && !same(kind))
        .map(|kind| kind.name)
        .collect();
    assert_eq!(left, ["lirc_mode2"], "the kernel of the data has no lirc");
}

#[test]
fn helpers_work_on_the_same_map_kinds_as_in_linux() {
    let linux: BTreeMap<&str, HelperSet> =
        lines(include_str!("data/maps.tsv")).map(|line| (line[0], numbers(line[1]))).collect();
    for kind in MapKind::ALL {
        let mut expected = linux.get(kind.name()).copied().unwrap_or_default();
        match kind {
            // Queried with maps without a timer, and with memory in place of a socket.
            MapKind::Hash | MapKind::Array | MapKind::LruHash => expected = expected.with(&[169]),
            MapKind::Sockmap | MapKind::Sockhash => expected = expected.with(&[2]),
            _ => {}
        }
        assert_eq!(map_helpers(*kind), expected, "{kind}");
        for proto in LINUX.iter().filter(|proto| proto.args.contains(&ArgKind::Map)) {
            assert_eq!(proto.works_on(*kind), expected.contains(proto.id), "{} on {kind}", proto.name);
        }
    }
    let own = HelperProto::new(1, "own", [ArgKind::Map; 5], RetKind::Void);
    assert!(MapKind::ALL.iter().all(|kind| own.works_on(*kind)), "a host's own helpers work on all maps");
}

#[test]
fn maps_hold_the_same_special_fields_as_in_linux() {
    let fields = [
        ("lock", SpecialKind::SpinLock),
        ("timer", SpecialKind::Timer),
        ("wq", SpecialKind::Workqueue),
        ("kptr", SpecialKind::Kptr { to: 1 }),
    ];
    let mut asked = 0;
    for line in lines(include_str!("data/map_fields.tsv")) {
        let kind = MapKind::ALL.iter().find(|kind| kind.name() == line[0]).unwrap();
        let linux: Vec<&str> = line[1].split_whitespace().collect();
        for (name, field) in fields {
            asked += 1;
            assert_eq!(holders(field).contains(kind), linux.contains(&name), "{name} in {kind}");
        }
    }
    assert_eq!(asked, 14 * fields.len());
}

#[test]
fn helpers_treat_packets_as_in_linux() {
    let data: BTreeMap<&str, HelperSet> =
        lines(include_str!("data/packets.tsv")).map(|line| (line[0], numbers(line[1]))).collect();
    for proto in LINUX {
        let (id, name) = (proto.id, &proto.name);
        if data["lose"].contains(id) || data["keep"].contains(id) {
            assert_eq!(proto.moves_packet, data["lose"].contains(id), "{name} moves packets");
        }
        if data["take"].contains(id) || data["refuse"].contains(id) {
            assert_eq!(proto.takes_packet(), data["take"].contains(id), "{name} takes packets");
        }
    }
}

/// An argument in the format of the data; `None` if that cannot express it.
fn argument(proto: &HelperProto, at: usize) -> Option<String> {
    let or_null = |text: &str, nullable| format!("{text}{}", if nullable { "+null" } else { "" });
    let memory = |access, bytes: &str, nullable| {
        or_null(&format!("{}{bytes}", if access == Access::Read { "memory" } else { "out" }), nullable)
    };
    Some(match proto.args[at] {
        ArgKind::None | ArgKind::Printed => return None,
        // The data were made with numbers that are 0.
        ArgKind::Anything | ArgKind::Zero => "anything".to_owned(),
        ArgKind::Scalar => "scalar".to_owned(),
        ArgKind::Context => "context".to_owned(),
        ArgKind::ContextOrNull => "context+null".to_owned(),
        ArgKind::Map => "map_ptr".to_owned(),
        // The data's maps have keys of 4 bytes and values of 64.
        ArgKind::MapKey => "memory:4".to_owned(),
        ArgKind::MapValue(access) => memory(access, ":64", false),
        ArgKind::MapValueOrNull(access) => memory(access, ":64", true),
        ArgKind::Memory { access, nullable } => memory(access, "", nullable),
        ArgKind::FixedMemory { access, bytes } => memory(access, &format!(":{bytes}"), false),
        ArgKind::Size { zero } => if zero { "size0" } else { "size" }.to_owned(),
        ArgKind::AllocationSize => "constant".to_owned(),
        ArgKind::Values => memory(Access::Read, "", true),
        ArgKind::ConstString | ArgKind::Format => "map-value".to_owned(),
        ArgKind::Record => "ringbuf_mem".to_owned(),
        ArgKind::Callback(_) => "func".to_owned(),
        ArgKind::CallbackContext => "callback-context".to_owned(),
        ArgKind::SpinLock { .. } | ArgKind::KptrField => "field".to_owned(),
        ArgKind::Timer => "map-value".to_owned(),
        ArgKind::Dynptr(_) => "dynptr".to_owned(),
        ArgKind::Struct { nullable, .. } => or_null("socket", nullable),
        ArgKind::StructOrObject { nullable, .. } => or_null("socket-or-object", nullable),
        ArgKind::Object { types, nullable } => or_null(&format!("object:{}", types[0]), nullable),
        ArgKind::PerCpuVariable => "percpu".to_owned(),
        ArgKind::Released { nullable: false } => "socket-or-object".to_owned(),
        ArgKind::Released { nullable: true } => "object+null".to_owned(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn arguments_are_those_of_linux() {
    let mut seen = HelperSet::EMPTY;
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in lines(include_str!("data/arguments.tsv")) {
        let id = line[0].parse().unwrap();
        let proto = linux_helper(id).unwrap();
        assert_eq!(proto.name, line[1]);
        seen = seen.with(&[id]);
        let (words, open) = match line[2].strip_suffix(" ...") {
            Some(words) => (words, true),
            None => (line[2], false),
        };
        let words: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).collect();
        let ours: Vec<_> = (0..5).map_while(|at| argument(proto, at)).collect();
        if words.len() != ours.len() && !open {
            wrong.push(format!("{}: {ours:?}, Linux {words:?}", proto.name));
        }
        for (at, (ours, linux)) in ours.iter().zip(&words).enumerate() {
            // The data have no type for tasks and similar objects.
            let alike = ours == linux
                || *linux == "?"
                || (ours.starts_with("object:")
                    && linux.starts_with("object")
                    && !linux.contains(':')
                    && ours.ends_with("+null") == linux.ends_with("+null"));
            if alike {
                continue;
            }
            if OTHER_ARGUMENTS.iter().any(|entry| (entry.0, entry.1) == (id, at + 1)) {
                used.insert((id, at + 1));
            } else {
                wrong.push(format!("{} argument {}: {ours}, Linux {linux}", proto.name, at + 1));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    let stale: Vec<_> = OTHER_ARGUMENTS.iter().filter(|entry| !used.contains(&(entry.0, entry.1))).collect();
    assert!(stale.is_empty(), "{stale:?}");
    let left: Vec<_> = LINUX.iter().map(|proto| proto.id).filter(|id| !seen.contains(*id)).collect();
    assert_eq!(left, [58, 77, 78, 92], "no type of the data's kernel may call these");
}

/// A result in the format of the data.
fn result(proto: &HelperProto) -> String {
    let or_null = |text: &str, maybe| format!("{text}{}", if maybe { "_or_null" } else { "" });
    match proto.ret {
        RetKind::Scalar | RetKind::Range { .. } => "scalar".to_owned(),
        // The size was 8.
        RetKind::SizeOrError => "scalar(smin=smin32=-4095,smax=smax32=8)".to_owned(),
        RetKind::MapValueOrNull => "map_value_or_null".to_owned(),
        RetKind::MapValue => "map_value(ks=8,vs=64)".to_owned(),
        RetKind::MemoryOrNull => "ringbuf_mem_or_null".to_owned(),
        RetKind::DynptrDataOrNull => "mem_or_null".to_owned(),
        RetKind::Struct { kind, maybe_null } => or_null(kind.name(), maybe_null),
        RetKind::Object { of: "task_struct", maybe_null: false } => "trusted_ptr_task_struct".to_owned(),
        RetKind::Object { of, maybe_null: true } => format!("ptr_or_null_{of}"),
        RetKind::Object { of, maybe_null: false } => format!("ptr_{of}"),
        // The variable and the field were of these types.
        RetKind::PerCpuVariable { maybe_null: true } => "ptr_or_null_rq".to_owned(),
        RetKind::PerCpuVariable { maybe_null: false } => "ptr_rq".to_owned(),
        RetKind::KptrOrNull => "ptr_or_null_task_struct".to_owned(),
        RetKind::Void | RetKind::TailCall => "?".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn results_are_those_of_linux() {
    for line in lines(include_str!("data/arguments.tsv")) {
        let proto = linux_helper(line[0].parse().unwrap()).unwrap();
        // `-`: no call of it was valid. The data's machine had one processor, so its number was known.
        if line[3] == "-" || proto.id == 8 {
            continue;
        }
        let (found, references) = line[3].split_once(" refs=").unwrap_or((line[3], ""));
        assert_eq!(result(proto), found, "{}", proto.name);
        assert_eq!(proto.acquires, !references.is_empty(), "{}", proto.name);
    }
}

#[test]
fn callbacks_and_dynptrs_are_those_of_the_documentation() {
    let arg = |id, at: usize| linux_helper(id).map(|proto| proto.args[at]);
    assert_eq!(arg(181, 1), Some(ArgKind::Callback(Callback::Loop)));
    assert_eq!(arg(164, 1), Some(ArgKind::Callback(Callback::ForEach)));
    assert_eq!(arg(170, 1), Some(ArgKind::Callback(Callback::Timer)));
    assert_eq!(arg(180, 2), Some(ArgKind::Callback(Callback::FindArea)));
    assert_eq!(arg(209, 1), Some(ArgKind::Callback(Callback::Drain)));
    assert_eq!(arg(199, 0), Some(ArgKind::Dynptr(DynptrArg::Release)));
    assert_eq!(arg(203, 0), Some(ArgKind::Dynptr(DynptrArg::Any)));
    let acquiring: Vec<u32> = LINUX.iter().filter(|proto| proto.acquires).map(|proto| proto.id).collect();
    assert_eq!(acquiring, [84, 85, 99, 131, 194]);
}
