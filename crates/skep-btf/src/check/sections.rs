//! Where the types and the strings are: one behind the other, from the header to the end, with nothing between them.

use super::{CheckFault, Checked, Malformed, whole};
use crate::header::u32_at;

/// Bytes of the header that anybody knows.
const HEADER: usize = 24;

/// Whether types that a process loads are laid out as Linux demands it. Other damage is found by
/// [`Btf::parse`](crate::Btf::parse).
///
/// # Errors
///
/// What is wrong.
pub fn check_sections(bytes: &[u8]) -> Checked {
    let Some(head) = bytes.get(..HEADER) else { return Ok(()) };
    let Some(rest) = bytes.get(u32_at(head, 4) as usize..) else { return Ok(()) };
    let unknown = bytes.get(HEADER..bytes.len() - rest.len()).unwrap_or_default();
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Malformed { fault: CheckFault::Deep, ..whole("Unsupported btf_header") });
    }
    let mut sections = [8, 16].map(|at| (u32_at(head, at) as usize, u32_at(head, at + 4) as usize));
    sections.sort_unstable();
    let mut end = 0;
    for (start, len) in sections {
        let reason = match start {
            _ if start > rest.len() => "Invalid section offset",
            _ if start > end => "Unsupported section found",
            _ if start < end => "Section overlap found",
            _ if len > rest.len() - end => "Total section length too long",
            _ => {
                end += len;
                continue;
            }
        };
        return Err(whole(reason));
    }
    if end < rest.len() { Err(whole("Unsupported section found")) } else { Ok(()) }
}
