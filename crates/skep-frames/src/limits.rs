//! How large a packet can be: limits of the text, so that no text takes much memory or time.

/// The longest packet that a text can be: what the length field of IPv4 can say, and the headers before it.
pub const MAX_BYTES: usize = 65_535 + 64;
/// The most parts of a packet. What is inside of more layers is bytes.
pub const MAX_LAYERS: usize = 32;
