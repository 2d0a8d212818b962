//! Files of the kernel's in which clients look for what its BPF can do.
//!
//! They say what skep offers, not what the machine's kernel does: in the application's mount namespace other files are
//! mounted over them. A file that the kernel does not have cannot be made, and is missing for the application as well.
//!
//! | file | who reads it |
//! |---|---|
//! | `/proc/config.gz`, `/boot/config-RELEASE` | libbpf and cilium/ebpf, for variables with `__kconfig`; bpftool |
//! | `/proc/sys/net/core/bpf_jit_*`, `/proc/sys/kernel/unprivileged_bpf_disabled` | bpftool, and tests |
//! | `/proc/kallsyms` | libbpf and cilium/ebpf, for addresses of symbols; bpftool |

use crate::files::Files;
use skep::world::Probes;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// bpftool reads no configuration that begins in another way.
const HEADER: &str = "#\n# Automatically generated file; DO NOT EDIT.\n# What skep offers to programs\n#\n";

/// The configuration, without `CONFIG_`: what skep's engine has, and what it has not although kernels have it.
const OFFERED: &[(&str, &str)] = &[
    ("BPF", "y"),
    ("BPF_SYSCALL", "y"),
    ("HAVE_EBPF_JIT", "y"),
    ("BPF_JIT", "y"),
    ("BPF_JIT_ALWAYS_ON", "y"),
    ("BPF_JIT_DEFAULT_ON", "y"),
    // `bpf_jiffies64` counts these.
    ("HZ_250", "y"),
    ("HZ", "250"),
    ("NET", "y"),
    ("INET", "y"),
    ("IPV6", "y"),
    ("NET_CLS_ACT", "y"),
    ("NET_SCH_INGRESS", "y"),
    ("NET_CLS_BPF", "y"),
    ("LWTUNNEL_BPF", "y"),
    ("XDP_SOCKETS", "y"),
    ("BPF_STREAM_PARSER", "y"),
    ("CGROUPS", "y"),
    ("CGROUP_BPF", "y"),
    ("SMP", "y"),
    ("64BIT", "y"),
];

const MISSING: &[&str] = &[
    "BPF_UNPRIV_DEFAULT_OFF",
    "BPF_LSM",
    "BPF_EVENTS",
    "BPF_KPROBE_OVERRIDE",
    "BPF_LIRC_MODE2",
    "BPFILTER",
    "BPFILTER_UMH",
    "DEBUG_INFO_BTF_MODULES",
    "FTRACE_SYSCALLS",
    "FUNCTION_ERROR_INJECTION",
    "IPV6_SEG6_BPF",
    "KALLSYMS",
    "KPROBE_EVENTS",
    "NETFILTER_XT_MATCH_BPF",
    "TEST_BPF",
    "TRACING",
    "UPROBE_EVENTS",
];

/// Of these what a world with probes has.
const OF_PROBES: &[&str] = &["BPF_EVENTS", "KALLSYMS", "KPROBE_EVENTS", "TRACING", "UPROBE_EVENTS"];

/// Numbers that anybody may read.
const SETTINGS: &[(&str, &str)] = &[
    ("net/core/bpf_jit_enable", "1\n"),
    ("net/core/bpf_jit_harden", "0\n"),
    ("net/core/bpf_jit_kallsyms", "0\n"),
    // The runtime has no limit of its own.
    ("net/core/bpf_jit_limit", "9223372036854775807\n"),
    ("kernel/unprivileged_bpf_disabled", "0\n"),
];

/// What is mounted, where, and with which flags.
pub(crate) type Mount = (CString, CString, libc::c_ulong);

/// Writes the files. `types`: the application gets types of a kernel.
///
/// The first mount is `/proc` itself at another place. Linux lets nobody mount a new `/proc` in a namespace (as
/// sandboxes do) unless there is one without mounts over its files.
pub(crate) fn prepare(files: &Files, types: bool, probes: Option<&Probes>) -> Vec<Mount> {
    let text = configuration(types, probes.is_some());
    let release = rustix::system::uname();
    let boot = format!("/boot/config-{}", release.release().to_string_lossy());
    let mut all = vec![
        ("config".to_owned(), boot, text.clone().into_bytes()),
        ("config.gz".to_owned(), "/proc/config.gz".to_owned(), stored(text.as_bytes())),
        // There is no symbol of a kernel that a program could name but those of the world.
        ("kallsyms".to_owned(), "/proc/kallsyms".to_owned(), symbols(probes).into_bytes()),
    ];
    for (setting, value) in SETTINGS {
        let path = format!("/proc/sys/{setting}");
        all.push((setting.replace('/', "-"), path, value.as_bytes().to_vec()));
    }
    all.retain(|(_, to, _)| PathBuf::from(to).exists());
    let text = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).ok();
    let mounts = all.into_iter().map(|(name, to, bytes)| {
        let from = files.add(&name, &bytes).ok()?;
        Some((text(from)?, text(to.into())?, libc::MS_BIND))
    });
    let whole =
        || Some((c"/proc".to_owned(), text(files.directory("proc").ok()?)?, libc::MS_BIND | libc::MS_REC));
    std::iter::once_with(whole).chain(mounts).flatten().collect()
}

/// The functions of the world, as the kernel lists its own.
fn symbols(probes: Option<&Probes>) -> String {
    let mut all: Vec<_> = probes.into_iter().flat_map(Probes::functions).collect();
    all.sort_by_key(|function| function.address);
    all.iter().map(|function| format!("{:016x} T {}\n", function.address, function.name)).collect()
}

fn configuration(types: bool, probes: bool) -> String {
    let mut text = HEADER.to_owned();
    for (name, value) in OFFERED {
        text.push_str(&format!("CONFIG_{name}={value}\n"));
    }
    if types {
        text.push_str("CONFIG_DEBUG_INFO_BTF=y\n");
    }
    let of_probes = |name: &&&str| probes && OF_PROBES.contains(name);
    for name in MISSING.iter().filter(of_probes) {
        text.push_str(&format!("CONFIG_{name}=y\n"));
    }
    let missing = MISSING.iter().filter(|name| !of_probes(name));
    for name in missing.chain((!types).then_some(&"DEBUG_INFO_BTF")) {
        text.push_str(&format!("# CONFIG_{name} is not set\n"));
    }
    text
}

/// A gzip file (RFC 1952) with its bytes as they are: one stored block (RFC 1951), of at most 65,535 bytes.
fn stored(bytes: &[u8]) -> Vec<u8> {
    const LAST_STORED: u8 = 1;
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let bytes = &bytes[..usize::from(len)];
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, LAST_STORED];
    file.extend(len.to_le_bytes());
    file.extend((!len).to_le_bytes());
    file.extend(bytes);
    file.extend(checksum(bytes).to_le_bytes());
    file.extend(u32::from(len).to_le_bytes());
    file
}

/// CRC-32 as of gzip.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_configuration_fits_a_block_and_says_whether_there_are_types() {
        let (with, without) = (configuration(true, false), configuration(false, false));
        assert!(with.contains("\nCONFIG_DEBUG_INFO_BTF=y\n") && !with.contains("CONFIG_DEBUG_INFO_BTF is"));
        assert!(without.contains("\n# CONFIG_DEBUG_INFO_BTF is not set\n"));
        assert!(with.len() < 65_536);
        let file = stored(with.as_bytes());
        assert_eq!(&file[15..file.len() - 8], with.as_bytes());
    }
}
