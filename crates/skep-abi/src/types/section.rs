//! Section names of object files: which program type they select, and what the program is attached to.
//!
//! ```text
//!   ?fentry.s/vfs_read
//!   |  |    |    `- target
//!   |  |    `------ `.s`: the program may sleep; `.frags`: it takes packets in several pieces
//!   |  `----------- a name from a type's list
//!   `-------------- loaded on demand only; ignored here
//! ```

use super::{ProgramType, TYPES};

/// The meaning of a section's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its type.
    pub kind: &'static ProgramType,
    /// Whether it is sleepable.
    pub sleepable: bool,
    /// Its attachment target, if the name has one: `vfs_read` of `fentry/vfs_read`.
    pub target: Option<&'a str>,
}

impl<'a> Section<'a> {
    /// Parses a section's name; `None` if it selects no type.
    pub fn parse(section: &'a str) -> Option<Self> {
        let section = section.strip_prefix('?').unwrap_or(section);
        let (first, rest) = section.split_at(section.find('/').unwrap_or(section.len()));
        let (first, marked) = match first.strip_suffix(".s") {
            Some(first) => (first, true),
            None => (first, false),
        };
        let (first, frags) = match first.strip_suffix(".frags") {
            Some(first) => (first, true),
            None => (first, false),
        };
        let (kind, target) = best(first, rest)?;
        if (marked && !kind.may_sleep) || (frags && !kind.in_pieces) {
            return None;
        }
        Some(Self { kind, sleepable: marked || kind.always_sleeps, target })
    }
}

/// The type with the longest name that begins the section `first` + `rest`, and what follows the slash.
fn best<'a>(first: &str, rest: &'a str) -> Option<(&'static ProgramType, Option<&'a str>)> {
    let mut best: Option<(usize, &'static ProgramType, &'a str)> = None;
    for kind in TYPES {
        for name in kind.sections {
            let Some(tail) = name.strip_prefix(first).and_then(|name| rest.strip_prefix(name)) else {
                continue;
            };
            let whole = tail.is_empty() || tail.starts_with('/');
            if whole && best.is_none_or(|(length, ..)| name.len() > length) {
                best = Some((name.len(), kind, tail));
            }
        }
    }
    let (_, kind, tail) = best?;
    Some((kind, tail.strip_prefix('/').filter(|target| !target.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(section: &str) -> Option<(&'static str, Option<u32>, bool, Option<&str>)> {
        Section::parse(section)
            .map(|found| (found.kind.name, found.kind.attach, found.sleepable, found.target))
    }

    #[test]
    fn sections_select_types_attachments_and_targets() {
        assert_eq!(parse("xdp"), Some(("xdp", Some(37), false, None)));
        assert_eq!(parse("xdp/firewall"), Some(("xdp", Some(37), false, Some("firewall"))));
        assert_eq!(parse("xdp.frags"), Some(("xdp", Some(37), false, None)));
        assert_eq!(parse("xdp.frags/devmap"), Some(("xdp", Some(33), false, None)));
        assert_eq!(parse("tc"), Some(("sched_cls", None, false, None)));
        assert_eq!(parse("tcx/ingress"), Some(("sched_cls", Some(46), false, None)));
        assert_eq!(parse("?tc"), Some(("sched_cls", None, false, None)));
        assert_eq!(parse("fentry/vfs_read"), Some(("tracing", Some(24), false, Some("vfs_read"))));
        assert_eq!(parse("fentry.s/vfs_read"), Some(("tracing", Some(24), true, Some("vfs_read"))));
        assert_eq!(parse("lsm.s/file_open"), Some(("lsm", Some(27), true, Some("file_open"))));
        assert_eq!(parse("lsm_cgroup/bind"), Some(("lsm", Some(43), false, Some("bind"))));
        assert_eq!(parse("kprobe.multi/vfs_*"), Some(("kprobe", Some(42), false, Some("vfs_*"))));
        assert_eq!(parse("uprobe.multi.s/a:b"), Some(("kprobe", Some(48), true, Some("a:b"))));
        assert_eq!(parse("uprobe.s"), Some(("kprobe", None, true, None)));
        assert_eq!(
            parse("tp/sched/sched_switch"),
            Some(("tracepoint", None, false, Some("sched/sched_switch")))
        );
        assert_eq!(parse("raw_tp.w/x"), Some(("raw_tracepoint_writable", None, false, Some("x"))));
        assert_eq!(parse("syscall"), Some(("syscall", None, true, None)));
        assert_eq!(parse("cgroup/sock_create"), Some(("cgroup_sock", Some(2), false, None)));
        assert_eq!(parse("cgroup/sock"), Some(("cgroup_sock", Some(2), false, None)));
        assert_eq!(parse("sk_reuseport/migrate"), Some(("sk_reuseport", Some(40), false, None)));
        assert_eq!(parse("raw.s/reader"), Some(("raw", None, true, Some("reader"))));
        assert_eq!(parse("struct_ops.s/init"), Some(("struct_ops", None, true, Some("init"))));
    }

    #[test]
    fn other_sections_select_no_type() {
        for section in
            ["", "?", "/", "xdpfoo", "xdp.s", "tc.frags", "xd", "cgroup", "cgroup/", "kprobe.s", "fentry.x"]
        {
            assert_eq!(parse(section), None, "{section:?}");
        }
    }

    #[test]
    fn no_section_name_belongs_to_two_types() {
        let names: Vec<_> = TYPES.iter().flat_map(|kind| kind.sections).collect();
        let different: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len());
    }
}
