//! Names of objects: 16 bytes, the last of which is zero.

use crate::errno::Errno;
use alloc::string::String;

/// Bytes of a name with its end.
pub const NAME_SIZE: usize = 16;

/// The name in a field.
///
/// # Errors
///
/// [`Errno::EINVAL`] for characters other than letters, digits, `_` and `.`, and for a name without an end.
pub(crate) fn parse(field: &[u8; NAME_SIZE]) -> Result<String, Errno> {
    let end = field.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if !field[..end].iter().all(allowed) {
        return Err(Errno::EINVAL);
    }
    Ok(String::from_utf8_lossy(&field[..end]).into_owned())
}

/// The field of a name.
pub(crate) fn field(name: &str) -> [u8; NAME_SIZE] {
    let mut field = [0; NAME_SIZE];
    let bytes = &name.as_bytes()[..name.len().min(NAME_SIZE - 1)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}
