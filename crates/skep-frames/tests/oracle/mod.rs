//! The promises about any bytes and any text; the fuzzer `frames` makes them too.

use skep_frames::{Frame, MAX_BYTES, build, fields, side_by_side, text};

/// Bytes have a text, which builds them again.
pub(crate) fn keeps(bytes: &[u8]) {
    let shown = text(bytes);
    assert_eq!(build(&shown).as_deref(), Ok(bytes), "{shown}");
    // Without the way out for packets that would be built otherwise.
    assert!(bytes.len() < 14 || shown.starts_with("eth("), "{shown}");
    assert_eq!(text(&build(&shown).unwrap()), shown);
    for field in fields(bytes) {
        assert!(field.bit + field.bits <= 8 * bytes.len());
    }
    assert!(!side_by_side(bytes, bytes).differs());
}

/// A text is a packet, or an error in it.
pub(crate) fn reads(text: &str) {
    match Frame::parse(text) {
        Ok(frame) => assert!(frame.build().is_ok_and(|bytes| bytes.len() <= MAX_BYTES)),
        Err(error) => assert!(error.column() <= text.chars().count() + 1, "{error}"),
    }
}
