//! What must hold for any bytes parsed as a format of `bpf_snprintf`: the pieces add up to the format, or the error
//! is at the place that it names.

use skep_abi::{Conversion, FormatError, MAX_PRINTED, Piece, parse_format};

/// Parses a format. Returns whether it is valid.
///
/// # Panics
///
/// If the promise is broken.
#[allow(unreachable_pub)] // the fuzzer and the test include this file, each its own way
pub fn check(format: &[u8]) -> bool {
    let pieces = match parse_format(format, usize::MAX) {
        Ok(pieces) => pieces,
        Err(error) => {
            refused_for_a_reason(format, &error);
            return false;
        }
    };
    let asked = conversions(&pieces).len();
    let mut end = 0;
    for piece in &pieces {
        let Piece::Text(text) = piece else { continue };
        assert!(!text.is_empty());
        assert!(
            text.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte == 0x0b)
        );
        let start = text.as_ptr().addr() - format.as_ptr().addr();
        assert!(
            end <= start && start + text.len() <= format.len(),
            "text is in order and part of the format"
        );
        end = start + text.len();
    }
    let percents = format.iter().filter(|byte| **byte == b'%').count();
    let shown: usize =
        pieces.iter().map(|piece| text(piece).iter().filter(|byte| **byte == b'%').count()).sum();
    assert_eq!(percents, asked + 2 * shown, "each begins a conversion or is one of two");

    for count in 0..=MAX_PRINTED {
        match parse_format(format, count) {
            Ok(same) => assert!(asked <= count && same == pieces),
            Err(error) => assert!(asked > count && error == FormatError::TooFewValues { values: count }),
        }
    }
    twice_is_the_same_twice(format, &pieces);
    true
}

/// A space ends every conversion, so a valid format may be followed by itself.
fn twice_is_the_same_twice(format: &[u8], pieces: &[Piece<'_>]) {
    let twice = [format, b" ", format].concat();
    let both = parse_format(&twice, usize::MAX).expect("both are formats");
    assert_eq!(conversions(&both), conversions(pieces).repeat(2));
    let texts = |pieces: &[Piece<'_>]| pieces.iter().flat_map(text).copied().collect::<Vec<u8>>();
    assert_eq!(texts(&both), [&texts(pieces)[..], b" ", &texts(pieces)].concat());
}

/// The text before the error is a valid format.
fn refused_for_a_reason(format: &[u8], error: &FormatError) {
    assert!(!error.to_string().is_empty());
    let at = match *error {
        FormatError::Conversion { at, .. } => {
            assert_eq!(format[at], b'%');
            at
        }
        FormatError::Byte { byte, at } => {
            assert_eq!(format[at], byte);
            at
        }
        FormatError::TooFewValues { .. } => panic!("there were enough values"),
    };
    assert!(parse_format(&format[..at], usize::MAX).is_ok(), "the first error is reported");
}

fn conversions(pieces: &[Piece<'_>]) -> Vec<Conversion> {
    let conversion = |piece: &Piece<'_>| match piece {
        Piece::Value(conversion) => Some(*conversion),
        Piece::Text(_) => None,
    };
    pieces.iter().filter_map(conversion).collect()
}

fn text<'a>(piece: &Piece<'a>) -> &'a [u8] {
    match piece {
        Piece::Text(text) => text,
        Piece::Value(_) => &[],
    }
}
