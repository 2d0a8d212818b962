//! The verdict: what a program needs, in order, against what a release has.
//!
//! ```text
//!   object -> type and attachment -> target -> instructions, by slot    lacking: refused
//!   what skep's verifier says                                           refuses: refused, if all releases do
//!   doubts: features that older verifiers do not understand             any: not certain
//! ```
//!
//! A helper that the release lacks matters only where control reaches the call: objects ask for the release and call
//! what it has. The verifier's facts say what is reached. A program that it refuses has no facts; only the refused
//! instruction is known to be reached then.

use crate::documented;
use crate::feature::{self, Feature, Lack};
use crate::given::Given;
use crate::judgement::{Judgement, Obstacle, Place, Rule};
use crate::object::Object;
use crate::observed::{self, Asker, Presence};
use crate::{Version, doubts, refusals};
use skep_abi::{
    AttachTo, Context, ExternKind, MISSING_FUNCTION, Param, ParamTags, ProgramSource, UNRELOCATED,
    linux_helper,
};
use skep_btf::{Btf, Kind};
use skep_isa::{CallTarget, Imm64, Insn, Operand};
use skep_verifier::{Code, Refusal, Verified};

/// A program with everything that is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The program, linked for the release if its types are known.
    pub source: &'a ProgramSource,
    /// What its object needs as a whole, if it is from one.
    pub object: Option<&'a Object>,
    /// What is given of the kernel.
    pub given: Given<'a>,
    /// What skep's verifier says.
    pub outcome: Outcome<'a>,
    /// If it accepts the program: what it says with the release's [`abilities`](crate::abilities) only.
    pub limited: Option<&'a Refusal>,
}

