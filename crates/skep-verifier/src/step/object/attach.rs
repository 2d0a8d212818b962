//! Attachments by the host's BTF: the arguments that programs take, and the results that they may have.
//!
//! | attachment | in BTF | arguments | results |
//! |---|---|---|---|
//! | entry of a function | the function | its parameters | 0 |
//! | return of a function | the function | its parameters, its result | 0 |
//! | a function that may be overridden | the function | its parameters, the result so far | any |
//! | tracepoint `NAME` | the type `btf_trace_NAME` | its parameters but the first | any |
//! | security hook `NAME` | the function `bpf_lsm_NAME` | its parameters, the result so far | 0 or an error |
//! | iterator `NAME` | the function `bpf_iter_NAME` | its parameters | 0 or 1 |
//! | a member of a structure of functions | the member's type | its parameters | any |
//! | a hook of the packet filter | the structure `bpf_nf_ctx` | its members | 0 or 1 |
//!
//! Arguments take 8 bytes each, structures passed by value as many 8-byte slots as they need.

use crate::domain::value::Trust;
use crate::program::violation::{Checked, Code, Violation, damaged};
use crate::step::Transfer;
use skep_abi::{AttachTo, TargetFunction};
use skep_btf::{Btf, Kind, Type};

/// Hooks whose objects are being created or destroyed.
const UNTRUSTED_HOOKS: &[&str] = &[
    "bpf_map_free",
    "bpf_map_free_security",
    "bpf_prog_free",
    "file_alloc_security",
    "file_free_security",
    "sk_alloc_security",
    "sk_free_security",
    "task_free",
];

/// Iterators whose objects are not trusted.
const UNTRUSTED_ITERATORS: &[&str] =
    &["bpf_link", "bpf_sk_storage_map", "ipv6_route", "ksym", "netlink", "sockmap", "task_file", "task_vma"];

/// Hooks that answer a question with yes (1) or no (0).
const BOOL_HOOKS: &[&str] = &["audit_rule_known", "inode_xattr_skipcap", "xfrm_state_pol_flow_match"];

/// Hooks to which Linux attaches no programs: their results have another meaning.
const CLOSED_HOOKS: &[&str] = &[
    "audit_rule_match",
    "getprocattr",
    "getselfattr",
    "inode_copy_up_xattr",
    "inode_getsecurity",
    "inode_listsecurity",
    "inode_need_killpriv",
    "ismaclabel",
    "key_getsecurity",
    "setprocattr",
    "vm_enough_memory",
];

/// The smallest negated error number.
const MIN_ERROR: i32 = -4095;

/// What a program is attached to.
#[derive(Default)]
pub(crate) struct Attached {
    /// As texts name it.
    pub(super) what: String,
    /// By 8-byte slot of the context.
    pub(super) args: Vec<Argument>,
    /// Smallest and greatest result, if not all are allowed.
    results: Option<(i32, i32)>,
    /// The result is ignored.
    returns_nothing: bool,
}

/// The content of eight bytes of the context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Argument {
    /// A number, or an address that is treated as one.
    Number,
    /// A number in a range.
    Range { min: i32, max: i32 },
    /// An object of the host.
    Object { ty: u32, trust: Trust, maybe_null: bool },
    /// Memory of an unknown size, or null: the key or the value of an element of a map.
    Memory { read_only: bool },
    /// The address of an unsupported type: its number.
    Other(u32),
}

/// How far an attachment's objects can be trusted.
#[derive(Clone, Copy)]
struct Reliance {
    trust: Trust,
    maybe_null: bool,
}

