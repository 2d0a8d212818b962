//! The memory of a supervised process.

use skep_sys::Errno;

/// Copies from the memory of a thread's process, with its protections.
pub(crate) fn read(thread: u32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the local buffer is ours and writable; the kernel checks the remote one.
    let done = unsafe { libc::process_vm_readv(thread as i32, &raw const local, 1, &raw const remote, 1, 0) };
    if done == into.len() as isize { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies to the memory of a thread's process, with its protections.
pub(crate) fn write(thread: u32, address: u64, from: &[u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: from.len() };
    // SAFETY: the kernel only reads the local buffer, and checks the remote one.
    let done =
        unsafe { libc::process_vm_writev(thread as i32, &raw const local, 1, &raw const remote, 1, 0) };
    if done == from.len() as isize { Ok(()) } else { Err(Errno::EFAULT) }
}
