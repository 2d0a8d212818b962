//! Section names as Linux's loader reads them: program type, expected attach type, and target.

/// The target of an attachment that is fixed at load time: a type in the kernel's BTF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kind of the type in BTF.
    pub kind: u32,
    /// Its name.
    pub name: String,
}

/// The numbers for a section name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The program type.
    pub kind: u32,
    /// The expected attach type.
    pub attach: u32,
    /// Whether the program may sleep.
    pub sleepable: bool,
    /// The target of the attachment.
    pub target: Option<Target>,
    /// The structure of its context, as programs see it.
    pub context: Option<&'static str>,
}

/// Kinds of BTF.
const FUNC: u32 = 12;
const TYPEDEF: u32 = 8;
/// A structure; the target names a member after a dot.
pub(crate) const STRUCT: u32 = 4;

/// If the rest of the name is a target: its kind in BTF and the prefix of its name there.
type Prefix = Option<(u32, &'static str)>;

/// Section, program type, expected attach type, target, context. The longest match counts.
type Row = (&'static str, u32, u32, Prefix, Option<&'static str>);

const SKB: Option<&str> = Some("__sk_buff");
const XDP: Option<&str> = Some("xdp_md");
const REGS: Option<&str> = Some("bpf_user_pt_regs_t");
const ADDRESS: Option<&str> = Some("bpf_sock_addr");
const SOCK: Option<&str> = Some("bpf_sock");

const ROWS: &[Row] = &[
    ("socket", 1, 0, None, SKB),
    ("kprobe", 2, 0, None, REGS),
    ("kretprobe", 2, 0, None, REGS),
    ("uprobe", 2, 0, None, REGS),
    ("uretprobe", 2, 0, None, REGS),
    ("ksyscall", 2, 0, None, REGS),
    ("kprobe.multi", 2, 42, None, REGS),
    ("kretprobe.multi", 2, 42, None, REGS),
    ("uprobe.multi", 2, 48, None, REGS),
    ("kprobe.session", 2, 56, None, REGS),
    ("tc", 3, 0, None, SKB),
    ("classifier", 3, 0, None, SKB),
    ("tcx/ingress", 3, 46, None, SKB),
    ("tcx/egress", 3, 47, None, SKB),
    ("netkit/primary", 3, 54, None, SKB),
    ("netkit/peer", 3, 55, None, SKB),
    ("action", 4, 0, None, SKB),
    ("tp", 5, 0, None, None),
    ("tracepoint", 5, 0, None, None),
    ("xdp", 6, 37, None, XDP),
    ("xdp/devmap", 6, 33, None, XDP),
    ("xdp/cpumap", 6, 35, None, XDP),
    ("perf_event", 7, 0, None, Some("bpf_perf_event_data")),
    ("cgroup_skb/ingress", 8, 0, None, SKB),
    ("cgroup_skb/egress", 8, 1, None, SKB),
    ("cgroup/skb", 8, 0, None, SKB),
    ("cgroup/sock_create", 9, 2, None, SOCK),
    ("cgroup/sock", 9, 2, None, SOCK),
    ("cgroup/sock_release", 9, 34, None, SOCK),
    ("cgroup/post_bind4", 9, 12, None, SOCK),
    ("cgroup/post_bind6", 9, 13, None, SOCK),
    ("lwt_in", 10, 0, None, SKB),
    ("lwt_out", 11, 0, None, SKB),
    ("lwt_xmit", 12, 0, None, SKB),
    ("lwt_seg6local", 19, 0, None, SKB),
    ("sockops", 13, 3, None, Some("bpf_sock_ops")),
    ("sk_skb", 14, 0, None, SKB),
    ("sk_skb/stream_parser", 14, 4, None, SKB),
    ("sk_skb/stream_verdict", 14, 5, None, SKB),
    ("sk_skb/verdict", 14, 38, None, SKB),
    ("cgroup/dev", 15, 6, None, Some("bpf_cgroup_dev_ctx")),
    ("sk_msg", 16, 7, None, Some("sk_msg_md")),
    ("raw_tp", 17, 0, None, Some("bpf_raw_tracepoint_args")),
    ("raw_tracepoint", 17, 0, None, Some("bpf_raw_tracepoint_args")),
    ("raw_tp.w", 24, 0, None, Some("bpf_raw_tracepoint_args")),
    ("raw_tracepoint.w", 24, 0, None, Some("bpf_raw_tracepoint_args")),
    ("cgroup/bind4", 18, 8, None, ADDRESS),
    ("cgroup/bind6", 18, 9, None, ADDRESS),
    ("cgroup/connect4", 18, 10, None, ADDRESS),
    ("cgroup/connect6", 18, 11, None, ADDRESS),
    ("cgroup/connect_unix", 18, 49, None, ADDRESS),
    ("cgroup/sendmsg4", 18, 14, None, ADDRESS),
    ("cgroup/sendmsg6", 18, 15, None, ADDRESS),
    ("cgroup/sendmsg_unix", 18, 50, None, ADDRESS),
    ("cgroup/recvmsg4", 18, 19, None, ADDRESS),
    ("cgroup/recvmsg6", 18, 20, None, ADDRESS),
    ("cgroup/recvmsg_unix", 18, 51, None, ADDRESS),
    ("cgroup/getpeername4", 18, 29, None, ADDRESS),
    ("cgroup/getpeername6", 18, 30, None, ADDRESS),
    ("cgroup/getpeername_unix", 18, 52, None, ADDRESS),
    ("cgroup/getsockname4", 18, 31, None, ADDRESS),
    ("cgroup/getsockname6", 18, 32, None, ADDRESS),
    ("cgroup/getsockname_unix", 18, 53, None, ADDRESS),
    ("lirc_mode2", 20, 16, None, None),
    ("sk_reuseport", 21, 39, None, Some("sk_reuseport_md")),
    ("sk_reuseport/migrate", 21, 40, None, Some("sk_reuseport_md")),
    ("flow_dissector", 22, 17, None, SKB),
    ("cgroup/sysctl", 23, 18, None, Some("bpf_sysctl")),
    ("cgroup/getsockopt", 25, 21, None, Some("bpf_sockopt")),
    ("cgroup/setsockopt", 25, 22, None, Some("bpf_sockopt")),
    ("tp_btf", 26, 23, Some((TYPEDEF, "btf_trace_")), None),
    ("fentry", 26, 24, Some((FUNC, "")), None),
    ("fexit", 26, 25, Some((FUNC, "")), None),
    ("fmod_ret", 26, 26, Some((FUNC, "")), None),
    ("iter", 26, 28, Some((FUNC, "bpf_iter_")), None),
    ("struct_ops", 27, 0, Some((STRUCT, "")), None),
    ("lsm", 29, 27, Some((FUNC, "bpf_lsm_")), None),
    ("lsm_cgroup", 29, 43, Some((FUNC, "bpf_lsm_")), None),
    ("sk_lookup", 30, 36, None, Some("bpf_sk_lookup")),
    ("syscall", 31, 0, None, None),
    ("netfilter", 32, 45, None, Some("bpf_nf_ctx")),
];

impl Section {
    /// The numbers for that name; `None` for sections that Linux does not have.
    pub fn of(name: &str) -> Option<Self> {
        let fits = |row: &&Row| Self::rest(name, row.0).is_some();
        let row = ROWS.iter().filter(fits).max_by_key(|row| row.0.len())?;
        let (rest, mut sleepable) = Self::rest(name, row.0)?;
        sleepable |= row.0 == "syscall";
        let target = row.3.map(|(kind, prefix)| Target { kind, name: format!("{prefix}{rest}") });
        Some(Self { kind: row.1, attach: row.2, sleepable, target, context: row.4 })
    }

    /// The rest after the section's own name, and whether the name is marked `.s`.
    fn rest<'a>(name: &'a str, section: &str) -> Option<(&'a str, bool)> {
        let rest = name.strip_prefix(section)?;
        let (rest, sleepable) = match rest.strip_prefix(".s") {
            Some(rest) => (rest, true),
            None => (rest.strip_prefix(".frags").unwrap_or(rest), false),
        };
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
        Some((rest, sleepable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skep_reads_sections_in_the_same_way() {
        for row in ROWS {
            let name = if row.3.is_some() { format!("{}/x", row.0) } else { row.0.to_owned() };
            let known = skep_abi::Section::parse(&name).unwrap_or_else(|| panic!("skep knows no {name}"));
            let numbers = (known.kind.number, known.kind.attach.unwrap_or(0));
            assert_eq!(numbers, (Some(row.1), row.2), "{name}");
        }
    }

    #[test]
    fn sections_map_to_numbers_and_targets() {
        let numbers = |name| Section::of(name).map(|s| (s.kind, s.attach, s.sleepable));
        assert_eq!(numbers("xdp"), Some((6, 37, false)));
        assert_eq!(numbers("xdp/devmap"), Some((6, 33, false)));
        assert_eq!(numbers("xdp.frags"), Some((6, 37, false)));
        assert_eq!(numbers("cgroup_skb/egress"), Some((8, 1, false)));
        assert_eq!(numbers("syscall"), Some((31, 0, true)));
        assert_eq!(numbers("uprobe.s"), Some((2, 0, true)));
        assert_eq!(numbers("raw"), None);
        let target = |name| Section::of(name).and_then(|s| s.target).map(|t| (t.kind, t.name));
        assert_eq!(target("fentry.s/vfs_read"), Some((FUNC, "vfs_read".to_owned())));
        assert_eq!(target("tp_btf/sched_switch"), Some((TYPEDEF, "btf_trace_sched_switch".to_owned())));
        assert_eq!(target("iter/task"), Some((FUNC, "bpf_iter_task".to_owned())));
        assert_eq!(target("kprobe/vfs_read"), None);
    }
}
