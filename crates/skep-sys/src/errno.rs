//! The errors of the system call.

use core::fmt;

/// An error of the system call: a number of `errno.h`, above 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// The name in `errno.h`, if this library ever answers with it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    EPERM = 1, "The caller may not do this.";
    ENOENT = 2, "There is no such element or object.";
    ESRCH = 3, "There is no such process, or no such function.";
    EINTR = 4, "A signal came first.";
    EIO = 5, "Reading or writing failed.";
    ENXIO = 6, "The device is of another kind.";
    E2BIG = 7, "A size or a number is too large.";
    EBADF = 9, "The number is no open descriptor.";
    EAGAIN = 11, "It is possible later.";
    ENOMEM = 12, "Memory is used up.";
    EACCES = 13, "The program is refused, or the access is.";
    EFAULT = 14, "An address is not accessible.";
    EBUSY = 16, "Something is in use.";
    EEXIST = 17, "There is such an element or object already.";
    ENODEV = 19, "There is no such device.";
    ENOTDIR = 20, "A part of a path is no directory.";
    EINVAL = 22, "An argument is invalid.";
    EMFILE = 24, "The caller has too many open descriptors.";
    ENOSPC = 28, "There is no room.";
    ERANGE = 34, "A number is outside of its range.";
    ENAMETOOLONG = 36, "A path is too long.";
    ELOOP = 40, "A path, or a chain of programs, is too long.";
    ENOPKG = 65, "The signature is of a kind that is not accepted.";
    ENOLINK = 67, "The attachment has ended.";
    EPROTO = 71, "An instruction refers to something that the call lacks.";
    EBADMSG = 74, "The message is malformed.";
    EOVERFLOW = 75, "A number does not fit.";
    EBADFD = 77, "The number is no open descriptor.";
    EILSEQ = 84, "Bytes form no valid text.";
    ENOTSOCK = 88, "The descriptor is no socket.";
    EOPNOTSUPP = 95, "The operation is not supported here.";
    EAFNOSUPPORT = 97, "There is no such family of protocols.";
    ESTALE = 116, "Something has changed since the caller looked at it.";
    ENOKEY = 126, "No key is trusted that the signature could be by.";
    EKEYEXPIRED = 127, "The certificate of the key is not valid now.";
    EKEYREJECTED = 129, "The signature is wrong.";
    ENOTSUPP = 524, "The operation is not supported: the kernel's own number, which libc cannot name.";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