/// What skep's verifier says about a program.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It is accepted.
    Accepted(&'a Verified),
    /// It is refused.
    Refused(&'a Refusal),
    /// It cannot be verified without the release's types.
    TypesMissing,
}

/// The verdict of that release on a program.
pub fn judge(program: &Program<'_>, version: Version) -> Judgement {
    let mut found = Found::default();
    let needs =
        Needs { program, version, asker: Asker::of(program.source.program_type, program.source.sleepable) };
    if let Some(object) = program.object {
        object.needs(&program.given, version, &mut found);
        object.section(&program.source.name, version, &mut found);
    }
    needs.program_type(&mut found);
    needs.target(&mut found);
    needs.functions(&mut found);
    for (slot, insn) in (0u32..).zip(&program.source.insns) {
        needs.insn(slot, insn, &mut found);
        if found.certain.is_some() {
            break;
        }
    }
    if let Some(obstacle) = found.certain {
        return Judgement::refused(obstacle);
    }
    match program.outcome {
        Outcome::Accepted(verified) => {
            if let Some(obstacle) = doubts::surely(program, verified, version) {
                return Judgement::refused(obstacle);
            }
            let doubt = found.doubt.or_else(|| doubts::about(program, verified, version));
            doubt.map_or(Judgement::ACCEPTED, Judgement::not_certain)
        }
        Outcome::Refused(refusal) => refused(program, refusal, version, found.doubt),
        Outcome::TypesMissing => Judgement::not_certain(found.doubt.unwrap_or_else(|| Obstacle {
            rule: Rule::Missing,
            text: "the program depends on the kernel's types, which were not given".to_owned(),
            since: None,
            place: None,
        })),
    }
}

/// The verdict on a program that cannot be linked for that release. `types_given`: with the release's types.
pub fn judge_unlinked(error: &skep_elf::Error, version: Version, types_given: bool) -> Judgement {
    let obstacle = |rule, since| Obstacle { rule, text: error.to_string(), since, place: None };
    match error {
        skep_elf::Error::KernelSymbol { symbol, .. } => {
            let since = documented::function(symbol);
            if since.is_some_and(|since| version < since) {
                let text = came(&format!("the kernel function {symbol}"), since);
                let rule = Rule::KernelFunction;
                return Judgement::refused(Obstacle { rule, text, since, place: None });
            }
            match types_given {
                true => Judgement::refused(obstacle(Rule::KernelType, since)),
                false => Judgement::not_certain(obstacle(Rule::Missing, since)),
            }
        }
        skep_elf::Error::UnknownSection { section, .. } => {
            let text = format!(
                "libbpf 1.0 and later know no section {section}: the loader has to set the type (--type)"
            );
            Judgement::refused(Obstacle { text, ..obstacle(Rule::ProgramType, None) })
        }
        _ => Judgement::not_certain(obstacle(Rule::Missing, None)),
    }
}

/// skep's verifier refuses.
fn refused(program: &Program<'_>, refusal: &Refusal, version: Version, doubt: Option<Obstacle>) -> Judgement {
    let obstacle = Obstacle {
        rule: Rule::Verifier,
        text: refusal.reason.clone(),
        since: None,
        place: Some(place(program.source, refusal.slot)),
    };
    // A doubt about a helper or a type makes a refusal no less certain; one about what the release understands does.
    let understood = doubt.as_ref().is_none_or(|doubt| !matches!(doubt.rule, Rule::Map | Rule::Instruction));
    match understood && refusals::are_shared(program, refusal, version) {
        true => Judgement::refused(obstacle),
        false => Judgement::not_certain(doubt.filter(|_| refusal.code == Code::Helper).unwrap_or(obstacle)),
    }
}

/// The first obstacles.
#[derive(Default)]
pub(crate) struct Found {
    certain: Option<Obstacle>,
    doubt: Option<Obstacle>,
}

impl Found {
    pub(crate) fn certain(&mut self, obstacle: Obstacle) {
        self.certain.get_or_insert(obstacle);
    }

    pub(crate) fn doubt(&mut self, obstacle: Obstacle) {
        self.doubt.get_or_insert(obstacle);
    }
}

/// A program's needs against a release.
struct Needs<'a, 'b> {
    program: &'b Program<'a>,
    version: Version,
    asker: Asker,
}

impl Needs<'_, '_> {
    fn program_type(&self, found: &mut Found) {
        let source = self.program.source;
        let kind = source.program_type;
        let obstacle = |text, since| Obstacle { rule: Rule::ProgramType, text, since, place: None };
        let name = kind.sections.first().copied().unwrap_or(kind.name);
        let Some(number) = kind.number else {
            return found.certain(obstacle(format!("Linux has no programs of type {}", kind.name), None));
        };
        let documents = [documented::program_type(number), kind.attach.and_then(documented::attach_type)];
        let since = documents.into_iter().flatten().max();
        let of_groups = kind.attach == Some(LSM_CGROUP) && since.is_some_and(|since| self.version < since);
        let needed = OPTIONS.iter().find(|(of, _)| *of == number).map(|(_, option)| *option);
        if let Some(option) = needed.filter(|option| self.has_option(option) == Some(false)) {
            return found.certain(obstacle(
                format!("programs of type {name} need {option}, which the configuration lacks"),
                None,
            ));
        }
        match observed::section(self.asker, self.version) {
            // Older kernels take it for an attachment to a hook, to which libbpf then cannot attach it.
            _ if of_groups => {
                found.certain(obstacle(came(&format!("the program type {name}"), since), since));
            }
            Presence::Absent => {
                let sleeps = if source.sleepable { " that may sleep" } else { "" };
                let text = match since.filter(|since| self.version < *since) {
                    Some(_) => came(&format!("the program type {name}"), since),
                    None => format!("there are no programs of type {name}{sleeps}"),
                };
                found.certain(obstacle(text, since));
            }
            Presence::Unknown if since.is_some_and(|since| self.version < since) => {
                found.certain(obstacle(came(&format!("the program type {name}"), since), since));
            }
            Presence::Unknown
                if source.sleepable || since.is_none() || kind.attach == Some(MODIFY_RETURN) =>
            {
                let text = format!("it is not known whether there are programs of type {name}");
                found.doubt(obstacle(text, since));
            }
            Presence::Present | Presence::Unknown => {}
        }
    }

    /// The function, tracepoint, hook or iterator that the program is for must be among the release's types.
    fn target(&self, found: &mut Found) {
        let source = self.program.source;
        let (Some(types), Some(target)) = (self.program.given.types, source.target.as_deref()) else {
            return;
        };
        let Context::Arguments { of } = source.program_type.context else { return };
        let (name, kind) = match of {
            AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify => {
                (target.to_owned(), Kind::Func)
            }
            AttachTo::Tracepoint => (format!("btf_trace_{target}"), Kind::Typedef),
            AttachTo::SecurityHook => (format!("bpf_lsm_{target}"), Kind::Func),
            AttachTo::Iterator => (format!("bpf_iter_{target}"), Kind::Func),
            AttachTo::StructOps => (target.split('.').next().unwrap_or_default().to_owned(), Kind::Struct),
            _ => return,
        };
        let missing = |text: String| Obstacle { rule: Rule::KernelType, text, since: None, place: None };
        if types.find(&name, kind).is_none() {
            let text = format!("the given types have no {name}, which a program for {target} needs");
            return found.certain(missing(text));
        }
        if !matches!(of, AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify) {
            return;
        }
        let is_of_security = target.starts_with("security_");
        let lacks_injection = self.has_option(ERROR_INJECTION) == Some(false);
        if of == AttachTo::FunctionModify
            && self.version <= ONLY_INJECTED
            && !is_of_security
            && lacks_injection
        {
            let text =
                format!("only kernels with {ERROR_INJECTION} let programs change what {target} returns");
            return found.certain(Obstacle { rule: Rule::Missing, text, since: None, place: None });
        }
        if target.starts_with(SYSTEM_CALL) && (source.sleepable || of == AttachTo::FunctionModify) {
            let text = format!("only kernels with {ERROR_INJECTION} take such a program at a system call");
            let obstacle = Obstacle { rule: Rule::Missing, text, since: None, place: None };
            match self.has_option(ERROR_INJECTION) {
                Some(true) => {}
                Some(false) => found.certain(obstacle),
                None => found.doubt(obstacle),
            }
        }
        match self.program.given.symbols {
            Some(symbols) if !symbols.has(target) => {
                let text =
                    format!("the given symbols have no {target}: the kernel's build inlined or renamed it");
                found.certain(missing(text));
            }
            None if !KEPT.iter().any(|kept| target.starts_with(kept)) => {
                let text = format!("it is not known whether the kernel's build inlined or renamed {target}");
                found.doubt(Obstacle { rule: Rule::Missing, text, since: None, place: None });
            }
            _ => {}
        }
    }

    /// Whether the kernel was built with that option, if its configuration is given.
    fn has_option(&self, option: &str) -> Option<bool> {
        self.program.given.config.map(|config| config.has(option))
    }

    fn functions(&self, found: &mut Found) {
        let source = self.program.source;
        let is_memory = |ty| source.btf.as_deref().is_some_and(|types| is_memory(types, ty));
        for function in &source.functions[1.min(source.functions.len())..] {
            for feature in feature::of_function(function, is_memory) {
                self.feature(feature, function.start, true, found);
            }
            let Some(prototype) = function.prototype.as_ref().filter(|_| function.global) else { continue };
            let mut doubt = |text: &str| {
                let place = Some(place(source, function.start));
                found.doubt(Obstacle { rule: Rule::Instruction, text: text.to_owned(), since: None, place });
            };
            if prototype.result == 0 {
                doubt("a global function returns nothing");
            }
            // Tags say what a parameter is.
            let tags_count = |param: &Param| self.version >= NEAREST && param.tags != ParamTags::default();
            if prototype.params.iter().any(|param| !tags_count(param) && self.is_unclear(param.ty)) {
                doubt(
                    "a global function has a pointer to an object of the kernel, or of unknown size, as parameter",
                );
            }
            if self.version < UNREACHED_GLOBALS && self.reaches(function.start) == Some(false) {
                doubt("a global function is never called, which Linux verifies before 6.8");
            }
        }
    }

    /// Whether a parameter of that type is a pointer to an object of the kernel, or of unknown size.
    fn is_unclear(&self, ty: u32) -> bool {
        let Some(types) = self.program.source.btf.as_deref().filter(|types| is_memory(types, ty)) else {
            return false;
        };
        let Some(target) = types.resolve(ty).ok().and_then(|ty| types.resolve(ty.target()).ok()) else {
            return true;
        };
        let name = target.name().unwrap_or_default();
        let is_plain = !name.is_empty() && !matches!(target.kind, Kind::Void | Kind::Ptr);
        if self.version < UNREACHED_GLOBALS && !is_plain {
            return true;
        }
        let of_kernel =
            self.program.given.types.is_some_and(|kernel| {
                target.kind == Kind::Struct && kernel.find(name, Kind::Struct).is_some()
            });
        of_kernel || (target.kind != Kind::Void && types.size(target.id).is_err())
    }

    fn insn(&self, slot: u32, insn: &Insn, found: &mut Found) {
        let reached = self.reaches(slot);
        match insn {
            Insn::Call { target: CallTarget::Helper(number) } => self.helper(slot, *number, reached, found),
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                self.kernel_function(slot, *id as u32, found)
            }
            Insn::LoadImm64 { value: Imm64::Variable { id, .. }, .. } => {
                let named = self.program.given.types.and_then(|types| types.ty(*id as u32).ok());
                if named.is_some_and(|ty| ty.kind == Kind::Func) {
                    self.feature(feature::of_kernel_function_address(), slot, true, found);
                }
            }
            _ => {}
        }
        if matches!(insn, Insn::Store { src: Operand::Imm(_), .. }) && self.is_of_context(slot, insn) {
            self.feature(feature::of_context_constant(), slot, true, found);
        }
        if let Some((field, since)) =
            self.context_field(slot, insn).filter(|(_, since)| self.version < *since)
        {
            found.certain(Obstacle {
                rule: Rule::Instruction,
                text: came(&format!("the field {field} of the context"), Some(since)),
                since: Some(since),
                place: Some(place(self.program.source, slot)),
            });
        }
        if let Some(feature) = feature::of_insn(insn) {
            self.feature(feature, slot, reached == Some(true), found);
        }
    }

    /// Whether a reached access is to the context.
    fn is_of_context(&self, slot: u32, insn: &Insn) -> bool {
        let Outcome::Accepted(verified) = self.program.outcome else { return false };
        let fact = verified.facts().get(slot as usize).filter(|fact| fact.reached);
        let is_rewritten = verified.insns().get(slot as usize) != Some(insn);
        fact.is_some_and(|fact| is_rewritten || fact.foreign.is_some())
    }

    /// The field of the context that a reached access is to, if it is newer than the first release of the tables.
    ///
    /// The verifier rewrites such accesses, or notes the field if skep's own contexts lack it.
    fn context_field(&self, slot: u32, insn: &Insn) -> Option<(&'static str, Version)> {
        let Outcome::Accepted(verified) = self.program.outcome else { return None };
        let fact = verified.facts().get(slot as usize).filter(|fact| fact.reached)?;
        let (Insn::Load { size, offset, .. } | Insn::Store { size, offset, .. }) = *insn else { return None };
        let kind = self.program.source.program_type;
        let Context::Struct(layout) = kind.context else { return None };
        let is_rewritten = verified.insns().get(slot as usize) != Some(insn);
        let rewritten = || layout.field(u32::try_from(offset).ok()?, size.bytes()).filter(|_| is_rewritten);
        let field = fact.foreign.or_else(rewritten)?;
        Some((field.name, documented::context_field(layout.name, field.name)?))
    }

    /// Whether control reaches the slot; `None` if that is not known.
    fn reaches(&self, slot: u32) -> Option<bool> {
        match self.program.outcome {
            Outcome::Accepted(verified) => verified.facts().get(slot as usize).map(|fact| fact.reached),
            Outcome::Refused(refusal) if refusal.slot == slot => Some(true),
            _ => None,
        }
    }

    fn feature(&self, feature: &Feature, slot: u32, reached: bool, found: &mut Found) {
        if self.version >= feature.since {
            return;
        }
        let obstacle = Obstacle {
            rule: Rule::Instruction,
            text: came(feature.what, Some(feature.since)),
            since: Some(feature.since),
            place: Some(place(self.program.source, slot)),
        };
        match feature.lack {
            Lack::Refused => found.certain(obstacle),
            Lack::RefusedIfReached if reached => found.certain(obstacle),
            Lack::RefusedIfReached if self.reaches(slot) == Some(false) => {}
            Lack::RefusedIfReached | Lack::Doubtful => found.doubt(obstacle),
        }
    }

    fn helper(&self, slot: u32, number: u32, reached: Option<bool>, found: &mut Found) {
        if matches!(number, UNRELOCATED | MISSING_FUNCTION) || reached == Some(false) {
            return;
        }
        let since = documented::helper(number);
        let is_new = since.is_some_and(|since| self.version < since);
        if number == KPTR_XCHG && !is_new && self.version < KEPT_REFERENCES && reached == Some(true) {
            let place = Some(place(self.program.source, slot));
            let text = "a kept reference is declared otherwise before Linux 6.4".to_owned();
            let since = Some(KEPT_REFERENCES);
            found.certain(Obstacle { rule: Rule::Map, text, since, place });
        }
        let presence =
            if is_new { Presence::Absent } else { observed::helper(self.asker, number, self.version) };
        if presence == Presence::Present {
            return;
        }
        let source = self.program.source;
        let limited = source.program_type.limited.iter().any(|(id, _)| *id == number);
        let barred = source.program_type.barred.iter().any(|(id, _)| *id == number);
        if (limited || barred) && !is_new && self.version >= NEAREST {
            // It depends on the target, and skep's verifier knows the targets.
            return;
        }
        let presence = match presence {
            Presence::Absent if !is_new && limited => Presence::Unknown,
            other => other,
        };
        let name =
            linux_helper(number).map_or_else(|| number.to_string(), |proto| format!("bpf_{}", proto.name));
        let kind = source.program_type.name;
        let text = match presence {
            _ if is_new => came(&format!("the helper {name}"), since),
            Presence::Absent => format!("programs of type {kind} may not call the helper {name}"),
            _ => format!("it is not known whether programs of type {kind} may call the helper {name}"),
        };
        let obstacle = Obstacle { rule: Rule::Helper, text, since, place: Some(place(source, slot)) };
        match (presence, reached) {
            (Presence::Absent, Some(true)) => found.certain(obstacle),
            _ => found.doubt(obstacle),
        }
    }

    fn kernel_function(&self, slot: u32, id: u32, found: &mut Found) {
        let source = self.program.source;
        let is_it = |kind: &ExternKind| *kind == ExternKind::Function(id);
        let Some(symbol) = source.externs.iter().find(|symbol| is_it(&symbol.kind)) else { return };
        let name = &*symbol.name;
        let since = documented::function(name);
        let is_new = since.is_some_and(|since| self.version < since);
        let presence = match observed::function(self.asker, name, self.version) {
            _ if is_new => Presence::Absent,
            Some(presence) => presence,
            None => Presence::Unknown,
        };
        let kind = source.program_type.name;
        let text = match presence {
            Presence::Present => return,
            Presence::Absent if is_new => came(&format!("the kernel function {name}"), since),
            Presence::Absent => format!("programs of type {kind} may not call the kernel function {name}"),
            Presence::Unknown => {
                format!("it is not known whether programs of type {kind} may call the kernel function {name}")
            }
        };
        let obstacle = Obstacle { rule: Rule::KernelFunction, text, since, place: Some(place(source, slot)) };
        match presence {
            Presence::Absent => found.certain(obstacle),
            _ => found.doubt(obstacle),
        }
    }
}

