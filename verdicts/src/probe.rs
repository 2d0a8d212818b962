//! What a kernel lets each type of program call, asked one call at a time: the observed tables of `skep-kernels`.
//!
//! ```text
//!   trivial program of each section    -> the sections that this kernel has
//!   call of each helper, each function -> refused because the type may not call it, or for another reason
//! ```
//!
//! The registers of such a call were never written, so every program is refused. The reason says whether the type may
//! call the helper at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use skep_isa::{assemble, encode_bytes};

use crate::answer::{Answer, answers};
use crate::section::{STRUCT, Section};

/// The sections that are asked about: one for each type, attachment and permission to sleep.
const SECTIONS: &[&str] = &[
    "socket",
    "kprobe",
    "kprobe.multi",
    "kprobe.session",
    "uprobe.multi",
    "uprobe.s",
    "uprobe.multi.s",
    "tc",
    "tcx/ingress",
    "tcx/egress",
    "netkit/primary",
    "netkit/peer",
    "action",
    "tp",
    "xdp",
    "xdp/devmap",
    "xdp/cpumap",
    "perf_event",
    "cgroup_skb/ingress",
    "cgroup_skb/egress",
    "cgroup/sock_create",
    "cgroup/sock_release",
    "cgroup/post_bind4",
    "cgroup/post_bind6",
    "lwt_in",
    "lwt_out",
    "lwt_xmit",
    "lwt_seg6local",
    "sockops",
    "sk_skb",
    "sk_skb/stream_parser",
    "sk_skb/stream_verdict",
    "sk_skb/verdict",
    "cgroup/dev",
    "sk_msg",
    "raw_tp",
    "raw_tp.w",
    "cgroup/bind4",
    "cgroup/bind6",
    "cgroup/connect4",
    "cgroup/connect6",
    "cgroup/connect_unix",
    "cgroup/sendmsg4",
    "cgroup/sendmsg6",
    "cgroup/sendmsg_unix",
    "cgroup/recvmsg4",
    "cgroup/recvmsg6",
    "cgroup/recvmsg_unix",
    "cgroup/getpeername4",
    "cgroup/getpeername6",
    "cgroup/getpeername_unix",
    "cgroup/getsockname4",
    "cgroup/getsockname6",
    "cgroup/getsockname_unix",
    "sk_reuseport",
    "sk_reuseport/migrate",
    "flow_dissector",
    "cgroup/sysctl",
    "cgroup/getsockopt",
    "cgroup/setsockopt",
    "tp_btf/sched_switch",
    "fentry/bpf_fentry_test1",
    "fexit/bpf_fentry_test1",
    "fmod_ret/bpf_modify_return_test",
    "fentry.s/bpf_fentry_test1",
    "fexit.s/bpf_fentry_test1",
    "fmod_ret.s/bpf_modify_return_test",
    "iter/task",
    "iter.s/task",
    "struct_ops/tcp_congestion_ops.ssthresh",
    "lsm/file_open",
    "lsm.s/file_open",
    "lsm_cgroup/socket_bind",
    "sk_lookup",
    "syscall",
    "netfilter",
];

/// What begins the line of a guest that names the kernel's release.
const RELEASE: &str = "RELEASE ";

/// A call that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Helper(u32),
    Function(String),
}

/// Questions for a kernel: every section, with every helper up to the last and every one of these functions.
///
/// # Errors
///
/// An instruction could not be encoded.
pub fn questions(last_helper: u32, functions: &[String]) -> Result<String, String> {
    let mut text = String::new();
    for section in SECTIONS {
        let mut ask = |name: &str, symbol: Option<&str>, code: &str| -> Result<(), String> {
            let insns = assemble(code).map_err(|error| format!("{code}: {}", error.problem))?;
            let code = encode_bytes(&insns).map_err(|error| error.to_string())?;
            question(&mut text, section, name, symbol, &code).ok_or(format!("section {section} is unknown"))
        };
        ask("0", None, "r0 = 0\nexit")?;
        ask("1", None, "r0 = 1\nexit")?;
        for helper in 1..=last_helper {
            ask(&format!("helper {helper}"), None, &format!("call {helper}\nexit"))?;
        }
        for function in functions {
            ask(&format!("function {function}"), Some(function), "call kfunc[0]\nexit")?;
        }
    }
    Ok(text)
}

fn question(text: &mut String, name: &str, what: &str, symbol: Option<&str>, code: &[u8]) -> Option<()> {
    let section = Section::of(name)?;
    let flags = if section.sleepable { 16 } else { 0 };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "P {name} {what}\nt {} {} {flags}\nl GPL", section.kind, section.attach);
    if let Some(target) = &section.target {
        let _ = match target.name.split_once('.').filter(|_| target.kind == STRUCT) {
            Some((of, member)) => writeln!(text, "S {of} {member}"),
            None => writeln!(text, "B {} {}", target.kind, target.name),
        };
    }
    if let Some(symbol) = symbol {
        let _ = writeln!(text, "k {symbol}");
    }
    let _ = write!(text, "v 1 0\ni ");
    code.iter().for_each(|byte| {
        let _ = write!(text, "{byte:02x}");
    });
    text.push_str("\n.\n");
    Some(())
}