impl Transfer<'_> {
    /// Finds out what the program is attached to.
    pub(crate) fn attach(&mut self, of: AttachTo) -> Checked<()> {
        match of {
            AttachTo::Netfilter => return self.attach_to_packet_filter(),
            AttachTo::ProgramFunction => {
                let text = "the program replaces a function of another program, whose types are not given";
                return Err(Violation::new(Code::Types, text));
            }
            _ => {}
        }
        let target = self.env.program.source.target.as_deref();
        let Some(target) = target.filter(|target| !target.is_empty()) else {
            let text =
                format!("the program is attached to {}, but the section does not name it", description(of));
            return Err(Violation::new(Code::Types, text)
                .suggest("name it in the section, for example SEC(\"fentry/vfs_read\")"));
        };
        if of == AttachTo::SecurityHook && CLOSED_HOOKS.contains(&target) {
            let text = format!("programs may not be attached to the security hook {target}");
            return Err(Violation::new(Code::Context, text));
        }
        if let Some(why) = of.denied(target) {
            let text = format!("programs may not be attached to {}: {why}", named(of, target));
            return Err(Violation::new(Code::Context, text));
        }
        if self.env.is_sleepable() && !skep_abi::may_sleep_at(of, target) {
            let text = format!("a sleepable program may not be attached to {}", named(of, target));
            return Err(Violation::new(Code::Context, text).suggest(
                "remove `.s` from the section name, or attach the program to a system call or another hook",
            ));
        }
        let any_table = self.env.config.any_table;
        if matches!(of, AttachTo::StructOps | AttachTo::SecurityHook) && !any_table {
            self.check_licence(format_args!("attaching to {}", description(of)))?;
        }
        let btf = self.btf(&format!("the program is attached to {target}, which"))?;
        let (what, prototype) = find(btf, of, target, any_table)?;
        if prototype.params().any(|param| param.ty == 0) {
            let text = format!("programs may not be attached to {what}: it is variadic");
            return Err(Violation::new(Code::Context, text));
        }
        let mut args = Vec::new();
        let skipped = usize::from(of == AttachTo::Tracepoint);
        for (at, param) in prototype.params().enumerate().skip(skipped) {
            let reliance = reliance(of, target, at);
            let name = param.name().unwrap_or_default();
            // The last call has the map too, but no element.
            let there = of == AttachTo::Iterator && name == "map" && target != "bpf_map";
            let nullable = (reliance.maybe_null && !there) || name.ends_with("__nullable");
            let reliance = Reliance { maybe_null: nullable, ..reliance };
            let found = argument(btf, param.ty, reliance, of, name).map_err(damaged)?;
            args.push(if of == AttachTo::StructOps { narrowed(btf, found, target) } else { found });
            let words = btf.size(param.ty).unwrap_or(8).div_ceil(8);
            for _ in 1..words.min(MAX_WORDS) {
                args.push(Argument::Number);
            }
        }
        let result = btf.resolve(prototype.target()).map_err(damaged)?;
        let results = results(of, target, &result);
        match of {
            AttachTo::FunctionExit if result.kind != Kind::Void => {
                let reliance = Reliance { trust: Trust::Walked, maybe_null: false };
                args.push(argument(btf, prototype.target(), reliance, of, "").map_err(damaged)?);
            }
            AttachTo::FunctionModify if result.kind != Kind::Void => args.push(Argument::Number),
            AttachTo::SecurityHook => {
                if let Some((min, max)) = results {
                    args.push(Argument::Range { min, max });
                }
            }
            _ => {}
        }
        let hook = matches!(of, AttachTo::SecurityHook | AttachTo::StructOps);
        let returns_nothing = hook && result.kind == Kind::Void;
        self.types.attached = Attached { what, args, results, returns_nothing };
        Ok(())
    }

    /// The arguments of a function of a loaded program are numbers: its pointers lead to structures of this runtime's
    /// own, which have no types.
    pub(crate) fn attach_to_program(&mut self, of: AttachTo, function: &TargetFunction) -> Checked<()> {
        let what = format!("{} of {}", function.name, function.program);
        if !matches!(of, AttachTo::FunctionEntry | AttachTo::FunctionExit) {
            let text = format!("only the entry and the return of the function {what} can be watched");
            return Err(Violation::new(Code::Context, text));
        }
        if self.env.is_sleepable() {
            let text = format!("a sleepable program may not watch the function {what}");
            return Err(Violation::new(Code::Context, text));
        }
        let mut args = vec![Argument::Number; function.prototype.params.len()];
        let result = function.btf.resolve(function.prototype.result).map_err(damaged)?;
        if of == AttachTo::FunctionExit && result.kind != Kind::Void {
            args.push(Argument::Number);
        }
        self.types.attached = Attached { what, args, results: Some((0, 0)), returns_nothing: false };
        Ok(())
    }

    /// The members of `struct bpf_nf_ctx` are the arguments.
    fn attach_to_packet_filter(&mut self) -> Checked<()> {
        let what = "a hook of the packet filter";
        let id = self.host_struct("bpf_nf_ctx", what)?;
        let btf = self.btf(what)?;
        let reliance = Reliance { trust: Trust::Trusted, maybe_null: false };
        let members = btf.members(id).map_err(damaged)?;
        let args = members.map(|member| argument(btf, member.ty, reliance, AttachTo::Netfilter, ""));
        let args = args.collect::<Result<_, _>>().map_err(damaged)?;
        self.types.attached =
            Attached { what: what.to_owned(), args, results: Some((0, 1)), returns_nothing: false };
        Ok(())
    }

    /// Whether the attachment returns nothing, so that the result may be anything.
    pub(crate) fn attachment_returns_nothing(&self) -> bool {
        self.types.attached.returns_nothing
    }

    /// The smallest and the greatest result that the attachment allows; `None` for any.
    pub(crate) fn results_of_attachment(&self) -> Option<(i32, i32)> {
        self.types.attached.results
    }
}