pub(crate) fn came(what: &str, since: Option<Version>) -> String {
    since.map_or_else(|| format!("there is no {what}"), |since| format!("{what} came with Linux {since}"))
}

const LSM_CGROUP: u32 = 43;
const MODIFY_RETURN: u32 = 26;
const KPTR_XCHG: u32 = 194;

/// Since then `__kptr` stands for a pointer that is a reference; before it was `__kptr_ref`.
const KEPT_REFERENCES: Version = Version::new(6, 4);

/// The release that skep's tables are of.
const NEAREST: Version = Version::new(6, 12);

/// Global functions that nothing calls are left out since then.
const UNREACHED_GLOBALS: Version = Version::new(6, 8);

/// Program types that kernels have only if they were built with an option.
const OPTIONS: &[(u32, &str)] = &[
    (8, "CONFIG_CGROUP_BPF"),
    (9, "CONFIG_CGROUP_BPF"),
    (15, "CONFIG_CGROUP_BPF"),
    (18, "CONFIG_CGROUP_BPF"),
    (20, "CONFIG_BPF_LIRC_MODE2"),
    (23, "CONFIG_CGROUP_BPF"),
    (25, "CONFIG_CGROUP_BPF"),
    (29, "CONFIG_BPF_LSM"),
    (32, "CONFIG_NETFILTER_BPF_LINK"),
];

