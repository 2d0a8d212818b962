//! Which refusals of skep's verifier a release shares.
//!
//! Both verifiers demand the same of a program, apart from the differences that the book lists and from what changed
//! with releases. So a refusal is the release's too, unless it is one of those that are named here. skep's verifier was
//! compared with Linux 6.12: what it says of older releases is doubted for whole subjects (callbacks, dynptrs,
//! functions of the kernel), and what it says of later ones where they are known to allow more.

use crate::judge::Program;
use crate::{Object, Version, doubts};
use skep_abi::{AttachTo, Context, MISSING_FUNCTION, MapKind, ProgramSource, UNRELOCATED, linux_helper};
use skep_isa::{AtomicOp, CallTarget, Imm64, Insn};
use skep_verifier::{Code, Refusal};

/// Whether the release refuses what skep's verifier refuses so.
pub(crate) fn are_shared(program: &Program<'_>, refusal: &Refusal, version: Version) -> bool {
    let source = program.source;
    let insn = source.insns.get(refusal.slot as usize);
    let case = Case { source, object: program.object, refusal, version, insn };
    if matches!(case.helper(), Some(MISSING_FUNCTION | UNRELOCATED)) {
        return true;
    }
    !case.is_of_changed_subject() && !case.may_be_forgotten() && !case.is_difference() && case.holds()
}

/// Whether the release surely refuses what skep's verifier refuses so without its abilities, though it accepts with
/// them: no release sees it, or its verifier walks a way that later ones know to be impossible.
pub(crate) fn are_known(source: &ProgramSource, refusal: &Refusal, version: Version) -> bool {
    let insn = source.insns.get(refusal.slot as usize);
    let case = Case { source, object: None, refusal, version, insn };
    if version > COMPARED {
        return false;
    }
    match refusal.code {
        Code::Misaligned => true,
        Code::Context => case.says("expected the unmoved context"),
        Code::PointerArithmetic if case.says("may not be subtracted from addresses of the stack") => true,
        // A constant is known to all.
        Code::PointerArithmetic => case.says("is too large to add") && !refusal.reason.starts_with("scalar("),
        Code::Argument => case.says("expects an address that is a multiple of"),
        // Older verifiers walk both ways of comparisons that later ones decide. What the stack holds may be known to
        // them.
        Code::Uninitialised | Code::ReadOnly => {
            let loads = |insn: &Insn| matches!(insn, Insn::Load { .. });
            version < COMPARED_NUMBERS
                && !case.any(loads)
                && source.functions.len() <= 1
                && !case.says("stack bytes")
        }
        Code::MaybeNull => version < EQUAL_OBJECTS && case.says("sock_or_null("),
        _ => false,
    }
}

/// A refusal, and the release that is asked.
struct Case<'a> {
    source: &'a ProgramSource,
    object: Option<&'a Object>,
    refusal: &'a Refusal,
    version: Version,
    insn: Option<&'a Insn>,
}