/// The most 8-byte slots of a structure passed by value.
const MAX_WORDS: u32 = 2;

/// The name of a target, the prototype that decides its arguments, and the function with that prototype.
fn find<'a>(btf: &'a Btf, of: AttachTo, target: &str, any_table: bool) -> Checked<(String, Type<'a>)> {
    let (name, kind) = match of {
        AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify => {
            (target.to_owned(), Kind::Func)
        }
        AttachTo::Tracepoint => (format!("btf_trace_{target}"), Kind::Typedef),
        AttachTo::SecurityHook => (format!("bpf_lsm_{target}"), Kind::Func),
        AttachTo::Iterator => (format!("bpf_iter_{target}"), Kind::Func),
        AttachTo::StructOps => return find_member(btf, target, any_table),
        AttachTo::ProgramFunction | AttachTo::Netfilter => (target.to_owned(), Kind::Func),
    };
    let Some(id) = btf.find(&name, kind) else {
        let what = if kind == Kind::Func { "function" } else { "type" };
        let text =
            format!("{} needs the {what} {name}, which the given types do not have", named(of, target));
        return Err(Violation::new(Code::Types, text)
            .suggest("check the name, and give the BTF of the target system with --btf"));
    };
    let prototype = btf.prototype(id).map_err(damaged)?;
    Ok((named(of, target), prototype))
}

/// A member of a structure of functions: `tcp_congestion_ops.ssthresh`.
fn find_member<'a>(btf: &'a Btf, target: &str, any_table: bool) -> Checked<(String, Type<'a>)> {
    let missing = |text: String| {
        Violation::new(Code::Types, text)
            .suggest("name the structure and its member, for example tcp_congestion_ops.ssthresh")
    };
    let Some((of, member)) = target.split_once(['.', '/']) else {
        return Err(missing(format!("expected a structure and its member, found {target}")));
    };
    let Some(id) = btf.find(of, Kind::Struct) else {
        return Err(missing(format!("the given types have no struct {of}")));
    };
    // For each structure that programs may implement, the kernel has a structure of its own.
    if !any_table && btf.find(&format!("bpf_struct_ops_{of}"), Kind::Struct).is_none() {
        return Err(Violation::new(
            Code::Types,
            format!("programs cannot implement the functions of struct {of}"),
        ));
    }
    let found = btf.members(id).map_err(damaged)?.find(|found| found.name().is_ok_and(|name| name == member));
    let Some(found) = found else {
        return Err(missing(format!("struct {of} has no member {member}")));
    };
    // The stub functions of unset members say which arguments may be null.
    let stub = format!("{of}__{member}");
    let prototype = match btf.find(&stub, Kind::Func) {
        Some(stub) => btf.prototype(stub),
        None => btf.prototype(found.ty),
    };
    match prototype {
        Ok(prototype) => Ok((format!("{of}.{member}"), prototype)),
        Err(skep_btf::Error::WrongKind { .. }) => {
            Err(missing(format!("{of}.{member} is not a pointer to a function")))
        }
        Err(error) => Err(damaged(error)),
    }
}

