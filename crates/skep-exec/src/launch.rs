//! Starting the first process: its namespaces, its filter.
//!
//! ```text
//!   fork -> in a mount namespace of its own: a BPF file system, types -> no new privileges -> filter -> exec
//!                                                                                              |
//!                                       the filter's listener goes to the supervisor by a socket
//! ```

use crate::Error;
use crate::filter::Filter;
use crate::listener::Listener;
use crate::probed::Mount;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Where clients expect the BPF file system and the types of the kernel.
pub(crate) const BPF_FS: &str = "/sys/fs/bpf";
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`.
const NEW_LISTENER: libc::c_ulong = 1 << 3;
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// What the child does between fork and exec: system calls only, with memory that was prepared before.
struct Preparation {
    filter: Filter,
    /// The child's end of the socket by which the listener goes to the supervisor.
    socket: RawFd,
    /// Lines for `/proc/self/uid_map` and `gid_map`.
    user: CString,
    group: CString,
    types: Option<CString>,
    /// Files over files of the kernel's.
    probed: Vec<Mount>,
    /// The application's own limit of descriptors.
    limit: Option<libc::rlimit>,
}

/// How far the child came with its namespaces; sent with the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The device of its own BPF file system; 0 if it has none.
    pub(crate) bpffs: u64,
    /// The types are in their place.
    pub(crate) types: bool,
}

/// Starts a program under the filter, with that limit of descriptors. `network`: its routing sockets are served.
/// `probes`: those of a world are, and events happen with these system calls.
pub(crate) fn launch(
    command: &mut Command,
    types: Option<&std::path::Path>,
    probed: Vec<Mount>,
    limit: Option<libc::rlimit>,
    (network, probes): (bool, Option<&[libc::c_long]>),
) -> Result<(Child, Listener, Prepared), Error> {
    use std::os::unix::ffi::OsStrExt;
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::Supervise { what: "a pair of sockets", source: error.into() })?;
    let text = |text: &[u8]| {
        CString::new(text).map_err(|error| Error::Supervise { what: "a path", source: error.into() })
    };
    // SAFETY: these calls cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let preparation = Preparation {
        filter: Filter::new(network, probes),
        socket: theirs.as_raw_fd(),
        user: text(format!("{user} {user} 1").as_bytes())?,
        group: text(format!("{group} {group} 1").as_bytes())?,
        types: types.map(|path| text(path.as_os_str().as_bytes())).transpose()?,
        probed,
        limit,
    };
    // SAFETY: between fork and exec `prepare` makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(move || preparation.prepare()) };
    let program = command.get_program().to_owned();
    let child = command.spawn();
    drop(theirs);
    let started = receive(&ours).is_ok();
    let sent = receive(&ours).and_then(|sent| sent.ok_or_else(|| io::Error::other("it was not sent")));
    let child = match (child, &sent) {
        (Ok(child), _) => child,
        // The child came to its preparation, and not to its end.
        (Err(source), Err(_)) if started => {
            return Err(Error::Supervise { what: "a filter of system calls", source });
        }
        (Err(source), _) => return Err(Error::Start { program, source }),
    };
    let (listener, prepared) =
        sent.map_err(|source| Error::Supervise { what: "the listener of the filter", source })?;
    Ok((child, Listener::new(listener), prepared))
}

impl Preparation {
    /// # Errors
    ///
    /// Those of the filter, and of a user namespace that stays without users; without namespaces it goes on.
    fn prepare(&self) -> io::Result<()> {
        // SAFETY: the socket is open, and the byte is of this frame.
        if unsafe { libc::send(self.socket, [0u8].as_ptr().cast(), 1, 0) } != 1 {
            return Err(io::Error::last_os_error());
        }
        let prepared = self.separate()?;
        // SAFETY: numbers only; the filter's program and the limit live in `self`.
        unsafe {
            if let Some(limit) = &self.limit {
                libc::setrlimit(libc::RLIMIT_NOFILE, limit);
            }
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            let program = self.filter.program();
            let set = |flags: libc::c_ulong| {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
            };
            let mut listener = set(NEW_LISTENER | WAIT_KILLABLE);
            if listener < 0 {
                // Linux before 6.0 wakes waiting threads for signals, and the calls are made again.
                listener = set(NEW_LISTENER);
            }
            if listener < 0 {
                return Err(io::Error::last_os_error());
            }
            let sent = send(self.socket, listener as RawFd, prepared);
            libc::close(listener as RawFd);
            sent
        }
    }

    /// Gives the child a view of its own on two places of the file system, as far as it may.
    fn separate(&self) -> io::Result<Prepared> {
        let mut prepared = Prepared { bpffs: 0, types: false };
        // SAFETY: system calls with texts that end with zero.
        unsafe {
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                // An ordinary user needs a user namespace, and stays who it is in there.
                if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0 {
                    return Ok(prepared);
                }
                let mapped = write(c"/proc/self/setgroups", c"deny")
                    && write(c"/proc/self/gid_map", &self.group)
                    && write(c"/proc/self/uid_map", &self.user);
                if !mapped {
                    // It is nobody here, and could not do what its user may.
                    return Err(io::Error::last_os_error());
                }
                keep_capabilities();
            }
            let mount = |from: Option<&CString>, to: &std::ffi::CStr, kind: *const libc::c_char, flags| {
                let from = from.map_or(c"bpf".as_ptr(), |from| from.as_ptr());
                libc::mount(from, to.as_ptr(), kind, flags, std::ptr::null()) == 0
            };
            // What is mounted here stays here.
            if !mount(None, c"/", std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE) {
                return Ok(prepared);
            }
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let mut status: libc::stat = std::mem::zeroed();
            if mount(None, c"/sys/fs/bpf", c"tmpfs".as_ptr(), flags)
                && libc::stat(c"/sys/fs/bpf".as_ptr(), &raw mut status) == 0
            {
                prepared.bpffs = status.st_dev;
            }
            prepared.types = self.types.as_ref().is_some_and(|types| {
                mount(Some(types), c"/sys/kernel/btf/vmlinux", std::ptr::null(), libc::MS_BIND)
            });
            for (from, to, flags) in &self.probed {
                // Without it the kernel's file stays in sight.
                mount(Some(from), to, std::ptr::null(), *flags);
            }
        }
        Ok(prepared)
    }
}

/// `struct __user_cap_header_struct` and the two words of `struct __user_cap_data_struct`.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Lets the application have what a user namespace gives its first process. They are capabilities over that namespace
/// alone, and are lost on exec otherwise; clients look for them before they call bpf(2).
///
/// # Safety
///
/// None: it makes system calls only, as a child between fork and exec must.
unsafe fn keep_capabilities() {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let mut header = CapabilityHeader { version: VERSION, process: 0 };
    let mut held = [Capabilities { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the structures are those of version 3, and of this frame. If one call fails, the application lacks them.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, held.as_mut_ptr()) != 0 {
            return;
        }
        held.iter_mut().for_each(|word| word.inheritable = word.permitted);
        if libc::syscall(libc::SYS_capset, &raw mut header, held.as_ptr()) != 0 {
            return;
        }
        for capability in 0..64u64 {
            if held[capability as usize / 32].permitted >> (capability % 32) & 1 != 0 {
                libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0);
            }
        }
    }
}

/// Writes a text into a file of the kernel's.
///
/// # Safety
///
/// None: it makes system calls only, as a child between fork and exec must.
unsafe fn write(path: &std::ffi::CStr, text: &std::ffi::CStr) -> bool {
    // SAFETY: both texts end with zero.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let bytes = text.to_bytes();
        let done = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        libc::close(file);
        done == bytes.len() as isize
    }
}

/// Room for one descriptor in the control data of a message, aligned as it must be.
#[repr(C, align(8))]
struct Control([u8; 32]);

/// Sends a descriptor by a socket.
///
/// # Safety
///
/// None: it makes system calls only, as a child between fork and exec must.
unsafe fn send(socket: RawFd, descriptor: RawFd, prepared: Prepared) -> io::Result<()> {
    let mut words = [prepared.bpffs, prepared.types.into()];
    let mut data = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
    let mut control = Control([0; 32]);
    // SAFETY: plain numbers and addresses; zero is valid for all of them.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: the control data has room for one header and one descriptor; all addresses are of this frame.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        if libc::sendmsg(socket, &raw const message, 0) == size_of_val(&words) as isize {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Receives what `send` sent; `None` for the byte before.
fn receive(socket: &OwnedFd) -> io::Result<Option<(OwnedFd, Prepared)>> {
    let mut words = [0u64; 2];
    let mut data = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
    let mut control = Control([0; 32]);
    // SAFETY: plain numbers and addresses; zero is valid for all of them.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: all addresses are of this frame, with the sizes given; the kernel fills the control data.
    unsafe {
        match libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
            1 => return Ok(None),
            all if all == size_of_val(&words) as isize => {}
            _ => return Err(io::Error::other("the child ended before it sent it")),
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("the message has no descriptor"));
        }
        let descriptor = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        let prepared = Prepared { bpffs: words[0], types: words[1] != 0 };
        // The kernel has just made it for this process.
        Ok(Some((OwnedFd::from_raw_fd(descriptor), prepared)))
    }
}

/// The file whose mount clients see as the kernel's types.
pub(crate) const fn types_path() -> &'static str {
    TYPES
}
