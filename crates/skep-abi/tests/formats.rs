//! Pseudo-random formats, for machines without a fuzzer. `cargo xtask fuzz format_parse` goes deeper.

#[path = "oracle/format.rs"]
mod oracle;

/// Parts of valid and invalid formats.
const PARTS: [&[u8]; 24] = [
    b"%",
    b"%",
    b"%",
    b"%%",
    b"d",
    b"l",
    b"ll",
    b"x",
    b"X",
    b"u",
    b"s",
    b"p",
    b"k",
    b"i4",
    b"I6",
    b"K",
    b"0",
    b"-",
    b"+",
    b" ",
    b"99999999999",
    b"text\n",
    b"\x0b",
    b"\xff",
];

#[test]
fn random_formats_parse_or_are_refused_for_a_reason() {
    // Numbers of a linear congruential generator: the same every time.
    let mut state: u64 = 1;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut accepted = 0;
    for _ in 0..20_000 {
        let format: Vec<u8> = (0..random(12)).flat_map(|_| PARTS[random(PARTS.len())]).copied().collect();
        accepted += u32::from(oracle::check(&format));
    }
    assert!((2_000..18_000).contains(&accepted), "both happen: {accepted} of 20000 are formats");
}