/// The table that a guest's output gives.
///
/// # Errors
///
/// The output lacks the release or an answer.
pub fn table(output: &str) -> Result<String, String> {
    let release = output.lines().find_map(|line| line.trim_end().strip_prefix(RELEASE));
    let release = release.ok_or("the guest named no release")?;
    let mut loads: BTreeSet<&str> = BTreeSet::new();
    let mut calls: BTreeMap<&str, BTreeSet<Call>> = BTreeMap::new();
    let all = answers(output);
    for answer in &all {
        let Some((section, what)) = answer.name.split_once(' ') else { continue };
        if !SECTIONS.contains(&section) {
            return Err(format!("an answer about the unknown section {section}"));
        }
        let call = match what.split_once(' ') {
            None if reaches_the_walk(answer) => {
                loads.insert(section);
                continue;
            }
            Some(("helper", number)) => number.parse().ok().map(Call::Helper),
            Some((_, name)) => Some(Call::Function(name.to_owned())),
            None => None,
        };
        if let Some(call) = call.filter(|_| may_call(answer)) {
            calls.entry(section).or_default().insert(call);
        }
    }
    let mut text = format!(
        "# Observed in Linux {release}, x86-64, as root in a virtual machine, by loading small programs:\n\
         # cargo xtask verdicts --probe crates/skep-kernels/data/kfuncs.tsv --vm VMLINUZ --out FILE\n\
         # `section`: sections whose programs it has. `helpers`: sections, and the helpers that they may call.\n\
         # `functions`: functions of the kernel, and the sections that may call them.\n"
    );
    let listed = |sections: &[&str]| sections.join(",");
    let known: Vec<&str> = SECTIONS.iter().copied().filter(|section| loads.contains(section)).collect();
    let _ = writeln!(text, "section\t{}", listed(&known));
    let none = BTreeSet::new();
    let mut groups: Vec<(Vec<u32>, Vec<&str>)> = Vec::new();
    let mut callers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for section in &known {
        let of = calls.get(section).unwrap_or(&none);
        let helpers: Vec<u32> = of
            .iter()
            .filter_map(|call| if let Call::Helper(number) = call { Some(*number) } else { None })
            .collect();
        match groups.iter_mut().find(|(same, _)| *same == helpers) {
            Some((_, sections)) => sections.push(section),
            None => groups.push((helpers, vec![section])),
        }
        for call in of {
            if let Call::Function(name) = call {
                callers.entry(name).or_default().push(section);
            }
        }
    }
    for (helpers, sections) in groups {
        let _ = writeln!(text, "helpers\t{}\t{}", listed(&sections), ranges(&helpers));
    }
    let mut functions: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for (name, sections) in callers {
        match functions.iter_mut().find(|(_, same)| *same == sections) {
            Some((names, _)) => names.push(name),
            None => functions.push((vec![name], sections)),
        }
    }
    for (names, sections) in functions {
        let _ = writeln!(text, "functions\t{}\t{}", listed(&names), listed(&sections));
    }
    Ok(text)
}

/// Whether the kernel knows the section's type and attachment: it walked the program.
fn reaches_the_walk(answer: &Answer) -> bool {
    answer.error == 0 || answer.walked().is_some_and(|walked| walked > 0)
}

/// Whether the call was refused for another reason than that this type may not make it.
fn may_call(answer: &Answer) -> bool {
    let refusals = [
        "unknown func",
        "invalid func",
        "cannot use helper",
        "is not allowed",
        "not supported",
        "does not support",
        "non-supported",
        "reserved fields",
        "helper call is not allowed",
        "sleepable",
    ];
    let denied = answer.log.iter().any(|line| refusals.iter().any(|refusal| line.contains(refusal)));
    reaches_the_walk(answer) && !denied
}

/// Ascending numbers, with runs as `from-to`.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let runs =
        runs.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") });
    runs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_says_who_may_call() {
        let answer = |name: &str, log: &str| format!("P {name} 22\nL {log}\nL processed 1 insns\n.\n");
        let output = [
            "RELEASE 6.1.0\nP xdp 0 0\n.\nP tc 0 22\nL At program exit\nL processed 2 insns\n.\nP lsm_cgroup/socket_bind 0 22\n.\n",
            &answer("xdp helper 1", "R1 !read_ok"),
            &answer("xdp helper 2", "R1 !read_ok"),
            &answer("xdp helper 4", "program of this type cannot use helper bpf_x#4"),
            &answer("tc helper 1", "R1 !read_ok"),
            &answer("tc helper 2", "unknown func bpf_x#2"),
            &answer("tc function f", "R1 !read_ok"),
            &answer("xdp function f", "calling kernel function f is not allowed"),
        ]
        .concat();
        let table = table(&output).expect("complete");
        let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["section\ttc,xdp", "helpers\ttc\t1", "helpers\txdp\t1-2", "functions\tf\ttc"]);
    }

    #[test]
    fn every_section_that_is_asked_about_is_known() {
        let text = questions(1, &["f".to_owned()]).expect("encodable");
        assert_eq!(text.matches("\n.\n").count(), SECTIONS.len() * 4);
    }
}
