//! None: Linux has keys for FEAT_S1POE since 6.12, which nothing here was tried on.

pub(crate) const IS_SUPPORTED: bool = false;

pub(crate) fn is_on() -> bool {
    false
}

/// Not called: there is no key.
pub(crate) fn register() -> u32 {
    0
}

/// Not called.
pub(crate) fn set_register(_: u32) {}

pub(crate) fn begins_an_opening(_: &[u8]) -> bool {
    false
}
