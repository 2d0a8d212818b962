//! Error numbers that functions return to programs.

use std::fmt;
use std::io;

/// A number of the system's errors, 1 to 4095. A function that returns [`Result<T, Errno>`](super::Returned) gives the
/// program the negated number, as Linux's helpers do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(u16);

impl Errno {
    /// The greatest number.
    pub const MAX: i32 = 4095;

    /// The error of that number; `None` unless it is from 1 to [`Errno::MAX`].
    pub const fn new(number: i32) -> Option<Self> {
        if 1 <= number && number <= Self::MAX { Some(Self(number as u16)) } else { None }
    }

    /// Its number, which is positive.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    pub(super) fn into_register(self) -> u64 {
        i64::from(-self.number()) as u64
    }
}

macro_rules! numbers {
    ($($name:ident $number:literal $text:literal;)*) => {
        impl Errno {
            $(#[doc = concat!($text, ".")] pub const $name: Self = Self($number);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(number) => write!(f, "Errno({number})"),
                }
            }
        }
    };
}

numbers! {
    EPERM 1 "Operation not permitted";
    ENOENT 2 "No such entry";
    EINTR 4 "Interrupted";
    EIO 5 "Input or output error";
    ENXIO 6 "No such device or address. Also: the run has no [`State`](super::State) of the type that the function takes";
    E2BIG 7 "Too much";
    EAGAIN 11 "Try again";
    ENOMEM 12 "Out of memory";
    EACCES 13 "Permission denied";
    EFAULT 14 "Bad address";
    EBUSY 16 "Busy. Also: another function has the run's [`State`](super::State)";
    EEXIST 17 "It exists";
    ENODEV 19 "No such device";
    EINVAL 22 "Invalid argument";
    ENOSPC 28 "No space left";
    ERANGE 34 "Result out of range";
    ENOSYS 38 "Not implemented";
    EOVERFLOW 75 "Value too large";
    EMSGSIZE 90 "Message too long";
    EOPNOTSUPP 95 "Not supported";
    ETIMEDOUT 110 "Timed out";
    ECANCELED 125 "Canceled";
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.number()).fmt(f)
    }
}

impl std::error::Error for Errno {}

/// The system's number, or [`Errno::EIO`] for an error that has none.
impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().and_then(Self::new).unwrap_or(Self::EIO)
    }
}