/// How far the object of argument `at` can be trusted.
fn reliance(of: AttachTo, target: &str, at: usize) -> Reliance {
    match of {
        // The function may be called with anything.
        AttachTo::FunctionEntry
        | AttachTo::FunctionExit
        | AttachTo::FunctionModify
        | AttachTo::ProgramFunction => Reliance { trust: Trust::Walked, maybe_null: false },
        AttachTo::SecurityHook if UNTRUSTED_HOOKS.contains(&target) => {
            Reliance { trust: Trust::Walked, maybe_null: false }
        }
        AttachTo::Tracepoint | AttachTo::SecurityHook | AttachTo::StructOps | AttachTo::Netfilter => {
            Reliance { trust: Trust::Trusted, maybe_null: false }
        }
        AttachTo::Iterator if at > 0 && UNTRUSTED_ITERATORS.contains(&target) => {
            Reliance { trust: Trust::Walked, maybe_null: true }
        }
        // The last call of an iterator comes without an object.
        AttachTo::Iterator => Reliance { trust: Trust::Trusted, maybe_null: at > 0 },
    }
}

fn argument(
    btf: &Btf,
    ty: u32,
    reliance: Reliance,
    of: AttachTo,
    name: &str,
) -> Result<Argument, skep_btf::Error> {
    let Some(pointer) = btf.pointer(ty)? else { return Ok(Argument::Number) };
    let Reliance { trust, maybe_null } = reliance;
    let to = btf.ty(pointer.to)?;
    Ok(match to.kind {
        // Memory in user space can be copied by helpers, but not read.
        _ if pointer.is("user") => Argument::Number,
        Kind::Struct | Kind::Union if pointer.is("percpu") => {
            Argument::Object { ty: to.id, trust: Trust::PerCpu, maybe_null }
        }
        Kind::Struct | Kind::Union => Argument::Object { ty: to.id, trust, maybe_null },
        Kind::Void if of == AttachTo::Iterator => Argument::Memory { read_only: name == "key" },
        Kind::Void | Kind::Int => Argument::Number,
        _ => Argument::Other(to.id),
    })
}

/// The socket of a congestion control algorithm is one of TCP, whatever type the prototype names.
fn narrowed(btf: &Btf, argument: Argument, target: &str) -> Argument {
    let Argument::Object { ty, trust, maybe_null } = argument else { return argument };
    if !target.starts_with("tcp_congestion_ops") || btf.find("sock", Kind::Struct) != Some(ty) {
        return argument;
    }
    let ty = btf.find("tcp_sock", Kind::Struct).unwrap_or(ty);
    Argument::Object { ty, trust, maybe_null }
}

fn results(of: AttachTo, target: &str, result: &Type<'_>) -> Option<(i32, i32)> {
    match of {
        AttachTo::FunctionEntry | AttachTo::FunctionExit => Some((0, 0)),
        AttachTo::Iterator | AttachTo::Netfilter => Some((0, 1)),
        AttachTo::SecurityHook if result.kind == Kind::Void => None,
        AttachTo::SecurityHook if BOOL_HOOKS.contains(&target) => Some((0, 1)),
        AttachTo::SecurityHook => Some((MIN_ERROR, 0)),
        AttachTo::FunctionModify | AttachTo::Tracepoint | AttachTo::StructOps | AttachTo::ProgramFunction => {
            None
        }
    }
}

fn named(of: AttachTo, target: &str) -> String {
    match of {
        AttachTo::FunctionEntry | AttachTo::FunctionExit | AttachTo::FunctionModify => {
            format!("the function {target}")
        }
        AttachTo::Tracepoint => format!("the tracepoint {target}"),
        AttachTo::SecurityHook => format!("the security hook {target}"),
        AttachTo::Iterator => format!("the iterator over {target}"),
        AttachTo::StructOps | AttachTo::ProgramFunction | AttachTo::Netfilter => target.to_owned(),
    }
}

fn description(of: AttachTo) -> &'static str {
    match of {
        AttachTo::FunctionEntry => "the entry of a function",
        AttachTo::FunctionExit => "the return of a function",
        AttachTo::FunctionModify => "a function that it may override",
        AttachTo::Tracepoint => "a tracepoint",
        AttachTo::SecurityHook => "a security hook",
        AttachTo::Iterator => "an iterator",
        AttachTo::StructOps => "a member of a structure of functions",
        AttachTo::ProgramFunction => "a function of another program",
        AttachTo::Netfilter => "a hook of the packet filter",
    }
}