/// The option with which programs may change what system calls return.
const ERROR_INJECTION: &str = "CONFIG_FUNCTION_ERROR_INJECTION";

/// Until then at least, that option alone opened functions other than those of security to change.
const ONLY_INJECTED: Version = Version::new(6, 1);

/// How the names of functions begin that no build inlines.
const KEPT: &[&str] = &[SYSTEM_CALL, "security_", "bpf_fentry_test", "bpf_modify_return_test"];

/// How the names of system calls begin in the kernel's types.
const SYSTEM_CALL: &str = "__x64_sys_";

/// Whether a parameter of that type is a pointer to memory, and not the context of a program.
fn is_memory(types: &Btf, ty: u32) -> bool {
    let resolved = |id| types.resolve(id).ok();
    let Some(pointer) = resolved(ty).filter(|ty| ty.kind == Kind::Ptr) else { return false };
    let Some(target) = resolved(pointer.target()) else { return false };
    let name = target.name().unwrap_or_default();
    !CONTEXTS.contains(&name)
}

/// Structures that are contexts of programs.
const CONTEXTS: &[&str] = &[
    "__sk_buff",
    "xdp_md",
    "bpf_sock_addr",
    "bpf_sock",
    "bpf_sock_ops",
    "sk_msg_md",
    "pt_regs",
    "user_pt_regs",
    "bpf_user_pt_regs_t",
    "bpf_perf_event_data",
    "bpf_raw_tracepoint_args",
    "bpf_cgroup_dev_ctx",
    "bpf_sysctl",
    "bpf_sockopt",
    "sk_reuseport_md",
    "bpf_sk_lookup",
];

/// An instruction, with its source line.
pub(crate) fn place(source: &ProgramSource, slot: u32) -> Place {
    let after = source.lines.partition_point(|line| line.slot <= slot);
    let line = source.lines[..after].last();
    Place {
        slot,
        insn: source.insns.get(slot as usize).map(ToString::to_string).unwrap_or_default(),
        file: line.map(|line| line.file.clone()),
        line: line.map(|line| line.line),
        source: line.map(|line| line.text.clone()).filter(|text| !text.is_empty()),
    }
}