impl Case<'_> {
    fn since(&self, major: u16, minor: u16) -> bool {
        self.version >= Version::new(major, minor)
    }

    fn says(&self, text: &str) -> bool {
        self.refusal.reason.contains(text)
    }

    fn any(&self, holds: impl Fn(&Insn) -> bool) -> bool {
        self.source.insns.iter().any(holds)
    }

    /// The helper that the refused instruction calls.
    fn helper(&self) -> Option<u32> {
        match self.insn {
            Some(Insn::Call { target: CallTarget::Helper(number) }) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is about something whose rules changed with releases.
    fn is_of_changed_subject(&self) -> bool {
        let old = !self.since(6, 12)
            && (self.any(takes_function) || self.any(makes_dynptr) || self.any(calls_kernel));
        // Records of ring buffers were not followed, and packets were not known to move in functions.
        let records = !self.since(6, 1) && self.helper().is_some_and(|number| RINGBUFS.contains(&number));
        let stale = !self.since(6, 12) && self.says("found scalar()") && self.source.functions.len() > 1;
        old || records || stale || doubts::loads_in_functions(self.source)
    }

    /// Whether it may be about bounds that skep's verifier forgot and the release's does not.
    fn may_be_forgotten(&self) -> bool {
        let is_of_bounds =
            matches!(self.refusal.code, Code::OutOfBounds | Code::PointerArithmetic | Code::Argument);
        is_of_bounds && (self.refusal.walked > SMALL || self.any(|insn| matches!(insn, Insn::MayGoto { .. })))
    }

    /// Whether it is among the differences from Linux's verifiers, or new in later releases or in 6.12.
    fn is_difference(&self) -> bool {
        let differs = DIFFERENCES.iter().any(|text| self.says(text));
        let later = self.version > NEAREST && self.is_of_element();
        let newer = self.version < NEAREST && NEWER.iter().any(|text| self.says(text));
        let nothing =
            matches!(self.insn, Some(Insn::Call { target: CallTarget::Local(_) })) && self.says("found 0");
        // Owned objects are taken for borrowed ones, and cookies are checked where they are thrown.
        let owned = self.says("list or tree owns") && self.says("found alloc_ptr_");
        let cookie = self.says("the cookie of bpf_throw") && self.source.functions.len() > 1;
        differs || later || newer || owned || cookie || nothing
    }

    /// Whether it is about an element that may not be there, of an array: elements at constant keys are there.
    fn is_of_element(&self) -> bool {
        let Some((_, rest)) = self.refusal.reason.split_once("map_value_or_null(map=") else { return false };
        let digits = rest.split(|character: char| !character.is_ascii_digit()).next();
        let index = digits.and_then(|digits| digits.parse().ok());
        let kind = self.object.zip(index).and_then(|(object, index)| object.map_kind(index));
        kind.is_none_or(|kind| matches!(kind, MapKind::Array | MapKind::PercpuArray))
    }

    fn holds(&self) -> bool {
        let kind = self.source.program_type.number;
        match self.refusal.code {
            // It matters only where a path leads.
            Code::Structure => !self.says("division by the constant 0"),
            Code::Uninitialised => !self.says("moved the packet") || self.since(6, 12),
            // Maps' own structures may be read.
            Code::OutOfBounds if self.says("map_ptr(") => matches!(self.insn, Some(Insn::Store { .. })),
            Code::OutOfBounds => self.since(6, 12) || !self.says("pkt(id="),
            // Nothing may be added to the address of a map.
            Code::PointerArithmetic if self.says("map_ptr(") => false,
            Code::PointerArithmetic => self.since(6, 1) || !self.says("flow_keys("),
            Code::PointerLeak => !matches!(self.insn, Some(Insn::Atomic { .. })),
            Code::Misaligned => true,
            // What iterators find may be known not to be null.
            Code::MaybeNull => self.version <= NEAREST || !self.iterates(),
            Code::Context => match kind {
                Some(LSM) => self.since(6, 12),
                Some(KPROBE) => self.version <= NEAREST,
                _ => true,
            },
            // Probes at user space may write registers.
            Code::ReadOnly if kind == Some(KPROBE) => self.version <= NEAREST,
            Code::ReadOnly => !writes_host(self.source) && (self.since(6, 1) || self.helper().is_none()),
            Code::Argument => self.is_wrong_argument(),
            Code::Stack => !self.says("in a chain of calls") || !self.has_more_stack(),
            Code::Resource => self.is_wrong_resource(),
            Code::Return => self.since(6, 12) || kind != Some(LSM),
            // Linux takes progress in an inner call for progress of the loop around it.
            Code::Loop => !self.any(is_atomic) && !self.iterates() && !self.any(takes_function),
            Code::Helper => self.is_wrong_helper(),
            Code::Types => OWN_TYPES.iter().any(|text| self.says(text)),
            _ => false,
        }
    }

    fn is_wrong_argument(&self) -> bool {
        let of_kernel = self.insn.is_some_and(calls_kernel);
        if of_kernel && ARGUMENTS_OF_KERNEL.iter().any(|text| self.says(text)) {
            return false;
        }
        // Each release considers more objects alive.
        let alive = self.says("known to be alive");
        match self.helper() {
            Some(KPTR_XCHG | PER_CPU_PTR | THIS_CPU_PTR) => self.since(6, 12),
            _ => !alive || self.version <= NEAREST,
        }
    }

    fn is_wrong_resource(&self) -> bool {
        // At a throw Linux checks sections only in the outermost frame, and forgets that global functions may throw.
        let throws = self.says("bpf_throw");
        let is_checked = self.insn.is_some_and(calls_kernel)
            && (!self.says("section") || self.source.functions.len() <= 1);
        // Later releases allow more functions in sections.
        (!throws || is_checked) && (self.version <= NEAREST || !self.says("is verified on its own"))
    }

    fn is_wrong_helper(&self) -> bool {
        let restricted = self.helper().and_then(linux_helper).is_some_and(|proto| proto.gpl_only);
        let licence = self.says("under a GPL-compatible licence");
        let of_target = self.says(" may not call ") && self.source.target.is_some();
        (restricted && !self.source.gpl_compatible)
            || (self.since(6, 12) && (licence || HELPERS.iter().any(|text| self.says(text))))
            || (self.version == NEAREST && of_target)
    }

    /// Whether the release counts less of the stack, or gives each function its own.
    fn has_more_stack(&self) -> bool {
        let number = self.source.program_type.number;
        let own = self.since(6, 13) && number.is_some_and(|number| OWN_STACKS.contains(&number));
        let kept = |insn: &Insn| match insn {
            Insn::Call { target: CallTarget::Helper(number) } => FASTCALLS.contains(number),
            insn => calls_kernel(insn),
        };
        own || (self.since(6, 12) && self.any(kept))
    }

    /// Whether it calls a function of the kernel that takes the next item of an iterator.
    fn iterates(&self) -> bool {
        self.source
            .externs
            .iter()
            .any(|symbol| symbol.name.starts_with("bpf_iter_") && symbol.name.ends_with("_next"))
    }
}

/// A refusal after more instructions than this may be for a loss of precision.
const SMALL: u64 = 1000;

/// The release that skep's verifier was compared with.
pub(crate) const NEAREST: Version = Version::new(6, 12);

/// The last release that was compared as a whole.
const COMPARED: Version = Version::new(6, 18);

/// Two numbers that are no constants are compared since then.
const COMPARED_NUMBERS: Version = Version::new(6, 8);

/// A pointer that equals an object is not null since then.
const EQUAL_OBJECTS: Version = Version::new(6, 2);

// Program types.
const KPROBE: u32 = 2;
const LSM: u32 = 29;
/// Those whose functions may have stacks of their own: kprobe, tracepoint, perf_event, raw_tracepoint, tracing.
const OWN_STACKS: &[u32] = &[2, 5, 7, 17, 24, 26, 27];

// Helpers.
const PER_CPU_PTR: u32 = 153;
const THIS_CPU_PTR: u32 = 154;
const KPTR_XCHG: u32 = 194;
const RINGBUFS: &[u32] = &[130, 131, 132, 133];
/// Helpers around which compilers need not save registers.
const FASTCALLS: &[u32] = &[8];
/// Helpers that work on dynptrs.
pub(crate) const DYNPTRS: &[u32] = &[197, 198, 199, 200, 201, 202, 203, 209];

/// What skep refuses and Linux takes, as the book's list of differences has it.
const DIFFERENCES: &[&str] = &[
    // Memory that a helper made for one call.
    "found scalar(umin=1)",
    // A global function that throws.
    "which may end the program",
    // Objects that programs allocate.
    "expects the start of an object",
    "expects an object like alloc_percpu",
    "may be null: rcu_ptr_or_null_",
];

/// What only 6.12 and later refuse, or know.
const NEWER: &[&str] = &[
    "it never returns",
    "the exception callback",
    "which must be read with 8 bytes",
    "rcu_ptr_",
    "trusted_ptr_",
    // Copies of numbers were confused where paths meet.
    "that start somewhere in",
];

/// What is said about types that does not depend on which types were given.
const OWN_TYPES: &[&str] =
    &["the section does not name it", "of the program's own BTF", "is declared to hold objects of"];

/// Arguments of functions of the kernel that skep refuses and Linux takes.
const ARGUMENTS_OF_KERNEL: &[&str] =
    &["bpf_sk_assign_tcp_reqsk expects", "bpf_rdonly_cast expects", "found trusted_ptr_bpf_map("];

/// What no helper and no function of the kernel allows, whatever the program's type.
const HELPERS: &[&str] = &["may not change the socket map", "that are bound to a device"];

fn takes_function(insn: &Insn) -> bool {
    matches!(insn, Insn::LoadImm64 { value: Imm64::Function(_), .. })
}

fn makes_dynptr(insn: &Insn) -> bool {
    matches!(insn, Insn::Call { target: CallTarget::Helper(number) } if DYNPTRS.contains(number))
}

fn calls_kernel(insn: &Insn) -> bool {
    matches!(insn, Insn::Call { target: CallTarget::Kfunc { .. } })
}

fn is_atomic(insn: &Insn) -> bool {
    matches!(insn, Insn::Atomic { op, .. } if !matches!(op, AtomicOp::Add { fetch: false }))
}

/// Whether it implements members of structures, which may write objects of the kernel.
fn writes_host(source: &ProgramSource) -> bool {
    matches!(source.program_type.context, Context::Arguments { of: AttachTo::StructOps })
}
