//! Properties that hold for all bytes. The property tests and the fuzzer `isa_roundtrip` both check them.

use skep_isa::{assemble, decode_bytes, disassemble, encode_bytes, tag, tag_sha1};

/// Decodes `bytes`; if that succeeds, encoding and assembling the listing must restore them. Returns whether decoding
/// succeeded.
///
/// # Panics
///
/// If one of these fails.
pub(crate) fn check(bytes: &[u8]) -> bool {
    let Ok(program) = decode_bytes(bytes) else { return false };
    assert_eq!(program.len() * 8, bytes.len(), "an instruction for each slot");
    assert_eq!(encode_bytes(&program).as_deref(), Ok(bytes), "{program:?}");
    let listing = disassemble(&program).to_string();
    assert_eq!(assemble(&listing).as_ref(), Ok(&program), "{listing}");
    assert!(tag(&program).is_ok() && tag_sha1(&program).is_ok());
    true
}

/// Assembles `text`; if that succeeds, the program has an encoding.
///
/// # Panics
///
/// If it has none.
pub(crate) fn check_text(text: &str) -> bool {
    let Ok(program) = assemble(text) else { return false };
    let bytes = encode_bytes(&program).expect("what the assembler accepts can be encoded");
    assert!(check(&bytes), "{text}");
    true
}
