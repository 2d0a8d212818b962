//! Results of a host's function: what the verifier knows of them, and their register.

use super::errno::Errno;
use skep_abi::RetKind;

/// A result of a [`HostFunction`](super::HostFunction). Only this crate implements it.
///
/// # Safety
///
/// `into_register` and `failed` return only values that `KIND` allows.
pub unsafe trait Returned: 'static {
    #[doc(hidden)]
    const KIND: RetKind;
    /// Whether a call can fail instead of calling the function.
    #[doc(hidden)]
    const FALLIBLE: bool = false;
    #[doc(hidden)]
    fn into_register(self) -> u64;
    /// The result of a call that failed. Not called unless `FALLIBLE`.
    #[doc(hidden)]
    fn failed(_errno: Errno) -> u64 {
        0
    }
}

macro_rules! integers {
    ($($integer:ident $wide:ident $kind:expr;)*) => {
        $(
            // SAFETY: an integer lies in its own range.
            unsafe impl Returned for $integer {
                const KIND: RetKind = $kind;
                fn into_register(self) -> u64 {
                    // Signed results are extended with their sign.
                    $wide::from(self) as u64
                }
            }
        )*
    };
}

integers! {
    u8 u64 RetKind::Range { min: 0, max: u8::MAX as i64 };
    u16 u64 RetKind::Range { min: 0, max: u16::MAX as i64 };
    u32 u64 RetKind::Range { min: 0, max: u32::MAX as i64 };
    u64 u64 RetKind::Scalar;
    i8 i64 RetKind::Range { min: i8::MIN as i64, max: i8::MAX as i64 };
    i16 i64 RetKind::Range { min: i16::MIN as i64, max: i16::MAX as i64 };
    i32 i64 RetKind::Range { min: i32::MIN as i64, max: i32::MAX as i64 };
    i64 i64 RetKind::Scalar;
}

// SAFETY: 0 or 1.
unsafe impl Returned for bool {
    const KIND: RetKind = RetKind::Range { min: 0, max: 1 };
    fn into_register(self) -> u64 {
        self.into()
    }
}

// SAFETY: programs cannot read the register.
unsafe impl Returned for () {
    const KIND: RetKind = RetKind::Void;
    fn into_register(self) -> u64 {
        0
    }
}

macro_rules! fallible {
    ($($value:ty: $max:expr, $held:ident $register:expr;)*) => {
        $(
            // SAFETY: the values lie in their range, and negated error numbers are from -4095 to -1.
            unsafe impl Returned for Result<$value, Errno> {
                const KIND: RetKind = RetKind::Range { min: -(Errno::MAX as i64), max: $max };
                const FALLIBLE: bool = true;
                fn into_register(self) -> u64 {
                    match self {
                        Ok($held) => $register,
                        Err(errno) => errno.into_register(),
                    }
                }
                fn failed(errno: Errno) -> u64 {
                    errno.into_register()
                }
            }
        )*
    };
}

fallible! {
    (): 0, _nothing 0;
    bool: 1, value value.into();
    u8: u8::MAX as i64, value value.into();
    u16: u16::MAX as i64, value value.into();
    u32: u32::MAX as i64, value value.into();
}
